// Package memstore keeps records in this process's memory. It is the reference
// model for the other stores, and good for tests and for trying things out.
//
// Nothing survives the process, and another process sees nothing of it: two
// servers with a memory store each would run one operation twice. So New asks
// for a word: Config.SingleProcess must be true.
package memstore
