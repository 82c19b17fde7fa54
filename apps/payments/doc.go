// Package payments is the reference service: charges, refunds, orders with
// stock and a double-entry ledger, whose retries are safe.
//
// It shows the whole pattern. A charge is an operation in steps: the call to
// the card processor is recorded before its first byte leaves, sent under a key
// derived from the caller's, and looked up or sent again under the same one when
// its answer was lost; the charge's row, its ledger entries and its answer are
// then written in one transaction. A refund reserves its amount first, so that
// parallel refunds never give back more than was taken, also while one of them
// is in doubt. An order is one transaction with its key and the stock it takes.
//
// Every business row carries the reference of the operation that wrote it, and
// is unique on it: also when a key has expired, the operation cannot be written
// a second time.
package payments
