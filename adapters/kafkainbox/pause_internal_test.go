package kafkainbox

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
)

// L3: pauses double, have jitter and a cap; what the error says is a lower bound up to it.
func TestPause(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			MinBackoff: time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "min")),
			MaxBackoff: time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Hour)).Draw(t, "max")),
		}
		tries := rapid.IntRange(1, 100).Draw(t, "tries")
		after := time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "after"))
		wait := c.pause(tries, &onlyonce.Error{RetryAfter: after})
		if wait > c.MaxBackoff || wait < min(after, c.MaxBackoff) {
			t.Fatalf("%v, between %v and %v", wait, after, c.MaxBackoff)
		}
		ceiling := c.MaxBackoff
		if tries < 12 {
			ceiling = min(ceiling, c.MinBackoff<<(tries-1))
		}
		if plain := c.pause(tries, errors.New("plain")); plain < ceiling/2 && tries < 12 || plain > ceiling && tries < 12 {
			t.Fatalf("%v, between %v and %v", plain, ceiling/2, ceiling)
		}
	})
}
