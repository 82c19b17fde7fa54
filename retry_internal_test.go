package onlyonce

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// C10: what is safe to repeat is repeated a bounded number of times, and
// nothing else is.
func TestRepeat(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	wrapped := fmt.Errorf("insert row: %w", &Error{Code: CodeConflict, Op: "claim key", Err: down})
	for name, c := range map[string]struct {
		errs  []error // of one try after the other; nil after the last
		tries int
		want  error
	}{
		"success":             {nil, 1, nil},
		"conflict":            {[]error{ErrConflict}, 2, nil},
		"uncertain":           {[]error{ErrUncertain}, 2, nil},
		"wrapped":             {[]error{wrapped, wrapped}, 3, nil},
		"mixed":               {[]error{ErrConflict, ErrUncertain, ErrConflict, ErrUncertain, ErrConflict}, 6, nil},
		"too often":           {[]error{ErrConflict, ErrConflict, ErrConflict, ErrConflict, ErrConflict, ErrUncertain, down}, maxTries, ErrUncertain},
		"another error":       {[]error{down}, 1, down},
		"another one, later":  {[]error{ErrConflict, down}, 2, down},
		"a lost lease":        {[]error{ErrLeaseLost}, 1, ErrLeaseLost},
		"the context's error": {[]error{context.Canceled}, 1, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				told := 0
				e := &Engine{cfg: Config{Observer: ObserverFunc(func(_ context.Context, ev Event) {
					if ev.Kind != EventStoreRetried || !errors.Is(ev.Err, c.errs[told]) {
						t.Errorf("event %+v", ev)
					}
					told++
				})}}
				tries := 0
				_, err := e.repeat(t.Context(), func(context.Context) error {
					tries++
					if tries > len(c.errs) {
						return nil
					}
					return c.errs[tries-1]
				})
				if !errors.Is(err, c.want) || tries != c.tries || told != c.tries-1 {
					t.Errorf("%d tries, %d told, %v; want %d tries, %v", tries, told, err, c.tries, c.want)
				}
			})
		})
	}
}

// A caller that gives up is told both why it had to wait and that it gave up.
func TestRepeatEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{cfg: Config{}.WithDefaults()}
		gaveUp := errors.New("gave up")
		ctx, cancel := context.WithCancelCause(t.Context())
		tries := 0
		_, err := e.repeat(ctx, func(context.Context) error {
			tries++
			cancel(gaveUp)
			return ErrUncertain
		})
		if tries != 1 || !errors.Is(err, ErrUncertain) || !errors.Is(err, gaveUp) {
			t.Errorf("%d tries, %v", tries, err)
		}
	})
}

// C10: waits are random, grow, and are bounded.
func TestBackoff(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		try := rapid.IntRange(0, 100_000).Draw(t, "try")
		base := time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "base"))
		limit := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "limit"))
		most := limit
		if try < 40 && base < limit>>try {
			most = base << try
		}
		if try >= 20 && most > base<<20 {
			most = base << 20 // enough doublings for anybody
		}
		for range 20 {
			if got := backoff(try, base, limit); got < 1 || got > most {
				t.Fatalf("waits %v, want between 1ns and %v", got, most)
			}
		}
	})
	// Contenders do not wait alike.
	seen := map[time.Duration]bool{}
	for range 50 {
		seen[backoff(10, 2*time.Millisecond, 250*time.Millisecond)] = true
	}
	if len(seen) < 25 {
		t.Errorf("50 contenders waited %d different times", len(seen))
	}
}

// What is insisted on is repeated whatever the error, for its own time.
func TestInsist(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{cfg: Config{}.WithDefaults()}
		begun, tries := time.Now(), 0
		err := e.insist(t.Context(), func(context.Context) error { tries++; return down })
		if took := time.Since(begun); !errors.Is(err, down) || tries < 10 || took != e.cfg.SettleTimeout {
			t.Errorf("%d tries in %v, %v", tries, took, err)
		}
		left := 5
		if err := e.insist(t.Context(), func(context.Context) error {
			if left--; left > 0 {
				return down
			}
			return nil
		}); err != nil || left != 0 {
			t.Errorf("%d left, %v", left, err)
		}
	})
}
