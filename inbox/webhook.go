package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// WebhookConfig configures a Webhook.
type WebhookConfig struct {
	// Verify tells whether a request comes from the sender: StripeSignature,
	// HMACSignature or one's own. Required.
	Verify VerifyFunc
	// EventID finds the event's id: IDFromJSON or IDFromHeader. Required.
	EventID EventIDFunc
	// Headers are kept with the event, as Message.Attributes. Default: Content-Type.
	// Whatever proves who sent it, such as a signature, should not be.
	Headers []string
	// MaxBody is the longest body, in bytes. Default 1 MiB.
	MaxBody int64
	// MaxRunning is how many events are handled at a time; the sender of one more is
	// asked to repeat it. Default 100.
	MaxRunning int
	// Report is told what became of each request and of each try; nil: nobody is. It is
	// called by several goroutines.
	Report func(ctx context.Context, r WebhookReport)
}

// WebhookReport is what became of a request, or of a try to handle an event.
type WebhookReport struct {
	// ID is the event's; empty for a request that was refused before it was known.
	ID string
	// Status is what the sender was answered; 0 for a try.
	Status int
	// Verdict is for a try, and for a request that needed none: Again says that the event
	// is kept and will be tried again, or for a request that its sender has to repeat it.
	Verdict Verdict
	// Err is why.
	Err error
}

// WithDefaults returns a copy with the defaults filled in.
func (c WebhookConfig) WithDefaults() WebhookConfig {
	if c.Headers == nil {
		c.Headers = []string{"Content-Type"}
	}
	if c.MaxBody == 0 {
		c.MaxBody = 1 << 20
	}
	if c.MaxRunning == 0 {
		c.MaxRunning = 100
	}
	if c.Report == nil {
		c.Report = func(context.Context, WebhookReport) {}
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c WebhookConfig) Validate() error {
	var errs []error
	if c.Verify == nil {
		errs = append(errs, configError("WebhookConfig.Verify", "must not be nil: anybody could send events"))
	}
	if c.EventID == nil {
		errs = append(errs, configError("WebhookConfig.EventID", "must not be nil: an event could not be told from its repetition"))
	}
	if c.MaxBody < 0 || c.MaxRunning < 0 {
		errs = append(errs, configError("WebhookConfig", "must have neither a negative MaxBody nor MaxRunning, got %d and %d", c.MaxBody, c.MaxRunning))
	}
	return errors.Join(errs...)
}

// Webhook is an http.Handler for the events of one sender. An event is in the store
// before its sender is answered, and is handled behind the answer, once. It answers
//
//   - 200: the event is kept, or was before. So is one with another payload under an id
//     that was used: it is parked, since its sender would only repeat it;
//   - 400: there is no event id; 401: the signature is wrong, missing or too old; 405,
//     413: it is no POST, or too long. Nothing is stored;
//   - 503 with Retry-After: the store is down, or too much is being handled: the
//     sender has to repeat it.
//
// A handler that fails is tried again, from the store, up to Config.MaxTries, then the
// event is parked for a person. So is one whose process crashes: any process with the
// same inbox goes on with it once the lease is over. Close it before its engine.
type Webhook struct {
	inbox   *core
	cfg     WebhookConfig
	handler func(Message) onlyonce.HandlerFunc

	slots   chan struct{}
	running sync.WaitGroup
	// ending ends the looks for events that nobody handles.
	ending    context.Context //nolint:containedctx // the webhook's own lifetime
	end       context.CancelFunc
	mu        sync.Mutex
	closed    bool
	recovered chan struct{}
}

// Webhook makes an http.Handler that handles events in the transaction in which they
// are recorded. It looks for events that are left of crashes and failures, of its own
// and of other processes, until it is closed; also for those that a person wants tried
// again, so no Recoverer is needed beside it.
func (i *TxInbox[Tx]) Webhook(cfg WebhookConfig, handler TxHandlerFunc[Tx]) (*Webhook, error) {
	return i.webhook(cfg, func(msg Message) onlyonce.HandlerFunc { return i.finishing(msg, handler) })
}

// Webhook is TxInbox.Webhook for a handler with steps.
func (i *Inbox) Webhook(cfg WebhookConfig, handler HandlerFunc) (*Webhook, error) {
	return i.webhook(cfg, func(msg Message) onlyonce.HandlerFunc { return i.running(msg, handler) })
}

func (c *core) webhook(cfg WebhookConfig, handler func(Message) onlyonce.HandlerFunc) (*Webhook, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // the webhook outlives the call that makes it; Close ends it
	w := &Webhook{
		inbox: c, cfg: cfg, handler: handler,
		slots:  make(chan struct{}, cfg.MaxRunning),
		ending: ctx, end: cancel, recovered: make(chan struct{}),
	}
	go func() {
		defer close(w.recovered)
		w.recoverer().Run(ctx, func(err error) { cfg.Report(ctx, WebhookReport{Err: err}) })
	}()
	return w, nil
}

// recoverer goes on with events that nobody handles.
func (w *Webhook) recoverer() onlyonce.Recoverer {
	r := w.inbox.recoverer(w.handler)
	r.Pause, r.MaxPause = 15*time.Second, time.Hour
	r.Recovered = w.turned
	return r
}

// Close refuses new events, and waits for those that are being handled until ctx ends.
// What is then left is handled by another process, or by this one's next life, as after
// a crash.
func (w *Webhook) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-w.recovered
		w.running.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return &onlyonce.Error{
			Code: onlyonce.CodeUncertain, Op: "close webhook", Err: ctx.Err(),
			Hint: "some events were still being handled; they are kept, and handled again when their leases end",
		}
	}
}

// enter takes one of the places for events; false if there is none.
func (w *Webhook) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	select {
	case w.slots <- struct{}{}:
		w.running.Add(1)
		return true
	default:
		return false
	}
}

func (w *Webhook) leave() {
	<-w.slots
	w.running.Done()
}

// ServeHTTP takes an event. It takes a place only when the event is read and verified: who
// cannot sign must not keep others out. How long a sender may take to send is the
// http.Server's ReadTimeout.
func (w *Webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	d, refusal := w.read(rw, r)
	switch {
	case refusal.Status != 0:
		w.answer(rw, r, refusal)
	case !w.enter():
		w.answer(rw, r, WebhookReport{Status: http.StatusServiceUnavailable, Err: errFull})
	default:
		w.answer(rw, r, w.take(r.Context(), d))
	}
}

var (
	errFull   = errors.New("too many events are being handled, or the webhook is closed")
	errMethod = errors.New("events are sent by POST")
)

// read verifies a request, and only then looks for its event's id.
func (w *Webhook) read(rw http.ResponseWriter, r *http.Request) (delivery, WebhookReport) {
	if r.Method != http.MethodPost {
		rw.Header().Set("Allow", http.MethodPost)
		return delivery{}, WebhookReport{Status: http.StatusMethodNotAllowed, Err: errMethod}
	}
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, w.cfg.MaxBody))
	if err != nil {
		status := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
		return delivery{}, WebhookReport{Status: status, Err: err}
	}
	if err := w.cfg.Verify(r.Header, body); err != nil {
		return delivery{}, WebhookReport{Status: http.StatusUnauthorized, Err: err}
	}
	id, err := w.cfg.EventID(r.Header, body)
	if err != nil {
		return delivery{}, WebhookReport{Status: http.StatusBadRequest, Err: err}
	}
	msg := Message{ID: id, Payload: body}
	for _, name := range w.cfg.Headers {
		if values := r.Header.Values(name); len(values) == 1 {
			if msg.Attributes == nil {
				msg.Attributes = map[string]string{}
			}
			msg.Attributes[http.CanonicalHeaderKey(name)] = values[0]
		}
	}
	d, err := w.inbox.delivery(msg)
	if err != nil {
		return delivery{}, WebhookReport{Status: http.StatusBadRequest, Err: err}
	}
	return d, WebhookReport{}
}

// answer tells the sender, and whoever wants to know.
func (w *Webhook) answer(rw http.ResponseWriter, r *http.Request, report WebhookReport) {
	if report.Status == http.StatusServiceUnavailable {
		wait := time.Second
		if e, ok := errors.AsType[*onlyonce.Error](report.Err); ok {
			wait = max(wait, e.RetryAfter)
		}
		rw.Header().Set("Retry-After", strconv.Itoa(int(wait.Round(time.Second)/time.Second)))
	}
	rw.WriteHeader(report.Status)
	w.cfg.Report(r.Context(), report)
}

// take keeps the event and begins to handle it, and leaves when that has ended. It
// returns when the event is in the store, or is not to be handled.
func (w *Webhook) take(ctx context.Context, d delivery) WebhookReport {
	ctx = context.WithoutCancel(ctx) // who hangs up has sent it all the same
	begun, ended := make(chan struct{}), make(chan WebhookReport, 1)
	go func() {
		defer w.leave()
		started := false
		res, err := w.first(ctx, d, func() {
			started = true
			close(begun)
		})
		if started {
			w.report(ctx, try{id: d.msg.ID, tries: 1, waits: true, res: res, err: err})
			return
		}
		ended <- w.notBegun(ctx, d, res, err)
	}()
	select {
	case <-begun:
		return WebhookReport{ID: d.msg.ID, Status: http.StatusOK, Verdict: Again}
	case report := <-ended:
		return report
	}
}

// first is the first try of an event. begun is called when its claim, and the event, are
// in the store.
func (w *Webhook) first(ctx context.Context, d delivery, begun func()) (onlyonce.Result, error) {
	text, err := keep(d.msg, kept{Waits: true})
	if err != nil {
		return onlyonce.Result{}, err
	}
	req := d.request()
	req.Keep = text
	req.Hold = func(err error) string { return w.inbox.heldReason(kept{Waits: true}, 1, err) }
	handler := w.handler(d.msg)
	return w.inbox.guard(ctx, w.inbox.op, req, func(ctx context.Context) (onlyonce.Answer, error) {
		begun()
		return handler(ctx)
	})
}

// notBegun says what is to be answered for an event that is not handled now.
func (w *Webhook) notBegun(ctx context.Context, d delivery, res onlyonce.Result, err error) WebhookReport {
	report := WebhookReport{ID: d.msg.ID, Status: http.StatusOK}
	if code := onlyonce.CodeOf(err); code == onlyonce.CodeInProgress || code == onlyonce.CodeOutcomeUnknown {
		// Another request has kept it, or somebody is at it without having done so.
		if has, failed := w.inbox.isKept(ctx, d.key); failed == nil && has {
			report.Verdict = Duplicate
			return report
		}
	}
	report.Verdict, report.Err = d.verdict(ctx, res, err)
	if !report.Verdict.Ack() {
		report.Status = http.StatusServiceUnavailable
	}
	return report
}

// try is the end of a try to handle an event.
type try struct {
	id    string
	tries int
	// waits: after a failure it is tried again by itself.
	waits bool
	res   onlyonce.Result
	err   error
}

// report tells of a try.
func (w *Webhook) report(ctx context.Context, t try) {
	verdict := Again
	switch {
	case t.err == nil && t.res.Status == onlyonce.Replayed:
		verdict = Duplicate
	case t.err == nil && t.res.State == onlyonce.Completed:
		verdict = Handled
	case t.res.State == onlyonce.InDoubt && (!t.waits || t.tries >= w.inbox.cfg.MaxTries):
		verdict = Parked
	}
	w.cfg.Report(ctx, WebhookReport{ID: t.id, Verdict: verdict, Err: w.why(t, verdict)})
}

// why is the error of a try that failed, for who reads reports: the engine speaks of a key
// that waits for a person, and this one is tried again.
func (w *Webhook) why(t try, verdict Verdict) error {
	if verdict != Again || t.err == nil || t.res.State != onlyonce.InDoubt {
		return t.err
	}
	code := onlyonce.CodeOf(t.err)
	if !w.inbox.resumes {
		code = onlyonce.CodeHandlerFailed // its transaction was rolled back
	}
	return &onlyonce.Error{
		Code: code, Op: "handle event", Err: reasonOf(t.err),
		Hint: fmt.Sprintf("try %d of %d; it is kept, and is tried again", t.tries, w.inbox.cfg.MaxTries),
	}
}

// turned tells of a try that was made from the store.
func (w *Webhook) turned(ctx context.Context, turn onlyonce.Recovery) {
	if errors.Is(turn.Err, errLeft) {
		return
	}
	t := try{id: turn.Due.Record.Key.Value, tries: turn.Due.Record.Attempts + 1, res: turn.Result, err: turn.Err}
	if k, err := decode(turn.Due.Keep); err == nil {
		t.id, t.waits = string(k.ID), k.Waits
	}
	w.report(ctx, t)
}
