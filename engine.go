package onlyonce

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Config configures an Engine. The zero value works with a store that keeps
// settings.
type Config struct {
	// Secrets sign fingerprints. Zero: the engine makes one and keeps it in
	// the store, so that all processes and restarts share it.
	Secrets Keyring
	// Observer is told what happens; nil: nobody is.
	Observer Observer
	// StoreTimeout is how long a request waits for the store to give it its
	// key, or to read one, before the caller gets a 503. Default 10 s.
	StoreTimeout time.Duration
	// SettleTimeout is how long a request waits for its answer to be stored
	// before the caller gets a 503; storing goes on behind it. Default 10 s.
	SettleTimeout time.Duration
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Observer == nil {
		c.Observer = ObserverFunc(func(context.Context, Event) {})
	}
	c.StoreTimeout = defaulted(c.StoreTimeout, 10*time.Second)
	c.SettleTimeout = defaulted(c.SettleTimeout, 10*time.Second)
	return c
}

// Engine runs operations at most once per key. It is safe for concurrent use.
type Engine struct {
	store   Store
	cfg     Config
	vault   *vault
	named   mismatchLimit
	waiting waiting

	mu      sync.Mutex
	closed  bool
	pending sync.WaitGroup
	// closing ends what goes on behind requests.
	closing context.Context //nolint:containedctx // the engine's own lifetime
	close   context.CancelFunc
}

// New makes an Engine on a store. Close it to wait for answers that are still
// being stored.
func New(store Store, cfg Config) (*Engine, error) {
	if store == nil {
		return nil, configError("store", "must not be nil")
	}
	cfg = cfg.WithDefaults()
	settings, _ := SettingsOf(store)
	if cfg.Secrets.Current.ID == "" && settings == nil {
		return nil, configError("Secrets", "is required: the %s store keeps no settings", store.Features().Name)
	}
	if err := cfg.Secrets.validate(); err != nil {
		return nil, err
	}
	if cfg.SettleTimeout < 0 || cfg.StoreTimeout < 0 {
		return nil, configError("SettleTimeout and StoreTimeout", "must not be negative, got %v and %v", cfg.SettleTimeout, cfg.StoreTimeout)
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the engine outlives the call that makes it; Close ends it
	return &Engine{
		store: store, cfg: cfg, vault: newVault(cfg.Secrets, settings), closing: ctx, close: cancel,
		waiting: waiting{keys: map[Digest]*waitedKey{}, over: make(chan struct{})},
	}, nil
}

// Close refuses new operations, ends all waiting (Drain), and waits for operations
// under way, and for answers that are still being stored, until ctx ends. What is then left keeps its
// lease and is decided as after a crash; a handler that still runs settles its
// key if it can.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.Drain()
	done := make(chan struct{})
	go func() {
		e.pending.Wait()
		close(done)
	}()
	defer e.close()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return &Error{Code: CodeUncertain, Op: "close engine", Hint: "some answers were not stored yet; their keys are decided when their leases end", Err: ctx.Err()}
	}
}

// enter begins an operation, which Close waits for; false once it was called.
// Whoever has entered may begin more, behind itself.
func (e *Engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.pending.Add(1)
	}
	return !e.closed
}

func errClosed() *Error {
	return unavailable("begin operation", errors.New("the engine is closed"))
}

// Store is the engine's store.
func (e *Engine) Store() Store { return e.store }

// Request is what identifies a call: the caller's key and what it asks for.
type Request struct {
	Key Key
	// Canonical makes the request's canonical form.
	Canonical Canonicalizer
	// Resource is what the operation works on: the order that it pays. At most
	// one key of a scope holds a resource while its attempt is live or in doubt,
	// whatever its value; a second is refused with ErrResourceBusy (rule C12).
	// Empty: nothing. For Steps and Wrap only.
	Resource string
	// Keep is what a Recoverer needs to run the operation again without its
	// caller: principal and request, in a form of the transport's (rule D6).
	// nil: only a retry resumes it. For Steps, and for Wrap with Hold.
	Keep []byte
	// Hold keeps the key, and what is kept with it, until there is an answer:
	// whatever the run ends with that is none puts the key in doubt, and so does a
	// crash. It is told why, and gives the reason, which is recorded behind
	// ReasonHeld; it may be asked more than once, and should do nothing else. Such a
	// key is not run again by a retry, only by a request with Resolve; what a crash
	// has left may be settled as ever, by Op.Recover too. nil: the table of outcomes
	// decides. For Steps and Wrap only.
	Hold func(err error) string
	// Wait is for how long the request wants to wait for the answer while another
	// attempt owns its key, at most Op.MaxWait; then it is refused as busy all the
	// same. 0: as Op.Wait says.
	Wait time.Duration
	// Resolve gives the handler a key that is in doubt, whatever the reason: somebody
	// has said that it may run again. Needs Hold.
	Resolve bool
}

// Status says how a Result came about.
type Status string

// The ways a Result comes about.
const (
	// Executed: the handler ran now.
	Executed Status = "executed"
	// Replayed: the stored answer of an earlier run.
	Replayed Status = "replayed"
	// Unprotected: the handler ran without protection, because the store could
	// not be reached and the operation says FailOpen.
	Unprotected Status = "unprotected"
)

// Result is an answer that may be sent.
type Result struct {
	Answer Answer
	Status Status
	// State is where the key stands now.
	State State
	// ExpiresAt is when the stored answer expires; zero if none is stored.
	ExpiresAt time.Time
	// Fence and Attempt name the run the answer comes from.
	Fence   int64
	Attempt Token
}

// HandlerFunc is an operation's own code. ctx is detached from the caller's
// connection, bounded by the operation's deadline, and cancelled with cause
// ErrLeaseLost when the attempt loses its key.
type HandlerFunc func(ctx context.Context) (Answer, error)

// Wrap runs any handler under the request's key. What a crash or a failure
// leaves behind is held in doubt unless the operation says otherwise.
//
// All refusals and failures are *Error; see its codes. Answers and refusals
// alike are safe to send: an answer is returned only after it was stored,
// unless nothing of the run counts.
func (e *Engine) Wrap(ctx context.Context, op Op, req Request, handler HandlerFunc) (Result, error) {
	if err := op.Validate(); err != nil {
		return Result{}, err
	}
	return e.do(ctx, job{op.WithDefaults(), modeWrap, req}, handler)
}

// Steps runs a handler whose effects outside the store go through Step, Call
// and Finish: a retry resumes behind the last finished step.
func (e *Engine) Steps(ctx context.Context, op Op, req Request, handler HandlerFunc) (Result, error) {
	if err := op.Validate(); err != nil {
		return Result{}, err
	}
	if _, ok := StepsOf(e.store); !ok {
		return Result{}, configError("store", "%s keeps no steps", e.store.Features().Name)
	}
	return e.do(ctx, job{op.WithDefaults(), modeSteps, req}, handler)
}

// job is what is to be run, and for whom.
type job struct {
	op   Op
	mode mode
	req  Request
}

func (e *Engine) do(ctx context.Context, j job, handler HandlerFunc) (Result, error) {
	if !e.enter() {
		return Result{}, errClosed()
	}
	defer e.pending.Done()
	c, err := e.newClaimant(ctx, j)
	if err != nil {
		return e.refuse(ctx, c, handler, err)
	}
	for {
		claim, asked, err := c.acquire(ctx)
		if err != nil {
			return e.refuse(ctx, c, handler, err)
		}
		if claim.Verdict == Replay {
			return c.replay(ctx, claim.Record), nil
		}
		work := handler
		c.recovering = j.mode == modeWrap && claim.From == InDoubt && !j.req.Resolve
		if c.recovering {
			record := claim.Record
			work = func(ctx context.Context) (Answer, error) { return j.op.Recover(ctx, record) }
		}
		res, err := c.run(ctx, claim, asked, work)
		if c.recovering && res.State == FailedRetryable {
			// Recover proved that nothing happened: now the handler may run.
			c.again()
			continue
		}
		return res, err
	}
}

// refuse returns the refusal, or runs the handler unprotected where the store
// is out of reach and the operation allows it.
func (e *Engine) refuse(ctx context.Context, c *claimant, handler HandlerFunc, err error) (Result, error) {
	if c == nil {
		return Result{}, err
	}
	// Once the store has said anything about the key, nobody runs beside it.
	if !c.op.FailOpen || c.mode != modeWrap || c.judged || !errors.Is(err, ErrUnreachable) {
		c.observe(ctx, Event{Kind: EventRefused, Code: CodeOf(err)})
		return Result{}, err
	}
	c.observe(ctx, Event{Kind: EventUnprotected, Err: err})
	hctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.op.Deadline)
	defer cancel()
	answer, err := guard(func() (Answer, error) { return handler(hctx) })
	if err != nil {
		return Result{}, &Error{
			Code: CodeOutcomeUnknown, Op: "run handler unprotected", Operation: c.req.Key.Operation(), Err: err,
			Hint: "the store was out of reach and the operation failed: whether it took effect is not recorded anywhere",
		}
	}
	return Result{Answer: answer, Status: Unprotected}, nil
}

// Peek answers from the record of a key, if there is one. It runs nothing and
// claims nothing; the operation's policy is stored as for any request. A
// transport uses it when a request is refused by pure
// syntax: a late retry is answered by its record, not by a stricter deploy
// (rule O1). It returns false when there is nothing to answer with.
func (e *Engine) Peek(ctx context.Context, op Op, req Request) (Result, bool, error) {
	c, err := e.newClaimant(ctx, job{op.WithDefaults(), modeWrap, req})
	if err != nil {
		return Result{}, false, err
	}
	return c.peek(ctx)
}
