package onlyonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// claimant is one request on its way to a key.
type claimant struct {
	job
	e     *Engine
	form  Form // under the operation's present policy
	claim ClaimRequest
	// why is why the key was in doubt that the claim is to resolve.
	why string
	// until is when the request stops waiting for its key; zero: it has not begun to.
	until time.Time
	// place is where it waits; nil: nowhere.
	place *waitedKey
	// sent: it was the one of those who wait that was sent to ask.
	sent bool
	// judged: the store has given a verdict on the key.
	judged bool
	// recovering: what runs under the key is the operation's Recover function.
	recovering bool
}

func (e *Engine) newClaimant(ctx context.Context, j job) (*claimant, error) {
	op, req := j.op, j.req
	if err := req.Key.Validate(); err != nil {
		return nil, err
	}
	if req.Canonical == nil {
		return nil, configError("Request.Canonical", "must not be nil: without a canonical form no request can be told from another")
	}
	c := &claimant{job: j, e: e}
	c.claim = ClaimRequest{
		Key: req.Key, Operation: op.Name, Attempt: NewToken(),
		Lease: op.Lease, Retention: op.Retention, Abandon: op.abandon(j.mode),
		Resource: req.Resource,
	}
	if err := c.optional(); err != nil {
		return nil, err
	}
	form, err := req.Canonical.Form(req.Canonical.Version(), op.Policy)
	if err != nil {
		return nil, &Error{Code: CodeConfig, Op: "fingerprint request", Hint: "the operation's fingerprint policy cannot be applied", Err: err}
	}
	c.form = form
	vctx, cancel := context.WithTimeout(ctx, e.cfg.StoreTimeout)
	defer cancel()
	secret, err := e.vault.current(vctx)
	if err != nil {
		return c, err
	}
	policy, err := e.vault.keep(vctx, op.Policy)
	if err != nil {
		return c, err
	}
	version := FingerprintVersion{Form: req.Canonical.Version(), Secret: secret.ID, Policy: policy}
	c.claim.Fingerprint = seal(secret, version, c.identity(), form)
	return c, nil
}

// optional takes over what only some stores and modes can do.
func (c *claimant) optional() error {
	f := c.e.store.Features()
	if c.req.Resource != "" && (c.mode == modeAtomic || !f.Resources) {
		return configError("Request.Resource", "needs Steps or Wrap and a store that guards resources: %s, in a transaction lock the business row instead", f.Name)
	}
	if !validResource(c.req.Resource) {
		return &Error{
			Code: CodeInvalidRequest, Op: "check resource", Operation: c.req.Key.Operation(),
			Hint: fmt.Sprintf("the name of the resource must have at most %d printable characters; the key was not used", maxResource),
		}
	}
	if (c.mode == modeSteps || c.req.Hold != nil) && f.Recovery {
		c.claim.Keep = c.req.Keep
	}
	return c.holding()
}

// holding takes over what a request says that must not be let go.
func (c *claimant) holding() error {
	switch f := c.e.store.Features(); {
	case c.req.Hold == nil && c.req.Resolve:
		return configError("Request.Resolve", "needs Hold: what fails must be in doubt again")
	case c.req.Hold == nil:
	case c.mode == modeAtomic:
		return configError("Request.Hold", "needs Steps or Wrap: in atomic mode a failure leaves nothing that could be held")
	case c.req.Keep != nil && !f.Recovery:
		return configError("Request.Hold", "needs a store that keeps requests: %s does not", f.Name)
	default:
		c.claim.Abandon = AbandonHold
	}
	return nil
}

func (c *claimant) identity() identity { return identity{key: c.req.Key, operation: c.op.Name} }

// again prepares for another claim by a new attempt.
func (c *claimant) again() {
	c.claim.Attempt = NewToken()
	c.claim.Resolve, c.claim.Doubt = false, 0
}

// maxRounds bounds how often a claim is reconsidered: once each for a
// fingerprint of another version, an abandoned key to be parked, a key in
// doubt to be resolved, an abandoned holder of the resource to be decided, and
// for losing a race in between.
const maxRounds = 6

// acquire claims the key. It returns a claim that owns the key or holds an
// answer to replay; everything else is a refusal. asked is a moment before the
// store was asked: a lease is trusted from there on.
func (c *claimant) acquire(ctx context.Context) (claim Claim, asked time.Time, err error) {
	defer c.leave()
	for round := 0; round < maxRounds; round++ {
		claim, asked, err = c.claimOnce(ctx)
		if err != nil {
			return Claim{}, asked, err
		}
		if claim.Verdict == Busy && c.await(ctx) {
			round = -1 // what stands in its way now may be something else
			continue
		}
		done, err := c.consider(ctx, claim)
		if err != nil {
			return Claim{}, asked, err
		}
		if done {
			return claim, asked, nil
		}
	}
	c.report()
	if claim.Verdict == ResourceBusy {
		return Claim{}, asked, c.heldByAnother(claim)
	}
	return Claim{}, asked, c.busy(claim)
}

// consider tells whether a claim is decided. false: what stood in its way has
// been dealt with, claim again. An error is the refusal. Whatever gives no right to the
// key is reported to those who still wait for it.
func (c *claimant) consider(ctx context.Context, claim Claim) (done bool, err error) {
	done, err = c.weigh(ctx, claim)
	if err != nil || done && claim.Verdict == Replay {
		c.report()
	}
	return done, err
}

// weigh is consider without its report.
func (c *claimant) weigh(ctx context.Context, claim Claim) (done bool, err error) {
	switch claim.Verdict {
	case Won, Resumed:
		if c.req.Hold != nil && c.claim.Abandon == AbandonResume {
			return false, c.seize(ctx, claim.Record.Owner())
		}
		return true, nil
	case Replay:
		return true, nil
	case Busy:
		return false, c.busy(claim)
	case Mismatch:
		return false, c.reconsider(ctx, claim.Record)
	case Abandoned:
		return false, c.park(ctx, claim.Record)
	case Doubtful:
		return false, c.resolve(claim.Record)
	case ResourceBusy:
		return false, c.resourceBusy(ctx, claim)
	default:
		return false, unavailable("claim key", errors.New("the store gave no verdict"))
	}
}

// claimOnce asks the store, repeating what is safe to repeat.
func (c *claimant) claimOnce(ctx context.Context) (claim Claim, asked time.Time, err error) {
	limited, cancel := context.WithTimeout(ctx, c.e.cfg.StoreTimeout)
	defer cancel()
	uncertain, err := c.e.repeat(limited, func(ctx context.Context) error {
		var err error
		asked = now()
		claim, err = c.e.store.Claim(ctx, c.claim)
		return err
	})
	if err == nil {
		c.judged = true
		return claim, asked, nil
	}
	if uncertain {
		// The claim may stand, and is about to be given back: nobody may run
		// beside it.
		c.judged = true
		c.undoClaim(ctx)
	}
	if ctx.Err() == nil && !errors.Is(err, ErrMisdirected) {
		c.observe(ctx, Event{Kind: EventStoreFailed, Err: err}) // else the caller hung up, or is wrong here: no fault of the store's
	}
	return Claim{}, asked, unavailable("claim key", err)
}

// undoPause is the longest pause between two tries to give a claim back.
const undoPause = 5 * time.Second

// undoClaim gives back a claim that may have been made although the store's
// reply was lost and the caller was told that nothing ran. Without this the
// key would look like a crashed attempt.
func (c *claimant) undoClaim(ctx context.Context) {
	c.e.behind(ctx, undoPause, func(ctx context.Context) error {
		claim, err := c.e.store.Claim(ctx, c.claim)
		if errors.Is(err, ErrMisdirected) {
			return nil // the key is not here, and neither is the claim
		}
		if err != nil || !claim.Verdict.Owns() {
			return err
		}
		return c.e.giveBack(ctx, claim, c.why)
	})
}

// giveBack undoes a claim under which nothing ran: the key is again as it was.
// A taken-over attempt is left to its lease, as the crashed one was. doubt is why it
// was in doubt, if that is known.
func (e *Engine) giveBack(ctx context.Context, claim Claim, doubt string) (err error) {
	switch claim.From {
	case InProgress:
	case InDoubt:
		_, err = e.store.Park(ctx, ParkRequest{Owner: claim.Record.Owner(), Reason: cmp.Or(doubt, ReasonNotRun)})
	default:
		_, err = e.store.Release(ctx, claim.Record.Owner(), ReasonNotRun)
	}
	return err
}

// reconsider decides a mismatch: a record of another version is compared under
// the version it was written with, and claimed again under that if it is the
// same request.
func (c *claimant) reconsider(ctx context.Context, rec Record) error {
	form, secret, err := c.formFor(ctx, rec)
	if err != nil {
		return err
	}
	fp := seal(secret, rec.Fingerprint.Version, c.identity(), form)
	if fp.Equal(rec.Fingerprint) {
		c.claim.Fingerprint = fp
		return nil
	}
	reused := &Error{
		Code: CodeKeyReused, Op: "claim key", Operation: c.req.Key.Operation(),
		Hint: "the key was used for another request; send this one with a new key",
	}
	if !c.e.named.allow(c.req.Key.Scope) {
		return reused
	}
	if reused.Differs, err = differs(secret, c.identity(), rec.Fingerprint.Parts, form); err != nil {
		return unavailable("compare fingerprints", err)
	}
	if len(reused.Differs) == 0 || rec.Operation != c.op.Name {
		reused.Differs = append(reused.Differs, "operation")
	}
	return reused
}

// formFor is the request's form, and the secret, as a record was written.
func (c *claimant) formFor(ctx context.Context, rec Record) (Form, Secret, error) {
	v := rec.Fingerprint.Version
	secret, err := c.e.vault.secret(ctx, v.Secret)
	if err != nil {
		return nil, Secret{}, err
	}
	if v.Form == c.req.Canonical.Version() && v.Policy == PolicyID(c.op.Policy) {
		return c.form, secret, nil
	}
	policy, err := c.e.vault.policy(ctx, v.Policy)
	if err != nil {
		return nil, Secret{}, err
	}
	form, err := c.req.Canonical.Form(v.Form, policy)
	if err != nil {
		return nil, Secret{}, &Error{
			Code: CodeStoreUnavailable, Op: "fingerprint request as the record was", RetryAfter: time.Second, Err: err,
			Hint: "the record was written by a version of this service that knows more; ask that one",
		}
	}
	return form, secret, nil
}

// park puts somebody else's crashed attempt in doubt. Losing that race is
// fine: the next claim sees what became of the key.
func (c *claimant) park(ctx context.Context, rec Record) error {
	_, err := c.e.repeat(ctx, func(ctx context.Context) error {
		_, err := c.e.store.Park(ctx, ParkRequest{Owner: rec.Owner(), Reason: ReasonAbandoned, LeaseOver: true})
		return err
	})
	if err != nil {
		return unavailable("park key", err)
	}
	c.observe(ctx, Event{Kind: EventParked, Fence: rec.Fence, Attempt: rec.Attempt, Reason: ReasonAbandoned})
	return nil
}

// resolve asks for a key in doubt if this operation can settle it: steps by
// their recorded intents, a wrapped handler by its Recover function.
// A key that is free, and was last run in steps, is given to steps only: see seize.
func (c *claimant) resolve(rec Record) error {
	if c.req.Hold != nil && c.mode == modeSteps && rec.State == FailedRetryable && c.claim.Abandon == AbandonHold {
		c.claim.Abandon = AbandonResume
		return nil
	}
	if rec.State != InDoubt || !c.resolvable(rec) || c.claim.Doubt == rec.Fence {
		return c.doubt(rec)
	}
	c.claim.Resolve, c.claim.Doubt, c.why = true, rec.Fence, rec.Reason
	if c.req.Hold != nil {
		c.claim.Abandon = AbandonHold
	}
	return nil
}

// seize puts a key in doubt that was claimed to go on behind its steps, so that it can
// be claimed to be held: a crash from then on leaves it in doubt, one before that leaves
// it free, as it was. Whoever comes in between may leave another doubt, which is not
// this request's to resolve.
func (c *claimant) seize(ctx context.Context, owner Owner) error {
	limited, cancel := context.WithTimeout(ctx, c.e.cfg.StoreTimeout)
	defer cancel()
	_, err := c.e.repeat(limited, func(ctx context.Context) error {
		_, err := c.e.store.Park(ctx, ParkRequest{Owner: owner, Reason: ReasonNotRun})
		return err
	})
	if err != nil {
		c.undoClaim(ctx)
		return unavailable("hold key", err)
	}
	c.again()
	c.claim.Abandon, c.claim.Resolve, c.claim.Doubt, c.why = AbandonHold, true, owner.Fence, ReasonNotRun
	return nil
}

// resolvable tells whether this operation can settle a key in doubt by itself.
func (c *claimant) resolvable(rec Record) bool {
	switch {
	case c.req.Resolve:
		return true
	case strings.HasPrefix(rec.Reason, ReasonHeld):
		return false
	case c.mode == modeSteps:
		return rec.Abandon == AbandonResume && rec.Reason != ReasonDeclared
	default:
		return c.mode == modeWrap && c.op.Recover != nil
	}
}

// doubtRetryAfter is when to come back for a key in doubt.
const doubtRetryAfter = 5 * time.Second

func (c *claimant) doubt(rec Record) *Error {
	e := &Error{
		Code: CodeOutcomeUnknown, Op: "claim key", Operation: c.req.Key.Operation(), RetryAfter: doubtRetryAfter,
		Hint: "whether the operation took effect is not known yet; ask again later with the same key, never with a new one",
	}
	if !c.resolvable(rec) {
		e.Hint = "whether the operation took effect is not known, and the service's operators have to find out; ask again later with the same key, never with a new one"
	}
	if rec.Reason != "" {
		e.Err = errors.New(rec.Reason)
	}
	return e
}

// busy refuses because another attempt is running. When to come back: at least
// a second, and no longer than the lease (rule C2).
func (c *claimant) busy(claim Claim) *Error {
	wait := min(max(claim.Remaining/4, time.Second), max(c.op.Lease, time.Second))
	return &Error{
		Code: CodeInProgress, Op: "claim key", Operation: c.req.Key.Operation(), RetryAfter: wait,
		Hint: "the first request with this key is still running; send the same request again later",
	}
}

func (c *claimant) replay(ctx context.Context, rec Record) Result {
	status := Replayed
	if rec.Attempt == c.claim.Attempt {
		// This very attempt's answer: its store's first reply was lost.
		status = Executed
	}
	c.observe(ctx, Event{Kind: EventReplayed, Fence: rec.Fence, Attempt: rec.Attempt})
	return Result{
		Answer: *rec.Answer, Status: status, State: Completed,
		ExpiresAt: rec.ExpiresAt, Fence: rec.Fence, Attempt: rec.Attempt,
	}
}

// peek answers from the record without claiming.
func (c *claimant) peek(ctx context.Context) (Result, bool, error) {
	var rec Record
	var found bool
	ctx, cancel := context.WithTimeout(ctx, c.e.cfg.StoreTimeout)
	defer cancel()
	_, err := c.e.repeat(ctx, func(ctx context.Context) error {
		var err error
		rec, found, err = c.e.store.Get(ctx, c.req.Key)
		return err
	})
	switch {
	case err != nil:
		return Result{}, false, unavailable("read key", err)
	case !found:
		return Result{}, false, nil
	}
	if !rec.Fingerprint.Equal(c.claim.Fingerprint) {
		if err := c.reconsider(ctx, rec); err != nil {
			return Result{}, true, err
		}
	}
	switch rec.State {
	case Completed:
		return c.replay(ctx, rec), true, nil
	case InDoubt:
		return Result{}, true, c.doubt(rec)
	case InProgress:
		return Result{}, true, c.busy(Claim{})
	case FailedRetryable:
	}
	return Result{}, false, nil
}

func (c *claimant) observe(ctx context.Context, ev Event) {
	ev.Op, ev.Operation = c.op.Name, c.req.Key.Operation()
	c.e.cfg.Observer.Observe(ctx, ev)
	switch ev.Kind {
	case EventCompleted:
		c.e.wake(c.req.Key)
	case EventReleased, EventParked:
		c.e.sendOne(c.req.Key)
	default:
	}
}
