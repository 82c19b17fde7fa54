package onceclient

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Config configures a Client. Only Journal is required.
type Config struct {
	// Journal keeps operations from before they are sent. Required.
	Journal Journal
	// Sender makes the attempts. nil: over HTTP, as the fields below say.
	Sender Sender
	// Base makes HTTP round trips. It must be net/http's, or honour httptrace and read
	// a body only to send it; else it is never proved that nothing was sent. nil: a transport of its own. Where the
	// request has no Accept-Encoding, net/http's asks for gzip and undoes it.
	Base http.RoundTripper
	// Authorize adds credentials to an attempt: what it sets in the request's header is
	// sent, other changes are not. It is asked for every attempt; again is true when the
	// server has just answered 401 to what it gave before, once in an attempt. It is not
	// asked for a redirect to another origin. An error counts as not sent, and is tried
	// again; with again, the server's 401 stands. nil: the request's own header is all.
	Authorize func(ctx context.Context, req *http.Request, again bool) error
	// KeyHeader carries the key. Default "Idempotency-Key".
	KeyHeader string
	// Credentials names further headers that are sent, but not kept in the journal;
	// see IsCredential for those that never are.
	Credentials []string
	// MaxAnswer is the longest answer that is taken, in bytes. Default 10 MiB. A longer
	// one is an UnknownError: the server's answer stays there to be had.
	MaxAnswer int64
	// MaxRequest is the longest body that Transport takes, in bytes. Default 10 MiB.
	MaxRequest int64

	// Timeout bounds one Do in all. Default 2 min.
	Timeout time.Duration
	// AttemptTimeout bounds one attempt. Default 30 s.
	AttemptTimeout time.Duration
	// Attempts bounds the attempts of one Do. Default 12: enough to ask for half a minute
	// whether a request in progress has ended.
	Attempts int
	// Concurrency is how many operations Resume works on at a time. Default 8.
	Concurrency int
	// BackoffBase and BackoffCap are the pauses between attempts: the n-th, counted from
	// 0, is a random part of BackoffBase·2ⁿ, at most BackoffCap, on top of what the
	// server asks for. Defaults 250 ms and 8 s (rule L3).
	BackoffBase, BackoffCap time.Duration
	// Budget bounds the retries of all operations of the client, or of several; nil: one of
	// its own with the defaults of NewBudget.
	Budget *Budget
	// Retention is for how long the server keeps its answers, as it publishes. Nothing
	// is sent later than that after an entry was made, less a tenth of it: the server
	// would take it for a new operation. Default 24 h.
	Retention time.Duration

	// Observe is told what happens; nil: nobody is. It is called by the goroutine of
	// the operation.
	Observe func(ctx context.Context, event Event)
	// Now is the clock of entries. nil: time.Now.
	Now func() time.Time
}

// WithDefaults is a copy with what is not set set to its default. Budget and Sender are
// New's to make.
func (c Config) WithDefaults() Config {
	c.KeyHeader = http.CanonicalHeaderKey(cmp.Or(c.KeyHeader, "Idempotency-Key"))
	c.MaxAnswer = cmp.Or(c.MaxAnswer, 10<<20)
	c.MaxRequest = cmp.Or(c.MaxRequest, 10<<20)
	c.Timeout = cmp.Or(c.Timeout, 2*time.Minute)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, 30*time.Second)
	c.Attempts = cmp.Or(c.Attempts, 12)
	c.Concurrency = cmp.Or(c.Concurrency, 8)
	c.BackoffBase = cmp.Or(c.BackoffBase, 250*time.Millisecond)
	c.BackoffCap = cmp.Or(c.BackoffCap, 8*time.Second)
	c.Retention = cmp.Or(c.Retention, 24*time.Hour)
	if c.Observe == nil {
		c.Observe = func(context.Context, Event) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate joins all that is wrong with a Config, each an *onlyonce.Error with
// CodeConfig that names the field. Fields that are not set are not wrong, but Journal.
func (c Config) Validate() error {
	var faults []error
	fault := func(wrong bool, hint string) {
		if wrong {
			faults = append(faults, configError("check onceclient.Config", hint))
		}
	}
	fault(c.Journal == nil, "Journal is nil: nothing would survive a crash; use a file journal or a database's")
	fault(c.KeyHeader != "" && !isToken(c.KeyHeader), "KeyHeader is no name of a header; use what the server's documentation says")
	fault(slices.Contains(append(notSent(), "Host"), http.CanonicalHeaderKey(c.KeyHeader)), "KeyHeader is a header that net/http sets; use what the server's documentation says")
	for _, name := range c.Credentials {
		fault(!isToken(name), "Credentials holds "+strconv.Quote(name)+", which is no name of a header")
	}
	fault(c.MaxAnswer < 0 || c.MaxRequest < 0, "MaxAnswer and MaxRequest are numbers of bytes and cannot be negative; leave them 0 for the default")
	fault(c.Timeout < 0 || c.AttemptTimeout < 0, "Timeout and AttemptTimeout cannot be negative; leave them 0 for the default")
	fault(c.Attempts < 0 || c.Concurrency < 0, "Attempts and Concurrency cannot be negative; leave them 0 for the default")
	fault(c.BackoffBase < 0 || c.BackoffCap < 0, "BackoffBase and BackoffCap cannot be negative; leave them 0 for the default")
	fault(c.Retention < 0, "Retention cannot be negative; set it to what the server publishes")
	return errors.Join(faults...)
}

// Sender makes one attempt at an operation. It must not send anything twice by
// itself. It is safe for concurrent use.
type Sender interface {
	// Send makes one attempt at an entry, whose header has the credentials of the call
	// too, and says what came of it. The header is the sender's own, the body is not to be
	// changed. An attempt ends with ctx. Done and Denied have an
	// Answer; what is neither proved to be Unsent nor answered is Again.
	Send(ctx context.Context, entry Entry) Reply
}

// Event is something that happened to an operation.
type Event struct {
	// Kind says what.
	Kind EventKind
	// Intent and Key are the operation's.
	Intent, Key string
	// Attempt counts from 1.
	Attempt int
	// Status is the HTTP status that came, 0 if none.
	Status int
	// Wait is how long the client waits before the next attempt.
	Wait time.Duration
	// Err is why; nil where nothing went wrong.
	Err error
}

// EventKind is a kind of Event.
type EventKind string

// The kinds of events.
const (
	// EventSending: an attempt is about to be made.
	EventSending EventKind = "sending"
	// EventWaiting: an attempt was not the end of it; another follows in Wait.
	EventWaiting EventKind = "waiting"
	// EventEnded: the operation has ended for this call; Err is what Do returns. An
	// intent that was not worked on, because it is wrong or locked, has no event.
	EventEnded EventKind = "ended"
)
