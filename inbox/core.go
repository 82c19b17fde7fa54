package inbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// core is what both kinds of inbox have.
type core struct {
	engine *onlyonce.Engine
	cfg    Config
	op     onlyonce.Op
	// guard runs an operation whose claim is committed first: Engine.Wrap, or where a
	// redelivery goes on behind finished steps, Engine.Steps.
	guard func(context.Context, onlyonce.Op, onlyonce.Request, onlyonce.HandlerFunc) (onlyonce.Result, error)
	// resumes: guard is Engine.Steps.
	resumes bool
}

// newCore checks what an inbox needs.
func newCore(engine *onlyonce.Engine, cfg Config) (core, error) {
	if engine == nil {
		return core{}, configError("engine", "must not be nil")
	}
	if f := engine.Store().Features(); !f.Recovery || !f.Operators {
		return core{}, configError("engine", "needs a store that keeps requests and an audit, so that messages can be parked: %s does not", f.Name)
	}
	if err := cfg.Validate(); err != nil {
		return core{}, err
	}
	cfg = cfg.WithDefaults()
	return core{engine: engine, cfg: cfg, op: cfg.op()}, nil
}

// Consumer is the name of the inbox's consumer.
func (c *core) Consumer() string { return c.cfg.Consumer }

// handled is the answer that is stored for a message.
func handled() onlyonce.Answer { return onlyonce.Answer{Status: http.StatusNoContent} }

// delivery is one message on its way.
type delivery struct {
	*core
	msg Message
	key onlyonce.Key
}

func (c *core) delivery(msg Message) (delivery, error) {
	if msg.ID == "" {
		return delivery{}, &onlyonce.Error{
			Code: onlyonce.CodeKeyRequired, Op: "take message",
			Hint: "the message has no ID, so it cannot be told from its redelivery: take the publisher's, never one made on arrival",
		}
	}
	return delivery{core: c, msg: msg, key: KeyOf(c.cfg.Consumer, msg.ID)}, nil
}

// request is what the engine is asked for.
func (d delivery) request() onlyonce.Request {
	return onlyonce.Request{Key: d.key, Canonical: payload(d.msg.Payload)}
}

// verdict says what the end of a run means to the source.
func (d delivery) verdict(ctx context.Context, res onlyonce.Result, err error) (Verdict, error) {
	if err == nil && res.State == onlyonce.Completed {
		if res.Status == onlyonce.Replayed {
			return Duplicate, nil
		}
		return Handled, nil
	}
	switch onlyonce.CodeOf(err) {
	case onlyonce.CodeHandlerFailed:
		return d.failed(ctx, err)
	case onlyonce.CodeOutcomeUnknown:
		return d.doubtful(ctx, res, err)
	case onlyonce.CodeKeyReused:
		return d.reused(ctx, err)
	default:
		return Again, err
	}
}

// failed decides about a message whose handler has failed, and left no effect that is
// not recorded.
func (d delivery) failed(ctx context.Context, cause error) (Verdict, error) {
	rec, _, err := d.engine.Record(context.WithoutCancel(ctx), d.key)
	tries := max(rec.Attempts, 1)
	if err == nil && tries >= d.cfg.MaxTries {
		return d.park(ctx, d.afterTries(tries, cause))
	}
	return Again, d.again(cause, tries)
}

// again tells the source when to come back.
func (d delivery) again(cause error, tries int) *onlyonce.Error {
	e := &onlyonce.Error{
		Code: onlyonce.CodeOf(cause), Op: "handle message", Operation: d.key.Operation(), Err: reasonOf(cause),
		RetryAfter: d.pause(tries), Hint: fmt.Sprintf("try %d of %d; deliver it again", tries, d.cfg.MaxTries),
	}
	if inner, ok := errors.AsType[*onlyonce.Error](cause); ok {
		e.RetryAfter = max(e.RetryAfter, inner.RetryAfter)
	}
	return e
}

// pause is how long to wait after so many tries.
func (d delivery) pause(tries int) time.Duration {
	pause := d.cfg.Pause
	for ; tries > 1 && pause < d.cfg.MaxPause; tries-- {
		pause *= 2
	}
	return min(pause, d.cfg.MaxPause)
}

// reasonOf is the handler's own error in the engine's.
func reasonOf(err error) error {
	if e, ok := errors.AsType[*onlyonce.Error](err); ok && e.Err != nil {
		return e.Err
	}
	return err
}

// doubtful decides about a message whose key is in doubt. It is parked already, or
// nobody but a person can tell what became of it; where its steps can be asked,
// redeliveries do that first.
func (d delivery) doubtful(ctx context.Context, res onlyonce.Result, cause error) (Verdict, error) {
	if res.Status == "" && isHeld(reasonOf(cause).Error()) {
		return Parked, nil
	}
	ctx = context.WithoutCancel(ctx)
	rec, found, err := d.engine.Record(ctx, d.key)
	switch {
	case err != nil || !found || rec.State != onlyonce.InDoubt:
		return Again, cause // or somebody else has gone on with it
	case d.resumable(rec) && rec.Attempts < d.cfg.MaxTries:
		return Again, d.again(cause, rec.Attempts)
	case d.resumable(rec):
		return d.park(ctx, d.afterTries(rec.Attempts, cause))
	}
	has, err := d.isKept(ctx, d.key)
	switch {
	case err != nil:
		return Again, err
	case has:
		return Parked, nil
	default:
		return d.park(ctx, parking{key: d.key, resolve: true, cause: cause, why: "since its outcome is not known: "})
	}
}

// resumable tells whether a redelivery can find out what became of the steps.
func (d delivery) resumable(rec onlyonce.Record) bool {
	return d.resumes && rec.Abandon == onlyonce.AbandonResume && rec.Reason != onlyonce.ReasonDeclared && !isHeld(rec.Reason)
}

func isHeld(reason string) bool { return strings.HasPrefix(reason, onlyonce.ReasonHeld) }

// worn finds a message that has had all its tries although nobody has said how the
// last of them ended: it may be the death of its consumers, so it is not run again.
func (d delivery) worn(ctx context.Context) (rec onlyonce.Record, worn bool, err error) {
	rec, found, err := d.engine.Record(ctx, d.key)
	if err != nil || !found || rec.Attempts < d.cfg.MaxTries {
		return rec, false, err
	}
	switch rec.State {
	case onlyonce.InProgress:
		return rec, true, nil
	case onlyonce.InDoubt:
		return rec, !isHeld(rec.Reason), nil
	case onlyonce.FailedRetryable:
		return rec, rec.Reason == onlyonce.ReasonSweptFree, nil
	case onlyonce.Completed:
	}
	return rec, false, nil
}

// wornOut parks a message that is worn; done is false where it may run.
func (d delivery) wornOut(ctx context.Context) (verdict Verdict, done bool, err error) {
	rec, worn, err := d.worn(ctx)
	switch {
	case err != nil:
		return Again, true, unread("read message's record", d.key, err)
	case !worn:
		return Again, false, nil
	}
	verdict, err = d.park(ctx, d.afterTries(rec.Attempts, &onlyonce.Error{Code: onlyonce.CodeHandlerFailed, Err: errNoEnd}))
	return verdict, true, err
}

// errNoEnd is all that is known of a try that ended with its process.
var errNoEnd = errors.New("the last try did not come to an end")

// isKept tells whether a message is in the store.
func (c *core) isKept(ctx context.Context, key onlyonce.Key) (bool, error) {
	_, has, err := readKept(ctx, c.engine.Store(), key)
	if err != nil {
		return false, unread("read what is kept", key, err)
	}
	return has, nil
}

// unread says that the store could not be read.
func unread(op string, key onlyonce.Key, err error) *onlyonce.Error {
	return &onlyonce.Error{
		Code: onlyonce.CodeStoreUnavailable, Op: op, Operation: key.Operation(), RetryAfter: time.Second, Err: err,
		Hint: "nothing was run; deliver it again",
	}
}

// reused parks a message whose id was used for another payload (rule I3).
func (d delivery) reused(ctx context.Context, cause error) (Verdict, error) {
	return d.park(ctx, parking{
		key: otherKey(d.cfg.Consumer, d.msg), other: true, cause: cause,
	})
}

// parking is how a message comes to be parked.
type parking struct {
	key onlyonce.Key
	// resolve: the key may be in doubt already.
	resolve bool
	// other: the id was used for another payload.
	other bool
	why   string
	cause error
}

// afterTries parks a message that fails again and again.
func (d delivery) afterTries(tries int, cause error) parking {
	return parking{key: d.key, resolve: true, cause: cause, why: fmt.Sprintf("after %d tries: ", tries)}
}

// reason is what is recorded with the key.
func (p parking) reason() string {
	if p.other {
		return reasonOther
	}
	return "parked " + p.why + short(reasonOf(p.cause).Error(), maxReasonError)
}

// errParked ends a run that is only there to park.
var errParked = errors.New("parked")

// park keeps the message for a person. Its payload is in the store before the key is in
// doubt, so a crash in between leaves both to a redelivery, or parked.
func (d delivery) park(ctx context.Context, p parking) (Verdict, error) {
	text, err := keep(d.msg, kept{Error: reasonOf(p.cause).Error(), Other: p.other})
	if err != nil {
		return Again, err
	}
	req := d.request()
	req.Key, req.Keep, req.Resolve = p.key, text, p.resolve
	req.Hold = func(error) string { return p.reason() }
	res, err := d.guard(context.WithoutCancel(ctx), d.op, req, func(context.Context) (onlyonce.Answer, error) {
		return onlyonce.Answer{}, errParked
	})
	switch {
	case res.State == onlyonce.InDoubt:
		return Parked, d.parked(p)
	case err == nil:
		return Duplicate, nil // it was handled, or dropped, meanwhile
	case onlyonce.CodeOf(err) == onlyonce.CodeOutcomeUnknown:
		return Parked, nil // from before
	case onlyonce.CodeOf(err) == onlyonce.CodeKeyReused && !p.other:
		return d.reused(ctx, err)
	default:
		return Again, err
	}
}

// parked is why a message was parked by this delivery.
func (d delivery) parked(p parking) *onlyonce.Error {
	e := &onlyonce.Error{
		Code: onlyonce.CodeOf(p.cause), Op: "park message", Operation: p.key.Operation(), Err: reasonOf(p.cause),
		Hint: "it waits for a person; onlyonce inbox list shows it",
	}
	if p.other {
		e.Hint = reasonOther + "; it is not handled, and waits for a person; onlyonce inbox list shows it"
	}
	return e
}
