package onceclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// settleTimeout bounds the last write of an operation, which is made also when its
// context has ended.
const settleTimeout = 10 * time.Second

// run is one call's work on a locked entry.
type run struct {
	c    *Client
	lock Lock
	// entry is as it was last saved, and as far as it is to be saved next.
	entry Entry
	// secrets are sent, and not saved.
	secrets http.Header
	// fresh: this call has made the entry, so that the journal counts the first attempt
	// already, and nobody else can have made it.
	fresh bool
	// resumed: the first attempt is somebody's retry.
	resumed bool
	// unattended: it is Resume's, and nobody would do it again but the next one.
	unattended bool
	// maySent: some attempt, of this call or of one before, may have had an effect.
	maySent bool
	// ended is the state that the entry had before: NotSent and Refused are proofs.
	ended State
	// unsure: the journal may say Open, though its entry was not seen to be saved so.
	unsure bool
	// last is the last attempt's reply.
	last Reply
	// ticket is of the attempt that is made now.
	ticket *ticket
}

func newRun(c *Client, lock Lock, entry Entry) *run {
	return &run{
		c: c, lock: lock, entry: entry, ended: entry.State,
		// Each attempt is counted in the journal before it is made.
		maySent: entry.State == Open && entry.Attempts > 0,
	}
}

// do makes attempts until one is the end of it, or no other may be made. Where what the
// caller has given panics, nobody is told that it has ended.
func (r *run) do(ctx context.Context) (out Outcome, err error) {
	out, err = r.work(ctx)
	r.observe(ctx, Event{Kind: EventEnded, Status: statusOf(out.Answer), Err: err})
	return out, err
}

func (r *run) work(ctx context.Context) (Outcome, error) {
	for n := 0; ; n++ {
		if err := r.ready(ctx, n); err != nil {
			return r.giveUp(ctx, err)
		}
		reply := r.attempt(ctx)
		switch reply.Verdict {
		case Done, Denied:
			if !reply.BeforeKey || !r.maySent {
				return r.end(ctx, map[Verdict]State{Done: Answered, Denied: Refused}[reply.Verdict])
			}
			if reply.Verdict == Done || !reply.AtWork {
				return r.giveUp(ctx, fmt.Errorf("status %d: %w", reply.Answer.Status, errProvesNothing))
			}
		case Unclear:
			r.maySent = true
			return r.giveUp(ctx, errNoRetry)
		case Unsent:
		default:
			r.maySent = true
		}
		if err := r.pause(ctx, n); err != nil {
			return r.giveUp(ctx, err)
		}
	}
}

var (
	errProvesNothing = errors.New("it may be of somebody who never looked at the key, and an attempt before it may have been carried out")
	errNoRetry       = errors.New("the server wants no retry, and does not say what happened")
)

// ready makes sure that the n-th attempt may be made, and that the journal says before
// it that it may have been.
func (r *run) ready(ctx context.Context, n int) error {
	if err := r.afford(ctx, n); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := r.late(); err != nil {
		return err
	}
	next := r.entry
	next.Attempts++
	next.State, next.EndedAt = Open, time.Time{}
	if !r.fresh || n > 0 {
		if n > 0 {
			next.Answer, next.Note = cmp.Or(journaled(r.last.Answer), next.Answer), note(r.last.Err)
		}
		if err := r.lock.Save(ctx, next); err != nil {
			r.unsure = true
			return &onlyonce.Error{
				Code: CodeJournal, Op: "record attempt", Err: err,
				Hint: "the attempt was not made; when the journal works again, do the same intent again",
			}
		}
	}
	r.entry = next
	return nil
}

// late is not nil when the entry may not be sent any more. Where it is known what became
// of it, nothing is to be looked up.
func (r *run) late() error {
	err := r.c.cfg.late(r.entry)
	late, ok := errors.AsType[*onlyonce.Error](err)
	if !ok || r.maySent || r.c.cfg.sendable(r.entry) > 0 {
		return err
	}
	told := *late
	told.Hint = "nothing of it was ever sent, and its key is too old to be sent now: use another intent"
	if r.ended == Refused {
		told.Hint = "the server has refused it, and its key is too old to be sent again: use another intent"
	}
	return &told
}

// afford waits until the n-th attempt is within the budget.
func (r *run) afford(ctx context.Context, n int) error {
	r.ticket = nil
	if n == 0 && !r.resumed {
		r.c.budget.first(Origin(r.entry.Target))
		return nil
	}
	server := Origin(r.entry.Target)
	for try := 0; ; try++ {
		if t, ok := r.c.budget.take(server); ok {
			r.ticket = &t
			return nil
		}
		if err := r.sleep(ctx, r.backoff(try), errNoBudget); err != nil {
			return err
		}
	}
}

// attempt makes one.
func (r *run) attempt(ctx context.Context) Reply {
	r.observe(ctx, Event{Kind: EventSending})
	limit := min(r.c.cfg.AttemptTimeout, r.c.cfg.sendable(r.entry))
	actx, cancel := context.WithTimeoutCause(ctx, limit, errAttemptTimeout)
	defer cancel()
	sent := r.entry
	// A sender may change the header that it gets.
	sent.Header = http.Header(r.entry.Header).Clone()
	if sent.Header == nil {
		sent.Header = map[string][]string{}
	}
	maps.Copy(sent.Header, http.Header(r.secrets).Clone())
	r.last = r.c.sender.Send(actx, sent)
	if r.last.Verdict == Done || r.last.Verdict == Denied {
		if r.last.Answer == nil {
			r.last.Answer = &Answer{}
		}
		if r.ticket != nil {
			r.c.budget.giveBack(*r.ticket)
		}
	}
	return r.last
}

// pause waits after the n-th attempt, or says why there will be no other.
func (r *run) pause(ctx context.Context, n int) error {
	if n+1 >= r.c.cfg.Attempts {
		return fmt.Errorf("after %d attempts", r.c.cfg.Attempts)
	}
	wait := sum(max(r.last.RetryAfter, 0), r.backoff(n))
	return r.sleep(ctx, wait, nil)
}

func (r *run) backoff(try int) time.Duration {
	return backoff(try, r.c.cfg.BackoffBase, r.c.cfg.BackoffCap)
}

// sleep sleeps, or ends at once where that would be in vain.
func (r *run) sleep(ctx context.Context, wait time.Duration, why error) error {
	over := func(what string) error {
		if why != nil {
			return fmt.Errorf("%w, and the next try would be after %s", why, what)
		}
		return fmt.Errorf("the next attempt would be after %s", what)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if until, ok := ctx.Deadline(); ok && time.Until(until) <= wait {
		return over("the operation's time")
	}
	if r.c.cfg.sendable(r.entry) <= wait {
		return over("the server may have forgotten the key")
	}
	r.observe(ctx, Event{Kind: EventWaiting, Status: statusOf(r.last.Answer), Wait: wait, Err: errors.Join(why, r.last.Err)})
	if !sleep(ctx, wait) {
		return context.Cause(ctx)
	}
	return nil
}

// end records the server's final word, and returns it.
func (r *run) end(ctx context.Context, state State) (Outcome, error) {
	r.entry.State, r.entry.EndedAt = state, r.c.cfg.Now()
	r.entry.Answer, r.entry.Note = journaled(r.last.Answer), note(r.last.Err)
	out := r.outcome()
	if err := r.save(ctx); err != nil {
		return out, &UnrecordedError{
			Intent: out.Intent, Key: out.Key, Reference: out.Reference, Answer: out.Answer,
			Err: fmt.Errorf("record answer: %w", err),
		}
	}
	if state == Refused {
		return out, &RefusedError{Intent: out.Intent, Key: out.Key, Reference: out.Reference, Answer: out.Answer, Err: r.last.Err}
	}
	return out, nil
}

// giveUp records that there is no answer, and says what is known instead.
func (r *run) giveUp(ctx context.Context, why error) (Outcome, error) {
	err := why
	if r.last.Err != nil && !errors.Is(why, r.last.Err) {
		err = fmt.Errorf("%w; the last attempt: %w", why, r.last.Err)
	}
	if !r.maySent && r.unattended && r.c.cfg.sendable(r.entry) > 0 {
		return r.stayOpen(ctx, err)
	}
	if !r.maySent {
		return r.nothingLeft(ctx, err)
	}
	r.entry.Answer = cmp.Or(journaled(r.last.Answer), r.entry.Answer)
	r.entry.Note = note(err)
	return r.unknown(errors.Join(err, r.save(ctx)))
}

// nothingLeft records that this call has sent nothing, and nobody before that was not
// refused.
func (r *run) nothingLeft(ctx context.Context, err error) (Outcome, error) {
	stands := r.ended != Open && r.entry.State == r.ended && !r.unsure
	r.entry.State, r.entry.Note = NotSent, note(err)
	if r.ended == Refused {
		r.entry.State = Refused
	}
	if !stands {
		r.entry.EndedAt = r.c.cfg.Now()
		if failed := r.save(ctx); failed != nil {
			r.entry.State = Open
			return r.unknown(errors.Join(err, failed))
		}
	}
	out := outcomeOf(r.entry)
	if r.entry.State == Refused {
		err = fmt.Errorf("it was not asked again: %w", err)
		return out, &RefusedError{Intent: out.Intent, Key: out.Key, Reference: out.Reference, Answer: out.Answer, Err: err}
	}
	return out, &NotSentError{Intent: out.Intent, Key: out.Key, Err: err}
}

// stayOpen leaves to the next Resume what this one could not send: the caller's
// transaction has promised it. Without attempts it is still known that nothing has left.
func (r *run) stayOpen(ctx context.Context, err error) (Outcome, error) {
	err = fmt.Errorf("nothing has left yet, and it stays open: %w", err)
	r.entry.State, r.entry.Attempts, r.entry.Note = Open, 0, note(err)
	return r.unknown(errors.Join(err, r.save(ctx)))
}

func (r *run) unknown(err error) (Outcome, error) {
	out := r.outcome()
	return out, &UnknownError{Intent: out.Intent, Key: out.Key, Reference: out.Reference, Answer: out.Answer, Err: err}
}

// outcome is how it stands after this call's last attempt. The answer is the whole one,
// not what is kept of it.
func (r *run) outcome() Outcome {
	out := outcomeOf(r.entry)
	out.Replayed = r.last.Replayed
	if r.last.Answer != nil {
		out.Answer, out.Reference = r.last.Answer, r.last.Reference
	}
	return out
}

// save writes the entry, also when the operation's time is over.
func (r *run) save(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return r.lock.Save(ctx, r.entry)
}

func (r *run) observe(ctx context.Context, e Event) {
	e.Intent, e.Key, e.Attempt = r.entry.Intent, r.entry.Key, r.entry.Attempts
	r.c.cfg.Observe(ctx, e)
}

// journaled is what a journal keeps of an answer.
func journaled(a *Answer) *Answer {
	if a == nil || a.Header["Set-Cookie"] == nil {
		return a
	}
	kept := *a
	kept.Header = a.Header.Clone()
	delete(kept.Header, "Set-Cookie")
	return &kept
}

// note is an error for people who look at the journal, not too long.
func note(err error) string {
	if err == nil {
		return ""
	}
	text := []rune(err.Error())
	return string(text[:min(len(text), 1000)])
}
