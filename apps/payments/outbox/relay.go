package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Publisher hands messages to a broker.
type Publisher interface {
	// Publish sends the messages and returns nil when the broker has confirmed that it
	// keeps each of them. After an error any of them may have arrived, or none.
	Publish(ctx context.Context, msgs []inbox.Message) error
}

// Config says what a Relay works on. Those fields that are not required are careful
// when they are zero.
type Config struct {
	// DB is where the events wait. Required.
	DB *db.Database
	// Publisher takes them. Required. The Relay does not close it.
	Publisher Publisher
	// Batch is how many events are published and deleted at a time. Default 100.
	Batch int
	// Every is between two looks for new events. Default 500 ms.
	Every time.Duration
	// Lease is how long the relay that publishes keeps others from it, which is also
	// how long they wait when it dies. Default 15 s. A batch that is not confirmed in
	// half of it is published again.
	Lease time.Duration
	// MaxBackoff bounds the pause after failures, which doubles with each, beginning at
	// Every. Default 30 s.
	MaxBackoff time.Duration
	// Logger is told of failures and of their end. Default: nobody is.
	Logger *slog.Logger
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Batch == 0 {
		c.Batch = 100
	}
	if c.Every == 0 {
		c.Every = 500 * time.Millisecond
	}
	if c.Lease == 0 {
		c.Lease = 15 * time.Second
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	var errs []error
	if c.DB == nil {
		errs = append(errs, configError("Config.DB", "is required"))
	}
	if c.Publisher == nil {
		errs = append(errs, configError("Config.Publisher", "is required"))
	}
	if c.Batch < 0 || c.Batch > maxBatch {
		errs = append(errs, configError("Config.Batch", "must be from 1 to %d, got %d", maxBatch, c.Batch))
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Config.Every", c.Every}, {"Config.Lease", c.Lease}, {"Config.MaxBackoff", c.MaxBackoff}} {
		if d.value < 0 {
			errs = append(errs, configError(d.field, "must not be negative, got %v", d.value))
		}
	}
	return errors.Join(errs...)
}

func configError(field, format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "check outbox configuration", Hint: field + " " + fmt.Sprintf(format, args...)}
}

// maxBatch keeps a batch's ids within one statement.
const maxBatch = 1000

// Relay publishes events. Any number of relays, in any number of processes, may
// run on one database: one of them publishes at a time, and should two do, events go
// out twice under one id.
type Relay struct {
	cfg Config
	// holder is this relay's name in the lock.
	holder string
}

// New makes a Relay. Nothing runs until Drain or Run is called. A configuration that
// cannot be is an *onlyonce.Error with CodeConfig.
func New(cfg Config) (*Relay, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Relay{cfg: cfg, holder: uuid.NewString()}, nil
}

// Drained is what became of one batch.
type Drained struct {
	// Published is how many events were confirmed, and are deleted.
	Published int
	// More: there may be more to publish, at once.
	More bool
	// Busy: another relay is at work.
	Busy bool
}

// Drain publishes one batch. An error leaves all of the batch in the table, also what
// has arrived at the broker: it is published again.
func (r *Relay) Drain(ctx context.Context) (Drained, error) {
	// What waits is looked for first: an idle relay writes nothing.
	var waits bool
	if err := r.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, anyEvent).Scan(&waits)
	}); err != nil {
		return Drained{}, fmt.Errorf("look for events: %w", err)
	}
	if !waits {
		return Drained{}, nil
	}
	batch, held, err := r.take(ctx)
	if err != nil || !held || len(batch) == 0 {
		return Drained{Busy: err == nil && !held}, err
	}
	// No transaction is open while the broker is waited for.
	publishing, cancel := context.WithTimeout(ctx, r.cfg.Lease/2)
	defer cancel()
	if err := r.cfg.Publisher.Publish(publishing, batch); err != nil {
		return Drained{}, fmt.Errorf("publish %d events: %w", len(batch), err)
	}
	if err := r.forget(ctx, batch); err != nil {
		return Drained{}, err
	}
	return Drained{Published: len(batch), More: len(batch) == r.cfg.Batch}, nil
}

// take takes or prolongs the right to publish, and reads the oldest events.
func (r *Relay) take(ctx context.Context) (batch []inbox.Message, held bool, err error) {
	err = r.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		batch = nil
		n, err := tx.Exec(ctx, takeLock, r.holder, r.cfg.Lease.Microseconds(), r.holder)
		if held = n == 1; err != nil || !held {
			return err
		}
		return tx.Each(ctx, firstEvents, []any{r.cfg.Batch}, func(row db.Row) error {
			var id, kind, payload string
			if err := row.Scan(&id, &kind, &payload); err != nil {
				return err
			}
			batch = append(batch, inbox.Message{ID: id, Payload: []byte(payload), Attributes: map[string]string{event.KindAttribute: kind}})
			return nil
		})
	})
	if err != nil {
		return nil, false, fmt.Errorf("read events: %w", err)
	}
	return batch, held, nil
}

// forget deletes what was confirmed, also when the process is told to stop meanwhile:
// otherwise all of it would be published again.
func (r *Relay) forget(ctx context.Context, batch []inbox.Message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Lease/2)
	defer cancel()
	ids := make([]any, len(batch))
	for i, msg := range batch {
		ids[i] = msg.ID
	}
	statement := deleteEvents + strings.Repeat("?, ", len(ids)-1) + "?)"
	err := r.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		_, err := tx.Exec(ctx, statement, ids...)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete published events: %w", err)
	}
	return nil
}

// Run drains until ctx ends, and gives the right to publish back then. While the
// broker or the database fails it tries less and less often, and says so. The caller
// owns the goroutine.
func (r *Relay) Run(ctx context.Context) {
	defer r.release(ctx)
	failures, published := 0, 0
	for {
		drained, err := r.Drain(ctx)
		published += drained.Published
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			r.report(ctx, failures, err)
		case failures > 0:
			r.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "events are published again", slog.Int("failures", failures))
			failures = 0
		}
		if drained.More {
			continue
		}
		if published > 0 {
			r.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "events published", slog.Int("events", published))
			published = 0
		}
		if !wait(ctx, r.pause(failures)) {
			return
		}
	}
}

// pause is how long to wait after so many failures in a row.
func (r *Relay) pause(failures int) time.Duration {
	if failures == 0 {
		return r.cfg.Every
	}
	most := min(r.cfg.Every<<min(failures, 16), max(r.cfg.MaxBackoff, r.cfg.Every))
	return most/2 + rand.N(most/2+1)
}

// report logs a failure, and what waits because of it.
func (r *Relay) report(ctx context.Context, failures int, err error) {
	attrs := []slog.Attr{slog.Int("failures", failures), slog.String("error", err.Error())}
	if w, err := Look(ctx, r.cfg.DB); err == nil {
		attrs = append(attrs, slog.Int("waiting", w.Events), slog.Time("since", w.Since))
	}
	r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "events cannot be published; they wait in their table, and it is tried again", attrs...)
}

// release lets another relay begin at once. Where it fails, the lease runs out.
func (r *Relay) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Lease/2)
	defer cancel()
	err := r.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		_, err := tx.Exec(ctx, dropLock, r.holder)
		return err
	})
	if err != nil {
		r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the right to publish events was not given back; it ends by itself", slog.String("error", err.Error()))
	}
}

// wait waits; false: ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
