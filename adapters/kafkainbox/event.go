package kafkainbox

import (
	"time"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// EventKind names something that happened to a Consumer.
type EventKind string

// The events.
const (
	// EventProcessed: a delivery has its verdict. Err says why, unless it was handled or
	// is a duplicate.
	EventProcessed EventKind = "processed"
	// EventAssigned: the group has given a partition to this member.
	EventAssigned EventKind = "assigned"
	// EventGivenUp: a partition is no longer this member's; what was acknowledged is
	// committed.
	EventGivenUp EventKind = "given_up"
	// EventLost: the group took a partition away, say because a session timed out. Nothing
	// was committed; what was handled since the last commit comes again as duplicates.
	EventLost EventKind = "lost"
	// EventAbandoned: a handler outlived its cancelled context, and its partition was
	// given up without it. What it still does is the inbox's to judge.
	EventAbandoned EventKind = "abandoned"
	// EventCommitFailed: offsets could not be committed. They are tried again while the
	// partition is this member's; else their records come again.
	EventCommitFailed EventKind = "commit_failed"
	// EventFetchFailed: Kafka refused a fetch or the group's membership, or has lost data.
	// It is tried again, where a topic was made anew by another member.
	EventFetchFailed EventKind = "fetch_failed"
)

// Event is one thing that happened.
type Event struct {
	Kind EventKind
	// Topic and Partition say where; of a failed fetch the topic may be empty, and a failed
	// commit has none.
	Topic     string
	Partition int32
	// Offset, MessageID, Verdict and Try (from 1) are set with EventProcessed.
	Offset    int64
	MessageID string
	Verdict   inbox.Verdict
	Try       int
	// Wait is the pause before the next try, with the verdict Again.
	Wait time.Duration
	// Err is why, where something failed.
	Err error
}
