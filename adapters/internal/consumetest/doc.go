// Package consumetest has what the tests of several brokers' adapters need: what a
// consumer has told, and an inbox that processes share, since an adapter may not import a
// store.
package consumetest
