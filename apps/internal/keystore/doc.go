// Package keystore opens a store of idempotency keys by its URL, for the commands
// that look after stores: whoever uses the library without the payments service has
// keys in any of its databases, and no other tables of ours.
//
// [Open] opens what is there and makes nothing. [Migrate] makes the tables or brings
// them up to date, [Status] says which migrations a store has had, [Print] gives the
// statements to people with a tool of their own. One file is one backend; kinds lists
// them.
package keystore
