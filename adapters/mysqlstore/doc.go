// Package mysqlstore keeps records in MySQL 8.0.16 or later or MariaDB 10.6 or
// later, beside the business tables of the same database, through
// github.com/go-sql-driver/mysql. The tables are InnoDB's.
//
// A claim of a fresh key costs its winner one round trip and a loser two; a replay
// of a key that this process has met costs one and writes nothing. A completion is
// one. A key that names a resource or keeps a request has rows in other tables too,
// so that claiming and completing it takes a transaction, of six to eight round trips;
// so does releasing a key, of five at least. Atomic adds to the handler's own round trips six:
// the key's lock, START TRANSACTION, the claim, the answer, COMMIT, and the lock's
// release; where sessions are not READ COMMITTED by themselves, one more.
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
// it is.
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
