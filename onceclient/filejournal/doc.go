// Package filejournal keeps a client's journal in plain files: for command lines,
// for services without a database, for whoever wants to look with ls and cat.
//
// A folder holds one file an entry, named by the SHA-256 of its intent:
//
//	entries/  the journal; the first line of a file has the version and a checksum
//	locks/    a locked file for every entry that somebody is working on
//	tmp/      files that are being written
//
// An entry is written whole to tmp, synced, and linked or renamed into place, and
// then the folder is synced: a crash leaves the old entry, the new one or none, and
// what was confirmed is there. What was torn or edited afterwards does not fit its
// checksums and is refused with an error that names the file; it is never sent.
//
// Locks are the system's (flock), so they end with their process, whatever ends
// that. The folder must be on a local disk: on one that several machines share, it
// depends on the file system whether their locks know of each other.
//
// Bodies and answers are in the files as they are. Only the owner may read them
// (0700 and 0600); put the folder where nobody else has a reason to look.
package filejournal
