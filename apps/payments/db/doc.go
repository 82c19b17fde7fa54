// Package db gives the payments service one way to speak to SQLite and to
// PostgreSQL: statements are written once, with ? for their arguments, and run
// in a [Tx], whichever driver is behind it.
//
// [Open] opens a database by its URL, with the store of idempotency keys in it,
// so that business rows and answers share transactions. [Database.Migrate] makes
// and changes the service's own tables; those of the keys belong to their store.
package db
