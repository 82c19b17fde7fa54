package oncegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/filejournal"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// book is a server's memory: effects by key, each with the answer of the first call.
type book struct {
	mu      sync.Mutex
	effects map[string]string
	lost    int
}

// charge makes the effect of a key once, and tells whether this answer is to be lost:
// that of every n-th effect.
func (b *book) charge(t *testing.T, key, body string, n int) (answer string, lose bool) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if first, ok := b.effects[key]; ok {
		if first != body {
			t.Errorf("key %q was for %q and now is for %q", key, first, body)
		}
		return first, false
	}
	b.effects[key] = body
	lose = len(b.effects)%n == 0
	if lose {
		b.lost++
	}
	return body, lose
}

// lossy is a ledger that loses the answer of every n-th effect with its connection.
func lossy(t *testing.T, n int) (*ledger, *book) {
	t.Helper()
	b := &book{effects: map[string]string{}}
	var s *ledger
	s = serve(t, func(ctx context.Context, _ int, in *text) (*text, error) {
		answer, lose := b.charge(t, keyOf(ctx), in.GetValue(), n)
		if lose {
			s.hangUp(ctx)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return wrapperspb.String("done: " + answer), nil
	})
	return s, b
}

// want checks that each body was charged once.
func (b *book) want(t *testing.T, n int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	bodies := map[string]bool{}
	for _, body := range b.effects {
		bodies[body] = true
	}
	if len(b.effects) != n || len(bodies) != n || b.lost == 0 {
		t.Errorf("%d effects of %d bodies, %d answers lost; want %d", len(b.effects), len(bodies), b.lost, n)
	}
}

// L1, L2, B97: a thousand calls at a time through one client: one effect each, every
// caller its own answer, no key of another, although every third answer is lost.
func TestThousandCalls(t *testing.T) {
	t.Parallel()
	const calls = 1000
	s, b := lossy(t, 3)
	// A connection that breaks takes with it all that is on it, so there are many.
	conn := newSpread(t, s.addr, 100)
	once := oncegrpc.Wrap(conn, newClient(t, quick(t, conn, memjournal.New())), oncegrpc.Config{})
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			body := fmt.Sprintf("order-%d", i)
			ctx := onceclient.WithIntent(t.Context(), body)
			if got, err := invoke(ctx, once, body); err != nil || got != "done: "+body {
				t.Errorf("%s: %q, %v", body, got, err)
			}
		})
	}
	wg.Wait()
	b.want(t, calls)
	keys := map[string]string{}
	for _, c := range s.seen() {
		if body, ok := keys[c.key]; ok && body != c.body {
			t.Errorf("key %q was for %q and then for %q", c.key, body, c.body)
		}
		keys[c.key] = c.body
	}
}

// L1: another process goes on from the journal, with bytes and method alone.
func TestResume(t *testing.T) {
	t.Parallel()
	const calls = 30
	s, b := lossy(t, 3)
	dir := t.TempDir()
	crashing, err := filejournal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, s.addr)
	cfg := quick(t, conn, crashing)
	cfg.Attempts = 1
	once := oncegrpc.Wrap(conn, newClient(t, cfg), oncegrpc.Config{})
	unknown := map[string]bool{}
	for i := range calls {
		body := fmt.Sprintf("order-%d", i)
		got, err := invoke(onceclient.WithIntent(t.Context(), body), once, body)
		if _, ok := errors.AsType[*onceclient.UnknownError](err); ok {
			unknown[body] = true
		} else if err != nil || got != "done: "+body {
			t.Errorf("%s: %q, %v", body, got, err)
		}
	}
	if len(unknown) < calls/3 {
		t.Fatalf("%d outcomes are unknown, want at least %d", len(unknown), calls/3)
	}

	journal, err := filejournal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	other := newClient(t, quick(t, dial(t, s.addr), journal))
	if err := other.Resume(t.Context(), func(out onceclient.Outcome, err error) {
		m := new(text)
		if err == nil {
			err = oncegrpc.Unmarshal(out.Answer, m)
		}
		if err != nil || !unknown[out.Intent] || m.GetValue() != "done: "+out.Intent {
			t.Errorf("%s: %q, %v", out.Intent, m.GetValue(), err)
		}
		delete(unknown, out.Intent)
	}); err != nil {
		t.Error(err)
	}
	if len(unknown) > 0 {
		t.Errorf("not resumed: %v", unknown)
	}
	b.want(t, calls)
}
