// Package mysqlstore keeps records in MySQL 8.0.16 or later or MariaDB 10.6 or
// later, beside the business tables of the same database, through
// github.com/go-sql-driver/mysql. The tables are InnoDB's.
//
// A claim of a fresh key costs its winner one round trip and a loser two; a replay
// of a key that this process has met costs one and writes nothing. A completion is
// one. A key that names a resource or keeps a request has rows in other tables too,
// so that claiming and completing it takes a transaction, of six to eight round trips;
// so does releasing a key, of five at least. Atomic adds to the handler's own round trips
// eight: the key's lock, START TRANSACTION, the claim, a savepoint and its release, the
// answer, COMMIT, and the lock's release; where sessions are not READ COMMITTED by
// themselves, one more. The savepoint tells a transaction that is rolled back from one
// that a handler, or the server, has ended before.
//
// Whoever meets a key that a transaction of Atomic has claimed and not committed is
// told so at once: the transaction's session holds a lock (GET_LOCK) made of the
// key's digest and the database's name, and claims look whether it is free. It is
// not what makes a key somebody's: that are unique indexes and conditional writes.
//
// Our own transactions are READ COMMITTED, in which InnoDB locks no gaps: claims of
// neighbouring keys do not meet. Deadlocks and other conflicts of single writes are
// repeated a few times, after a random pause. Leases are judged by the server's
// clock.
//
// # Galera
//
// In a Galera cluster each node has a clock and locks of its own. There the store
// judges leases by watching (onlyonce.Features.Observes), of transactions of one key
// on several nodes all but one fail at their commit (CommitDecides), and every read
// waits until its node has caught up (wsrep_sync_wait). It finds out by itself where
// it is. A duplicate of an open Atomic on the same node is busy at once, by the node's
// lock, where these are not forbidden (pxc_strict_mode); on another node it runs, and one
// of the two is rolled back.
//
// Row locks do not reach other nodes either. What is recorded of a step, which must not
// happen beside a takeover, changes the key's row too, so that one of the two fails at
// its commit; recording a send takes five round trips or more. How long ago a step was
// sent is told on the safe side (onlyonce.StepRecord).
//
// # Group replication
//
// A group with a single primary is like one server, and after a failover ErrUncertain
// is what it says. A group with several primaries is refused: it has several clocks.
//
// # Vitess
//
// On Vitess a key's rows are where its digest says, and business rows that commit with
// a key must be there too: their tables need a column with its digest (Key.Digest) and
// the same vindex. The store asks for transaction_mode=SINGLE, in which a transaction
// that reaches a second shard is refused, and does not run in any other. It asks for a
// key's lock in a statement of its own, so that a claim of a fresh key takes two round
// trips; it sweeps row by row, and gives turns one by one. Resources are refused:
// nothing is unique over two shards. The repository's docs/VITESS.md has the vindexes
// and what was run.
package mysqlstore
