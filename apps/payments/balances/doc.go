// Package balances is what each merchant has, kept by a second service from the events
// of the first: charges less refunds, in minor units, exactly.
//
// Events come more than once and in any order. An inbox hands each to [Apply] once, in
// the transaction of its effect; sums do not care for the order.
package balances
