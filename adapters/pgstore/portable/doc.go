// Package portable keeps records in databases that speak PostgreSQL's protocol and are
// not, or not only, PostgreSQL: CockroachDB, YugabyteDB, Aurora DSQL, Spanner's
// PostgreSQL dialect, Citus. Records stand beside the business data, through pgx, as
// with package pgstore, which is the one to take for a PostgreSQL: it is faster, and
// tells a duplicate of an open transaction at once that it is one.
//
// # What it relies on
//
// The part of SQL that these engines are documented to share, and nothing of it that
// they do differently. Rows are read by primary key, or in the order of a plain index.
// Writes are INSERT … ON CONFLICT (primary key) DO NOTHING, and UPDATE and DELETE by
// primary key of what was read; how many rows were changed tells the rest. Where an
// INSERT that does nothing and an error of serialization are two ways to say that
// somebody was faster, both are taken for it. Every table that has a scope begins its
// primary key with it, so that rows can be spread by tenant, and no transaction but a
// sweep's touches two scopes. Not used: advisory locks, locking clauses, savepoints,
// sequences and identities, partial or expression indexes, unique indexes besides the
// primary keys, triggers and procedures, WITH, RETURNING, subqueries in statements that
// write, arrays, JSON, arithmetic with times, collations, temporary tables, settings of
// the session. A test reads every statement of the package and holds it to this.
//
// Each change of a key's row raises its version, and each change names the version that
// it was decided by, beside fence, attempt token and state. Whoever writes a step
// raises it as well. So what this program has decided holds at serializable, in
// snapshots (where two transactions that read the same and write apart would both go
// through), and in read committed. Each method is one transaction, repeated as a whole
// up to 16 times with random pauses when it meets a conflict, then ErrConflict; the
// functions of Atomic, Finish and StepTx are never run twice by it, but by the engine.
// A commit whose reply is lost is ErrUncertain: the same call, with the same token,
// finds it, or does it.
//
// Scope, key and resource are columns of type text without a collation clause, which
// not all engines take, and not bytea, which not all of them index. What is compared is
// whether two are equal, which is by their bytes under every deterministic collation;
// a row that is found under a key which is not its own, as a nondeterministic collation
// would have it, is an error and never an answer. Times are bigint, microseconds.
//
// # Clocks
//
// Engines of several nodes have several clocks. Times are those of the transaction's
// begin on whichever node that is, and decide about retention and turns; a lease is
// judged by watching: a handle takes a key over, parks or sweeps it only after it has
// seen the same claim and the same renewal for a whole lease by its own monotonic clock
// (Features.Observes). So after a crash a key is free a lease later than it might be,
// counted from when somebody first asks for it. A sweep decides about an abandoned
// attempt only on a handle that has seen it, in an earlier sweep or otherwise, for the
// lease and the grace: one process that goes on has to do it, one that sweeps once and
// ends never does. At most a hundred thousand keys are watched by a handle; more wait for
// a place. An attempt that finds its own claim again, whose reply was lost, is told of
// what is left by the clocks if that is less than what is left to watch: there a node's
// clock that is behind makes its lease longer than others think it, and fences alone
// stand between the two.
//
// The same goes for the sends of steps. Idle, after which a provider's "not found" is
// proof, is how long this handle has known of the last send by its own monotonic clock:
// whoever meets a begun step for the first time waits as long as if it had just been
// sent. Age, past which nothing is sent again, is by the clocks, and Config.MaxClockSkew
// more, 5 minutes by default: with a provider that remembers keys for no longer than that
// nothing is ever sent again. Clocks of nodes that differ by more than it may have a send
// repeated past what the provider remembers.
//
// Fences rise with the clock as ever: one could return to an old value only behind a
// sweep, on a node whose clock is behind by more than the retention, and the token would
// still differ. Config.OneClock is for a single PostgreSQL: there the server's clock makes
// and judges all of this, and nothing has to be watched.
//
// # Transactions of one key side by side
//
// A second transaction of a key, in another process, does one of three things: its claim
// waits for the first, for Config.LockTimeout at most, and is then told that the key is
// busy; or it is rolled back by the engine, looks again and finds the answer; or, where
// conflicts are found only at the commit, its handler runs too and one of the two is
// rolled back (Features.CommitDecides). Never do both commit: they write the same row.
//
// A transaction that stays open at a key keeps that key, and no other, from being given a
// turn and from being swept: Due and Sweep wait for it for Config.LockTimeout, once, pass
// the key over and go on. With LockTimeout below 0, where writers wait, they wait for as
// long as the session lets them.
//
// A caller's own transaction (CompleteTx) that is repeated because the reply to its commit
// was lost must be rolled back if Settled.Held is false. Settled.Earlier says that the
// first one stands, and ExpiresAt until when its answer does.
//
// # What it costs
//
// Four round trips to claim a fresh key and three to be refused or replayed; four to
// renew, complete, park; six to begin or end a step; Atomic five besides its handler's
// statements. Each of them is one commit. A connection's first transaction takes one more,
// to ask how its session commits. Indexes on times are written by every
// completion; on engines that order all rows by key they grow at one end, which is what
// bounds the writes a second of one such index.
//
// # What was run and what was not
//
// Run: the store suite, the random model, the concurrent histories, contention, broken
// connections and lost replies, all on PostgreSQL, at serializable, repeatable read and
// read committed. Not run: any of the engines named above. What is said of them is from
// their documents:
//
//   - CockroachDB: serializable by default, 40001 for conflicts, 40003 for a commit
//     whose outcome it does not know. Index rows in order of time want hash sharding.
//   - YugabyteDB: read committed is a snapshot unless it is switched on; both are right
//     here. Secondary indexes on times should be declared to range over them.
//   - Aurora DSQL: one isolation level, of snapshots, and conflicts as 40001 at the
//     commit: set EngineIsolation, and LockTimeout below 0. Its indexes are made by CREATE
//     INDEX ASYNC: apply the migration by hand, with that word, and set SkipMigrate. A
//     row is at most 2 MiB, a column 1 MiB, which bounds answers and kept requests.
//   - Spanner: ON CONFLICT with the primary key's columns in order, and no other action
//     than DO NOTHING is asked for; no savepoints, so handlers must not call Begin.
//     LockTimeout below 0 where the adapter refuses lock_timeout.
//   - Citus: distribute onlyonce_portable_keys, resources, steps and audit by scope, in
//     one co-location group, and make settings, sweepers and schema reference tables. No
//     statement that writes calls a volatile function. Sweeps, Due and List read over all
//     shards.
//
// It needs SELECT, INSERT, UPDATE and DELETE on its tables; only making them (Migrate)
// needs more. It works with a pool of one connection, in every mode of pgx, the simple
// protocol included, and behind PgBouncer in transaction mode. It sets nothing on
// sessions. Where a session's synchronous_commit is off, each transaction of the store
// switches it on for itself; any other value stands, and an engine that does not know the
// parameter is taken to have no commits but durable ones. Not seen are a session that is
// changed after its first transaction, and the caller's own, which CompleteTx is in.
// Sessions of a PostgreSQL should have an idle_in_transaction_session_timeout, or a
// program that vanishes in a handler keeps its key busy until the server notices.
//
// Texts that no column takes, since they hold a zero byte or are not UTF-8, are refused
// before they are sent (CodeConfig); reasons and what operators write are made to fit.
// The tables hold requests and answers of the API.
package portable
