package onlyonce

import (
	"context"
	"time"
)

// EventKind names something that happened to a key.
type EventKind string

// The events an Observer sees.
const (
	EventClaimed      EventKind = "claimed"
	EventResumed      EventKind = "resumed"
	EventReplayed     EventKind = "replayed"
	EventRefused      EventKind = "refused"
	EventCompleted    EventKind = "completed"
	EventReleased     EventKind = "released"
	EventParked       EventKind = "parked"
	EventLeaseLost    EventKind = "lease_lost"
	EventUnprotected  EventKind = "unprotected"
	EventStoreFailed  EventKind = "store_failed"
	EventStoreRetried EventKind = "store_retried"
	// EventContradiction is an alarm: an attempt proved an outcome after its
	// key had been settled otherwise. Somebody must look.
	EventContradiction EventKind = "contradiction"
)

// Event is one thing that happened to a key. It carries nothing secret: the
// operation reference tells keys apart without giving them away.
type Event struct {
	Kind      EventKind
	Op        string
	Operation string
	Fence     int64
	Attempt   Token
	// Code is set with EventRefused.
	Code Code
	// Reason is set with EventParked, EventReleased, EventContradiction.
	Reason string
	// Err is set with EventStoreFailed and EventStoreRetried.
	Err error
	// Took is the handler's run time, with completed, released and parked.
	Took time.Duration
}

// Observer is told what happens to keys, for metrics, logs and traces. It is
// called on the request's path and must be quick and safe for concurrent use.
type Observer interface {
	// Observe is told of one event.
	Observe(ctx context.Context, event Event)
}

// ObserverFunc is a function as an Observer.
type ObserverFunc func(ctx context.Context, event Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, event Event) { f(ctx, event) }
