// Package outbox publishes the service's events without losing one, and without one
// that did not happen.
//
// [Add] writes an event in the transaction of what it tells of: both are there, or
// neither. A [Relay] publishes what is there, in the order in which it was written,
// and deletes by their ids what the broker has confirmed. Killed between the two it
// publishes again: consumers get each event at least once, under the same id, and tell
// duplicates by it (package inbox). Without a relay, or without a broker, events
// wait in their table.
package outbox
