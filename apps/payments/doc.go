// Package payments is the reference service: charges, refunds, orders with
// stock and a double-entry ledger, whose retries are safe.
//
// It shows the whole pattern. A charge is an operation in steps: the call to the
// provider is recorded before its first byte leaves, sent under a key derived from
// the caller's, and looked up or sent again under the same one when its answer was
// lost; the charge's row, its ledger entries and its answer are then written in one
// transaction. While what became of it is not known, its key holds the order that
// it pays: no other key pays that. A refund holds its charge in the same way. An
// order is one transaction with its key and the stock it takes, and a checkout is
// all of it: a transaction that reserves, a call that charges, and a transaction
// that writes the order paid or gives the stock back.
//
// What a crash, or a client that has gone, leaves behind is resumed from the
// request that was kept with the key: [Service.CatchUp] at the start, then
// [Service.Run].
//
// Each transfer of the ledger is told of by an event, which is written in its
// transaction and published behind it (package outbox).
//
// Every business row carries the reference of the operation that wrote it, and
// is unique on it: also when a key has expired, the operation cannot be written
// a second time.
package payments
