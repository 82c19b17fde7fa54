package oncehttp

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Option changes a Guard's settings. Options are made by this package's
// functions only.
type Option interface{ apply(s *settings) error }

type optionFunc func(s *settings) error

func (f optionFunc) apply(s *settings) error { return f(s) }

// settings are what the options set.
type settings struct {
	docs         string
	strict       bool
	carriers     []string
	challenge    string
	logger       *slog.Logger
	storeWait    time.Duration
	retryHeaders []string
	maxBody      int64
	principal    principal
}

// DocsURL is the base of the problem types' URIs and the target of the Link on
// refusals (rule K4): an absolute URL or an absolute path. A slash is added at
// its end. Default "/docs/": mount DocsHandler there.
func DocsURL(base string) Option {
	return optionFunc(func(s *settings) error {
		u, err := url.Parse(base)
		absolute := err == nil && (u.IsAbs() || strings.HasPrefix(base, "/"))
		if !absolute || strings.ContainsAny(base, "<>\" ") || u.RawQuery != "" || u.Fragment != "" {
			return configError("DocsURL", fmt.Sprintf("must be an absolute URL or path without query and fragment, got %q", base))
		}
		s.docs = strings.TrimSuffix(base, "/") + "/"
		return nil
	})
}

// StrictKeys takes keys in the quoted form only, as RFC 9651 has it. Default:
// the bare form too.
func StrictKeys() Option {
	return optionFunc(func(s *settings) error { s.strict = true; return nil })
}

// KeyHeaders names further headers that may carry the key, such as
// "X-Idempotency-Key". A request that carries two different keys is refused
// (rule K6).
func KeyHeaders(names ...string) Option {
	return optionFunc(func(s *settings) error {
		for _, name := range names {
			if name == "" || strings.ContainsAny(name, " :\r\n") {
				return configError("KeyHeaders", fmt.Sprintf("%q is no header name", name))
			}
			s.carriers = append(s.carriers, http.CanonicalHeaderKey(name))
		}
		return nil
	})
}

// Challenge is the WWW-Authenticate header of a 401. Default "Bearer".
func Challenge(value string) Option {
	return optionFunc(func(s *settings) error { s.challenge = value; return nil })
}

// Logger is where causes go that callers must not see, panics and replays.
// Default: warnings and errors as text to the process's standard error.
func Logger(logger *slog.Logger) Option {
	return optionFunc(func(s *settings) error {
		if logger == nil {
			return configError("Logger", "must not be nil; use slog.DiscardHandler to log nothing")
		}
		s.logger = logger
		return nil
	})
}

// StoreRetryAfter is the least Retry-After of a 503 for a store that cannot be
// reached; at least a second. Default 2 s.
func StoreRetryAfter(d time.Duration) Option {
	return optionFunc(func(s *settings) error {
		if d < time.Second {
			return configError("StoreRetryAfter", fmt.Sprintf("must be at least 1 s, got %v", d))
		}
		s.storeWait = d
		return nil
	})
}

// ShouldRetryHeaders names further headers that say what X-Should-Retry says,
// such as "Stripe-Should-Retry" for clients of that shape.
func ShouldRetryHeaders(names ...string) Option {
	return optionFunc(func(s *settings) error {
		s.retryHeaders = append(s.retryHeaders, names...)
		return nil
	})
}

// KeepPrincipal says how who asked is kept with a recoverable request, and put
// back into the context when it is run again without its caller. The scope is
// kept in any case. save must give no credential away: what it returns lies in
// the store until the key is settled. Default: nothing but the scope.
func KeepPrincipal(save func(r *http.Request) ([]byte, error), restore func(ctx context.Context, saved []byte) (context.Context, error)) Option {
	return optionFunc(func(s *settings) error {
		if save == nil || restore == nil {
			return configError("KeepPrincipal", "needs both functions")
		}
		s.principal = principal{save, restore}
		return nil
	})
}

// principal is how who asked is kept.
type principal struct {
	save    func(r *http.Request) ([]byte, error)
	restore func(ctx context.Context, saved []byte) (context.Context, error)
}

// MaxBody is the limit of request bodies in bytes, for routes that set none.
// Default 1 MiB.
func MaxBody(n int64) Option {
	return optionFunc(func(s *settings) error {
		if n <= 0 {
			return configError("MaxBody", fmt.Sprintf("must be positive, got %d", n))
		}
		s.maxBody = n
		return nil
	})
}

func configError(field, text string) error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "check configuration", Hint: field + " " + text}
}
