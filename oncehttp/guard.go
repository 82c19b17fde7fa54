package oncehttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// ScopeFunc names the account a request is made for: the owner of its key. It
// must come from the authenticated principal, and be the account, never the
// credential, so that a rotated credential finds its answers again (rules S2,
// S3). Two requests of different tenants must never get the same scope, nor
// one tenant two.
//
// An empty scope or an error is answered with 401; an *onlyonce.Error or a
// *Problem is answered as what it says. The request's body may be read.
// A ScopeFunc is safe for concurrent use.
type ScopeFunc func(r *http.Request) (string, error)

// Guard holds what the routes of one service share. It is safe for concurrent
// use.
type Guard struct {
	engine *onlyonce.Engine
	scope  ScopeFunc
	set    settings

	mu       sync.Mutex
	doors    []*door
	resumers map[string]*door // by the operation's name
}

// New makes a Guard. The scope decides who sees whose answers, so there is no
// default for it. The error is an *onlyonce.Error with CodeConfig, or several
// joined.
func New(engine *onlyonce.Engine, scope ScopeFunc, opts ...Option) (*Guard, error) {
	g := &Guard{engine: engine, scope: scope, resumers: map[string]*door{}, set: settings{
		docs: "/docs/", challenge: "Bearer", storeWait: 2 * time.Second, maxBody: DefaultMaxBody,
	}}
	var errs []error
	if engine == nil {
		errs = append(errs, configError("engine", "must not be nil"))
	}
	if scope == nil {
		errs = append(errs, configError("scope", "must not be nil: say whose key a key is"))
	}
	for _, o := range opts {
		if err := o.apply(&g.set); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if g.set.logger == nil {
		g.set.logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	return g, nil
}

// log writes what callers must not see: the causes of refusals. A caller's own
// mistakes are of interest only to who looks for them.
func (g *Guard) log(ctx context.Context, err error) {
	attrs := []slog.Attr{slog.String("error", err.Error())}
	level := slog.LevelWarn
	if e, ok := errors.AsType[*onlyonce.Error](err); ok {
		attrs = append(attrs, slog.String("code", string(e.Code)), slog.String("operation", e.Operation))
		if kindOf(e.Code).status < http.StatusInternalServerError && e.Code != onlyonce.CodeOutcomeUnknown {
			level = slog.LevelDebug
		}
	}
	if p, ok := errors.AsType[*onlyonce.PanicError](err); ok {
		level = slog.LevelError
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	g.set.logger.LogAttrs(ctx, level, "request not answered by its handler", attrs...)
}
