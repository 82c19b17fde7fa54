// Package sqljournal keeps a client's journal in a table of a SQL database: SQLite,
// PostgreSQL, MySQL or MariaDB, over a pool of database/sql that the program has anyway.
//
// An entry is a row of onlyonce_journal. It is made by one statement that inserts it or
// does nothing, so of several callers one makes it. Who works on it has a lease: a token
// and a time by the database's own clock, which a goroutine renews. Every write names
// the token, so a process that slept through its lease changes nothing any more, and the
// entry of one that was killed is free when its lease is over.
//
// The caller's own transaction can hold the entry as well: see [Journal.Insert].
package sqljournal
