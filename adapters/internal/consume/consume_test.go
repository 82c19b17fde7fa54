package consume_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
	"github.com/onlyonce-go/onlyonce/inbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Pauses double, have jitter and a cap; what the error says is a lower bound up to it;
// whatever is configured, nothing overflows, which would be no pause at all.
func TestPause(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "min"))
		b := consume.Backoff{Min: least, Max: time.Duration(rapid.Int64Range(int64(least), math.MaxInt64).Draw(t, "max"))}
		tries := rapid.IntRange(-1, 200).Draw(t, "tries")
		after := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "after"))
		if wait := b.Pause(tries, &onlyonce.Error{RetryAfter: after}); wait > b.Max || wait < min(after, b.Max) {
			t.Fatalf("%v, between %v and %v", wait, after, b.Max)
		}
		ceiling := b.Min
		for i := 1; i < tries && ceiling < b.Max; i++ {
			if ceiling > b.Max-ceiling {
				ceiling = b.Max
				break
			}
			ceiling *= 2
		}
		if plain := b.Pause(tries, errors.New("plain")); plain < ceiling/2 || plain > ceiling {
			t.Fatalf("%v, between %v and %v", plain, ceiling/2, ceiling)
		}
	})
}

// A panic is a failure of the delivery and not the end of the process.
func TestPanic(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	verdict, err := consume.Process(t.Context(), func(context.Context, inbox.Message) (inbox.Verdict, error) { panic(cause) }, inbox.Message{})
	if verdict != inbox.Again || !errors.Is(err, cause) {
		t.Errorf("%v, %v", verdict, err)
	}
	if id := consume.ID(func(b []byte) string { return string(b[:1]) }, nil); id != "" {
		t.Errorf("id %q of a message that has none", id)
	}
	if id := consume.ID(func(b []byte) string { return string(b[:1]) }, []byte("id")); id != "i" {
		t.Errorf("id %q", id)
	}
}

// So many are handled at once, and a panic gives its place back.
func TestPlaces(t *testing.T) {
	t.Parallel()
	h := consume.NewHands(t.Context(), 1, time.Minute)
	for range 3 {
		if !h.Place(t.Context()) {
			t.Fatal("no place")
		}
		if _, err := h.Process(func(context.Context, inbox.Message) (inbox.Verdict, error) { panic("no") }, inbox.Message{}); err == nil {
			t.Error("a panic is no failure")
		}
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if h.Place(done) {
		t.Error("a place after the end")
	}
	if !h.Place(t.Context()) {
		t.Fatal("no place")
	}
	waits, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if h.Place(waits) {
		t.Error("two places of one")
	}
	h.Close()
}

// Handlers outlive the consumer's context, for as long as they may.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := consume.NewHands(ctx, 1, time.Minute)
		cancel()
		begun := time.Now()
		h.Go(func() { <-h.Context.Done() })
		h.Close()
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("drained for %v", took)
		}
		if consume.Sleep(ctx, time.Hour) || !consume.Sleep(t.Context(), time.Hour) {
			t.Error("sleeps do not end as they should")
		}
	})
}
