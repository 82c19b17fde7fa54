package onlyonce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"
)

// Effect is something a step does outside the store.
type Effect struct {
	// Name is the step's name; a name may be used several times in a run, and
	// each use is a step of its own, told apart by its order. The steps of a run
	// come one after the other, never two at once or one inside the other: by
	// their order a handler is known to be the one that recorded them.
	Name string
	// Provider is who is called. It is part of the derived key.
	Provider string
	// Request is the bytes that are sent. They are recorded before the first
	// leaves, and a resumed step that would send others is refused.
	Request []byte
	// Send calls the provider once, with a context that ends with the lease as
	// it stands when the intent is recorded. An error is taken for "unknown",
	// unless it is marked with NotAppliedError; on a repeated send it always
	// is, since it says nothing of the earlier ones. A provider's final
	// refusal (a declined card) is a result, not an error.
	Send func(ctx context.Context, s Sending) ([]byte, error)
	// Check asks the provider by Sending.Reference what became of earlier
	// sends; nil when it cannot be asked. After an error the same bytes are sent
	// again where Memory allows it, unless it is ErrOutcomeUnknown: then what
	// was found is for a person to look at.
	Check func(ctx context.Context, s Sending) (result []byte, found bool, err error)
	// Memory is how long the provider remembers the derived key and answers a
	// repeated send with the first result; 0 when it does not.
	Memory time.Duration
	// Visible is how long after a send the effect may take to be seen by
	// Check. "Not found" proves something only later than that. 0 means that
	// it never does.
	Visible time.Duration
}

// Sending is what Send and Check are given.
type Sending struct {
	// Key is the derived idempotency key for the provider (rule D1).
	Key string
	// Reference is our own name for the effect, to be sent with it.
	Reference string
	// Request is the recorded bytes.
	Request []byte
	// Deadline is the moment, on this process's monotonic clock, after which
	// nothing may leave any more: whoever asks the provider later counts on it
	// (rule D5). Zero in Check, which sends nothing.
	Deadline time.Time
}

type sendingKey struct{}

// SendingFrom is the send that a context belongs to, for transports: the one
// that Effect.Send was given. false outside of Effect.Send.
func SendingFrom(ctx context.Context) (Sending, bool) {
	s, ok := ctx.Value(sendingKey{}).(*sendingValue)
	if !ok || s == nil {
		return Sending{}, false
	}
	return s.Sending, true
}

// sendingValue is one call of Effect.Send.
type sendingValue struct {
	Sending
	notes sync.Map
}

// SendNotes is where transports note what they know of one call of Effect.Send, by
// keys of their own types: several of them may be used in it. nil outside of one.
func SendNotes(ctx context.Context) *sync.Map {
	s, ok := ctx.Value(sendingKey{}).(*sendingValue)
	if !ok || s == nil {
		return nil
	}
	return &s.notes
}

// NotAppliedError marks an error of Send as the provider's documented word that
// nothing happened, or as proof that no byte left. Nothing else may be marked.
func NotAppliedError(err error) error { return &notAppliedError{err} }

// IsNotApplied tells whether an error of Call or Step proves that the step had
// no effect over all its sends. The refusal of a later send is a cause of doubt,
// not such a proof.
func IsNotApplied(err error) bool {
	marked := proofIn(err)
	if marked == nil {
		return false
	}
	outer, _ := errors.AsType[*Error](err)
	inner, _ := errors.AsType[*Error](marked.error)
	return outer == inner // no verdict of ours stands before the mark
}

type notAppliedError struct{ error }

// proofIn finds the mark of NotAppliedError. Of several errors that were joined each
// must bear it: one that is not marked may be of a send that had an effect.
func proofIn(err error) *notAppliedError {
	if marked, ok := err.(*notAppliedError); ok { //nolint:errorlint // each link is looked at
		return marked
	}
	switch e := err.(type) { //nolint:errorlint // each link is looked at
	case interface{ Unwrap() error }:
		return proofIn(e.Unwrap())
	case interface{ Unwrap() []error }:
		var marked *notAppliedError
		for _, branch := range e.Unwrap() {
			if marked = proofIn(branch); marked == nil {
				return nil
			}
		}
		return marked
	default:
		return nil
	}
}

// RefusalError is what a provider has said when it refused, recorded with the step: a
// handler that went on from there, to another provider say, gets the same again
// when it is resumed. Send returns it inside NotAppliedError.
type RefusalError struct {
	// Result is the refusal in the words of the caller of Call.
	Result []byte
	// Err is the provider's error; nil when it was recorded by an earlier run.
	Err error
}

// Error says that the provider refused.
func (r *RefusalError) Error() string {
	if r.Err == nil {
		return "refused when it was tried before"
	}
	return r.Err.Error()
}

// Unwrap returns Err.
func (r *RefusalError) Unwrap() error { return r.Err }

func (n *notAppliedError) Unwrap() error { return n.error }

// ReferenceFor is what Sending.Reference will be in the next Call with this
// step's name and provider, for a request that has to contain it. It is empty
// outside a protected handler.
func ReferenceFor(ctx context.Context, step, provider string) string {
	a := AttemptFrom(ctx)
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return Derivation{Key: a.owner.Key, Step: step, Occurrence: a.log.seen[step], Provider: provider}.Reference()
}

// Call performs an external effect at most once over all attempts at the key
// and returns its result: the recorded one if there is one. The intent is
// committed before Send is called. When an earlier send's outcome is not
// known, Check is asked; else, while the provider remembers the derived key,
// the same bytes are sent again under it; else ErrOutcomeUnknown is returned,
// and the key goes in doubt when the handler returns (rule D4).
//
// A step that was proved to have had no effect is sent again under a new derived
// key, unless an effect is recorded behind it: the handler went on from there,
// and gets the same again, an error for which IsNotApplied is true.
//
// It needs a handler run by Engine.Steps. It refuses with ErrInTx while a
// transaction is open: no network inside a transaction.
func Call(ctx context.Context, effect Effect) ([]byte, error) {
	a := AttemptFrom(ctx)
	if err := effect.validate(); err != nil {
		return nil, err
	}
	if a == nil {
		return nil, configError("Call", "needs a handler that is run by Engine.Steps")
	}
	id, prior, err := a.enter(effect.Name)
	if err != nil {
		return nil, err
	}
	defer a.leave()
	call := &effectCall{Effect: effect, a: a, id: id}
	if prior == nil {
		return call.send(ctx, 0)
	}
	return call.resume(ctx, prior)
}

// validate refuses what no store could keep.
func (e Effect) validate() error {
	for field, text := range map[string]string{"Effect.Name": e.Name, "Effect.Provider": e.Provider} {
		if !printableName(text) {
			return configError(field, "must have 1 to 255 printable characters")
		}
	}
	if e.Provider == ProviderStore {
		return configError("Effect.Provider", "must not be %q, which is what StepTx records", ProviderStore)
	}
	if e.Send == nil {
		return configError("Effect.Send", "must not be nil")
	}
	return nil
}

func validStepName(name string) error {
	if !printableName(name) {
		return configError("step name", "must have 1 to 255 printable characters")
	}
	return nil
}

func printableName(text string) bool {
	return text != "" && len(text) <= 255 && !hasControl(text) && utf8.ValidString(text)
}

// effectCall is one Call on its way.
type effectCall struct {
	Effect
	a  *Attempt
	id stepID
}

func (c *effectCall) sending(epoch int) Sending {
	d := Derivation{Key: c.a.owner.Key, Step: c.id.name, Occurrence: c.id.occurrence, Provider: c.Provider, Epoch: epoch}
	return Sending{Key: d.DerivedKey(), Reference: d.Reference(), Request: c.Request}
}

// resume continues a recorded step (rule D4).
func (c *effectCall) resume(ctx context.Context, prior *StepRecord) ([]byte, error) {
	switch {
	case prior.State == StepNotApplied: // nothing is left of it: it may be another now
	case prior.Provider != c.Provider:
		return nil, c.a.changedTo(fmt.Sprintf("step %q calls %s, the recorded one called %s", c.Name, c.Provider, prior.Provider))
	case !bytes.Equal(prior.Request, c.Request):
		return nil, c.a.changedTo(fmt.Sprintf("step %q would send something else than its recorded intent", c.Name))
	}
	switch prior.State {
	case StepDone:
		return prior.Result, nil
	case StepNotApplied:
		if next, on := c.a.wentOn(); on {
			// The run that recorded it took this for an answer: sending now
			// could have a second effect beside that of what came after it.
			err := fmt.Errorf("step %v had no effect when it was tried, and step %v was begun after it", c.id, next)
			if len(prior.Result) > 0 {
				err = fmt.Errorf("%w: %w", err, &RefusalError{Result: prior.Result})
			}
			return nil, NotAppliedError(err)
		}
		return c.send(ctx, prior.Epoch+1)
	case StepBegun:
	}
	sending := Sending{Key: prior.DerivedKey, Reference: prior.Reference, Request: prior.Request}
	result, verdict, err := c.check(ctx, prior, sending)
	switch verdict {
	case checkFound:
		return c.end(ctx, StepDone, result)
	case checkAbsent:
		if _, err := c.end(ctx, StepNotApplied, nil); err != nil {
			return nil, err
		}
		return c.resume(ctx, c.a.recorded(c.id))
	case checkUnknown:
		if errors.Is(err, ErrOutcomeUnknown) {
			return nil, c.unknown(err)
		}
	}
	if _, on := c.a.wentOn(); on {
		return nil, c.unknown(err) // beside what came after it, sending could have a second effect
	}
	// The provider's memory is counted from the first send, as long as it may
	// have been on its way, plus the time this send may still take.
	age := prior.Age + now().Sub(c.a.read) + c.sendWithin()
	if age < c.Memory-min(c.Memory/10, time.Minute) {
		result, err := c.transmit(ctx, prior.Epoch, sending)
		if isNotApplied(err) {
			// It speaks of this send; of the earlier ones it proves nothing.
			return nil, c.unknown(err)
		}
		return result, err
	}
	return nil, c.unknown(err)
}

type checkVerdict uint8

const (
	checkUnknown checkVerdict = iota
	checkFound
	checkAbsent
)

// check asks the provider. "Not found" is proof only later than the last send
// could have left plus the time the provider takes to show it.
func (c *effectCall) check(ctx context.Context, prior *StepRecord, s Sending) ([]byte, checkVerdict, error) {
	if c.Check == nil {
		return nil, checkUnknown, nil
	}
	result, found, err := c.Check(ctx, s)
	switch {
	case err != nil:
		return nil, checkUnknown, err
	case found:
		return result, checkFound, nil
	case c.Visible > 0 && prior.Idle > prior.SendWithin+c.Visible:
		return nil, checkAbsent, nil
	}
	return nil, checkUnknown, nil
}

// sendWithin is how long from now the bytes may still leave: within the lease.
func (c *effectCall) sendWithin() time.Duration { return c.a.leaseLeft() }

// send begins an epoch: the first send of a new derived key. A documented "not
// applied" is then proof, and ends the step for this attempt.
func (c *effectCall) send(ctx context.Context, epoch int) ([]byte, error) {
	result, err := c.transmit(ctx, epoch, c.sending(epoch))
	if isNotApplied(err) {
		var said []byte
		if refusal, ok := errors.AsType[*RefusalError](err); ok {
			said = refusal.Result
		}
		if _, err := c.end(ctx, StepNotApplied, said); err != nil {
			return nil, err
		}
	}
	return result, err
}

// transmit records the intent, then sends. An error is unknown's, or marked as
// not applied by Send.
func (c *effectCall) transmit(ctx context.Context, epoch int, s Sending) ([]byte, error) {
	within := c.sendWithin()
	deadline := now().Add(within)
	intent := Intent{
		Name: c.id.name, Occurrence: c.id.occurrence, Provider: c.Provider, Epoch: epoch,
		DerivedKey: s.Key, Reference: s.Reference, Request: s.Request, SendWithin: max(within, 0),
	}
	if err := c.begin(ctx, intent); err != nil {
		return nil, err
	}
	// Nothing may leave later than the intent says, however long a connection
	// takes: whoever checks afterwards counts on it.
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if ctx.Err() != nil {
		// Slept through the lease, or was told to stop: nothing is sent, but
		// the mark stands, so somebody else will ask first.
		return nil, c.unknown(context.Cause(ctx))
	}
	s.Deadline = deadline
	result, err := c.Send(context.WithValue(ctx, sendingKey{}, &sendingValue{Sending: s}), s)
	switch {
	case err == nil:
		return c.end(ctx, StepDone, result)
	case isNotApplied(err):
		return nil, err
	default:
		return nil, c.unknown(err)
	}
}

func isNotApplied(err error) bool { return proofIn(err) != nil }

// begin commits the intent and notes it as unfinished.
func (c *effectCall) begin(ctx context.Context, intent Intent) error {
	store := c.a.e.store.(StepStore) //nolint:forcetypeassert // Engine.Steps checked it
	var held bool
	uncertain, err := c.a.e.repeat(ctx, func(ctx context.Context) error {
		var err error
		held, err = store.BeginStep(ctx, c.a.owner, intent)
		return err
	})
	switch {
	case err != nil && uncertain:
		c.a.note(c.id, &StepRecord{Intent: intent, State: StepBegun})
		return c.unknown(err)
	case err != nil:
		return unavailable("begin step "+c.Name, err)
	case !held:
		return &Error{Code: CodeLeaseLost, Op: "begin step " + c.Name, Operation: c.a.Operation(), Hint: "another attempt owns the key"}
	}
	c.a.note(c.id, &StepRecord{Intent: intent, State: StepBegun})
	return nil
}

// end records how the step ended. The effect has happened or provably not, so
// it is insisted on; if it cannot be recorded the step stays unfinished.
func (c *effectCall) end(ctx context.Context, state StepState, result []byte) ([]byte, error) {
	store := c.a.e.store.(StepStore) //nolint:forcetypeassert // Engine.Steps checked it
	var held bool
	err := c.a.e.insist(context.WithoutCancel(ctx), func(ctx context.Context) error {
		var err error
		held, err = store.EndStep(ctx, c.a.owner, StepEnd{Name: c.id.name, Occurrence: c.id.occurrence, State: state, Result: result})
		return err
	})
	if err != nil {
		return nil, c.unknown(fmt.Errorf("record end of step %s: %w", c.Name, err))
	}
	if !held {
		if state == StepDone {
			c.compare(context.WithoutCancel(ctx), result)
		}
		return nil, &Error{Code: CodeLeaseLost, Op: "end step " + c.Name, Operation: c.a.Operation(), Hint: "another attempt owns the key"}
	}
	c.a.ended(c.id, state, result)
	return result, nil
}

// compare raises the alarm when the key was taken from the attempt and its step
// settled otherwise than the provider says now. A step that is still open, or
// ended the same way, is no contradiction: its present owner asks too.
func (c *effectCall) compare(ctx context.Context, result []byte) {
	ctx, cancel := context.WithTimeout(ctx, c.a.e.cfg.SettleTimeout)
	defer cancel()
	mine := c.a.recorded(c.id)
	// Steps that cannot be read are taken for contrary: better one alarm too many.
	steps, _ := c.a.e.store.(StepStore).Steps(ctx, c.a.owner.Key) //nolint:forcetypeassert // Engine.Steps checked it
	for _, s := range steps {
		same := s.State == StepBegun || (s.State == StepDone && bytes.Equal(s.Result, result))
		if s.Name == c.id.name && s.Occurrence == c.id.occurrence && s.Epoch == mine.Epoch && same {
			return
		}
	}
	c.a.e.cfg.Observer.Observe(ctx, Event{
		Kind: EventContradiction, Op: c.a.op.Name, Operation: c.a.Operation(), Fence: c.a.owner.Fence, Attempt: c.a.owner.Attempt,
		Reason: fmt.Sprintf("step %v was settled otherwise while its result was on its way; compare both with the provider", c.id),
	})
}

func (c *effectCall) unknown(err error) error {
	return &Error{
		Code: CodeOutcomeUnknown, Op: "step " + c.Name, Operation: c.a.Operation(), Err: err,
		Hint: "whether the provider acted is not known; return this error as it is",
	}
}
