// Package sqlitestore keeps records in a SQLite file, beside the business
// tables of the same file, so that claim, business write and answer can be one
// transaction.
//
// All processes on the file's host may share it; a file on a network file
// system is not supported. SQLite has one writer at a time. Within a process
// writers queue for one connection; between processes they wait for the file's
// lock for Config.BusyTimeout. A replay only reads: it takes no lock and is
// served while another process writes.
//
// The file holds requests and answers of the API, whole requests where they are
// kept for a recoverer: keep it, and the -wal and
// -shm files beside it, in a folder that only the service can read. Back it up
// with SQLite's own means, never by copying the file alone. No code of the
// process may open and close the file by itself: that drops SQLite's locks.
package sqlitestore
