package onceclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Client does operations once. It is safe for concurrent use: nothing of an operation
// is kept in it.
type Client struct {
	cfg    Config
	sender Sender
	budget *Budget
	base   http.RoundTripper
}

// New makes a client. The error joins all that is wrong with cfg, each an
// *onlyonce.Error with CodeConfig. It starts nothing that would have to be stopped;
// CloseIdleConnections closes the connections of its own transport.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	c := &Client{cfg: cfg, sender: cfg.Sender, budget: cfg.Budget, base: cfg.Base}
	if c.budget == nil {
		b, err := NewBudget(BudgetConfig{Now: cfg.Now})
		if err != nil {
			return nil, err
		}
		c.budget = b
	}
	if c.base == nil {
		// Something else may have been put in place of net/http's own.
		standard, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			standard = &http.Transport{Proxy: http.ProxyFromEnvironment}
		}
		c.base = standard.Clone()
	}
	if c.sender == nil {
		c.sender = &httpSender{cfg: cfg, base: c.base}
	}
	return c, nil
}

// CloseIdleConnections closes the connections that are not in use.
func (c *Client) CloseIdleConnections() {
	if b, ok := c.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// Do does an operation, and returns when it has ended or its time is over:
//
//	nil                answered, now or before (Outcome.Recorded)
//	*RefusedError      refused for good
//	*NotSentError      nothing has ever left
//	*UnknownError      nobody knows; somebody else may be working on it (ErrLocked)
//	*UnrecordedError   answered or refused, but the journal could not keep that
//	*onlyonce.Error    nothing was sent by this call: the request is wrong, the intent
//	                   was used for another one, or the journal does not work
//	another            nothing was sent by this call: ctx had ended before
//
// What came is in the Outcome with an error too: of an error of the journal the intent,
// under which alone it may be done again, for it may have been kept. An intent that was answered gives its
// recorded answer; one that was refused, or was not sent, is sent under its key; one
// that is open is gone on with, as a retry for the budget. A request is another one when
// its method, URL, body or a header differs, except for credentials and for headers that
// change by themselves, as Date, User-Agent and those of tracing; what was journaled first
// is what is sent.
//
// ctx ends it early; the end is written to the journal all the same. A crash leaves an
// open entry, or none and nothing sent.
func (c *Client) Do(ctx context.Context, req Request) (Outcome, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	defer cancel()
	o, err := c.operation(req)
	if err != nil {
		return Outcome{}, err
	}
	if ctx.Err() != nil {
		return Outcome{}, fmt.Errorf("begin operation: nothing was sent: %w", context.Cause(ctx))
	}
	// The journal then says already that the first attempt may have been made.
	o.entry.Attempts = 1
	stands, made, err := c.cfg.Journal.Begin(ctx, o.entry)
	if err != nil {
		// It may be in the journal all the same, under an intent that was made up.
		return Outcome{Intent: o.entry.Intent}, journalError(fmt.Sprintf("begin operation %q", o.entry.Intent), err)
	}
	if err := sound(stands, o.entry.Intent); err != nil {
		return Outcome{Intent: o.entry.Intent}, journalError("begin operation", err)
	}
	if !made {
		if names := differs(stands, o.entry); len(names) > 0 {
			return Outcome{}, &onlyonce.Error{
				Code: CodeIntentReused, Op: fmt.Sprintf("begin operation %q", o.entry.Intent), Differs: names,
				Hint: "the intent was used for another request, and this call has sent nothing; name another operation by another intent",
			}
		}
		if stands.State == Answered {
			return c.recorded(ctx, stands), nil
		}
	}
	lock, entry, err := c.cfg.Journal.Lock(ctx, o.entry.Intent)
	if err != nil {
		return Outcome{Intent: stands.Intent, Key: stands.Key}, notLocked(stands, err)
	}
	defer unlock(lock)
	if err := sound(entry, o.entry.Intent); err != nil {
		return Outcome{Intent: stands.Intent, Key: stands.Key}, notLocked(stands, err)
	}
	if entry.State == Answered {
		return c.recorded(ctx, entry), nil
	}
	// Unless another one was here in between, it was not.
	fresh := made && entry.State == Open && entry.Attempts == 1
	if fresh {
		entry.Attempts = 0
	}
	r := newRun(c, lock, entry)
	r.secrets, r.fresh = o.secrets, fresh
	r.resumed = r.maySent
	return r.do(ctx)
}

// Entry is what Do would begin the journal's entry with, for a journal that is written in
// the caller's own transaction, beside the row that the operation belongs to: checked,
// with an intent and a key if the request had none, and without credentials. When the
// transaction has committed, Do with the same request and intent, or Resume, sends it.
// It has no attempts, so that a refusal of the first one is a proof. While nothing has
// left, Resume leaves it open; a Do that could send nothing ends it (NotSentError), and
// only another Do opens it again.
// The errors are those of Do about a request.
func (c *Client) Entry(req Request) (Entry, error) {
	o, err := c.operation(req)
	return o.entry, err
}

var (
	errTimeout        = timeoutError("the time for the operation is over")
	errAttemptTimeout = timeoutError("the server took too long")
)

// timeoutError is a cause of contexts that says in words which time is over.
type timeoutError string

// Error says which.
func (e timeoutError) Error() string { return string(e) }

// Timeout is true, as of net.Error.
func (e timeoutError) Timeout() bool { return true }

// Is makes it one of context.DeadlineExceeded.
func (e timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// recorded is the outcome of an entry that was answered before.
func (c *Client) recorded(ctx context.Context, e Entry) Outcome {
	out := outcomeOf(e)
	out.Recorded = true
	c.cfg.Observe(ctx, Event{Kind: EventEnded, Intent: e.Intent, Key: e.Key, Attempt: e.Attempts, Status: statusOf(e.Answer)})
	return out
}

func outcomeOf(e Entry) Outcome {
	return Outcome{Intent: e.Intent, Key: e.Key, Answer: e.Answer, Attempts: e.Attempts, Reference: reference(e.Answer)}
}

// notLocked is the error of an entry that is in the journal, but not ours to work on.
// Somebody else may do it, now or later.
func notLocked(e Entry, err error) error {
	why := journalError("lock operation", err)
	if errors.Is(err, ErrLocked) {
		why = &onlyonce.Error{
			Code: CodeIntentLocked, Op: "lock operation", Err: err,
			Hint: "this call has sent nothing; do the same intent again later, to get the other's answer",
		}
	}
	return &UnknownError{Intent: e.Intent, Key: e.Key, Answer: e.Answer, Reference: reference(e.Answer), Err: why}
}

// unlock lets go. What an entry has come to is saved before; a lock that stays ends
// with the process.
func unlock(lock Lock) { _ = lock.Unlock() }

// Prune deletes entries that ended at least age ago, and says how many. Open ones are
// kept. An intent that is done again after that is a new operation, so age may not be
// less than Config.Retention; weeks are better.
func (c *Client) Prune(ctx context.Context, age time.Duration) (int, error) {
	const batch = 500
	if age < c.cfg.Retention {
		return 0, configError("prune journal", "the age is less than Config.Retention; an intent that is done again would be a new operation")
	}
	before, all := c.cfg.Now().Add(-age), 0
	for {
		n, err := c.cfg.Journal.Prune(ctx, before, batch)
		all += n
		if err != nil {
			return all, fmt.Errorf("prune journal: %w", err)
		}
		if n < batch {
			return all, nil
		}
	}
}

// pending lists the intents of all open entries, as far as they can be read.
func (c *Client) pending(ctx context.Context) (all []string, err error) {
	const page = 500
	for after := ""; ; after = all[len(all)-1] {
		intents, failed := c.cfg.Journal.Pending(ctx, after, page)
		all = slices.Concat(all, intents)
		if failed != nil {
			err = fmt.Errorf("list open operations: %w", failed)
		}
		if len(intents) < page {
			return all, err
		}
	}
}
