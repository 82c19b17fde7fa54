// Package provider is what onlyonce needs to know of whoever moves the money: a
// payment processor, an acquirer, a wallet. An adapter implements [Provider];
// [Charge] and [Refund] make steps of its calls, so that each has at most one
// effect over all attempts at a key (section D of the contract).
//
// What differs between providers is in [Traits]: how long they remember an
// idempotency key, whether they can be asked by our reference, and after which
// time "not found" is proof. From these follow what may be done when an answer
// is lost; nothing else decides it.
package provider
