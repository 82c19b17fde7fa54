package payments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// Service is the payments API: an http.Handler, safe for concurrent use. Make
// one with New, run its housekeeping with Run, and close it when the HTTP
// server has stopped.
type Service struct {
	cfg       Config
	engine    *onlyonce.TxEngine[db.Tx]
	guard     *oncehttp.Guard
	mux       *http.ServeMux
	patterns  []string
	recoverer onlyonce.Recoverer
	warned    warnings
}

// New makes a Service: it brings the tables up to date and puts the products of
// each merchant into stock that has none yet. Nothing is left running when it
// fails.
func New(ctx context.Context, cfg Config) (*Service, error) {
	return assemble(ctx, cfg, func(s *Service) error {
		if err := s.cfg.DB.Migrate(ctx); err != nil {
			return err
		}
		return s.seed(ctx)
	})
}

// Attach makes a Service on a database that another one serves, for an operator
// who recovers a key. It changes no table and no product; a database that is not
// of this version is an error.
func Attach(ctx context.Context, cfg Config) (*Service, error) {
	return assemble(ctx, cfg, func(s *Service) error { return s.cfg.DB.CheckVersion(ctx) })
}

// assemble makes a Service on a database that prepare has made ready.
func assemble(ctx context.Context, cfg Config, prepare func(*Service) error) (*Service, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("new payments service: %w", err)
	}
	s := &Service{cfg: cfg, mux: http.NewServeMux()}
	if err := prepare(s); err != nil {
		return nil, fmt.Errorf("new payments service: %w", err)
	}
	engine, err := onlyonce.NewTx[db.Tx](cfg.DB.Keys(), onlyonce.Config{Observer: observer{cfg.Logger}, SettleTimeout: cfg.SettleTimeout})
	if err != nil {
		return nil, fmt.Errorf("new payments service: %w", err)
	}
	s.engine = engine
	s.guard, err = oncehttp.New(engine.Engine, func(r *http.Request) (string, error) {
		return merchantOf(r.Context()), nil
	}, oncehttp.Logger(cfg.Logger), oncehttp.MaxBody(maxBody))
	if err == nil {
		err = s.mount() //nolint:contextcheck // a request brings its own
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("new payments service: %w", err), engine.Close(ctx))
	}
	s.recoverer = s.newRecoverer()
	return s, nil
}

// maxBody is the largest request body, in bytes.
const maxBody = 256 << 10

// ServeHTTP answers the API.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Engine is the engine that protects the service's operations.
func (s *Service) Engine() *onlyonce.Engine { return s.engine.Engine }

// Close waits for answers that are still being stored, until ctx ends. The HTTP
// server must have stopped before.
func (s *Service) Close(ctx context.Context) error {
	if err := s.engine.Close(ctx); err != nil {
		return fmt.Errorf("close payments service: %w", err)
	}
	return nil
}

// observer logs what happens to keys, by their references only.
type observer struct{ log *slog.Logger }

// Observe writes one line for an event worth one.
func (o observer) Observe(ctx context.Context, e onlyonce.Event) {
	level := slog.LevelDebug
	switch e.Kind {
	case onlyonce.EventContradiction:
		level = slog.LevelError
	case onlyonce.EventParked, onlyonce.EventLeaseLost, onlyonce.EventStoreFailed, onlyonce.EventUnprotected:
		level = slog.LevelWarn
	case onlyonce.EventRefused, onlyonce.EventReleased, onlyonce.EventResumed:
		level = slog.LevelInfo
	default: // replays are logged by the guard
	}
	if !o.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("op", e.Op), slog.String("operation", e.Operation)}
	if e.Fence != 0 {
		attrs = append(attrs, slog.Int64("fence", e.Fence), slog.String("attempt", e.Attempt.String()))
	}
	if e.Code != "" {
		attrs = append(attrs, slog.String("code", string(e.Code)))
	}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", e.Reason))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	if e.Took > 0 {
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	o.log.LogAttrs(ctx, level, "key "+string(e.Kind), attrs...)
}

// operation is what a running attempt writes its rows under. The merchant is that
// of the key, also where the operation runs without its client.
type operation struct {
	merchant  string
	reference string
	key       string
}

// writing is a transaction that writes for an operation.
type writing struct {
	tx db.Tx
	op operation
}

// operationOf is the operation a handler runs for.
func operationOf(ctx context.Context) operation {
	key := onlyonce.AttemptFrom(ctx).Owner().Key
	return operation{merchant: key.Scope, reference: key.Operation(), key: key.Value}
}

// unavailable is an error of the database outside the store of keys. What it
// may have done is safe to repeat.
func unavailable(op string, err error) error {
	if onlyonce.CodeOf(err) != "" {
		return err
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeStoreUnavailable, Op: op, Err: err,
		Hint: "the database did not answer; send the same request again with the same key",
	}
}

// Patterns are the routes of the API, as http.ServeMux has them.
func (s *Service) Patterns() []string { return slices.Clone(s.patterns) }
