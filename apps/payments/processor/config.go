package processor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Config says what kind of processor to simulate. The zero value is a good one:
// it demands keys, honours them for a day, finds charges by reference at once,
// and keeps everything in memory.
type Config struct {
	// Path is the journal's file. It is made where there is none, and read at
	// the start otherwise. Everything the processor answers is on disk before
	// the answer leaves, so that it survives kill -9. One server at a time may
	// use a file. Empty keeps everything in memory.
	Path string
	// KeyMemory is how long a key is remembered; after it the same key makes
	// another charge. Zero means 24 hours.
	KeyMemory time.Duration
	// KeysOptional accepts requests without an Idempotency-Key, and charges
	// each of them. By default they are refused.
	KeysOptional bool
	// IgnoreKeys makes a processor without idempotency: two requests are two
	// charges, whatever their keys. A key is then neither required nor looked
	// at, except that faults still fire once for each.
	IgnoreKeys bool
	// NoLookup makes a processor that cannot be asked by reference: 405. Lists
	// and statistics remain, for they are how tests count.
	NoLookup bool
	// VisibleAfter is how old a charge or refund must be before a look-up by
	// reference finds it. Zero means at once. Lists and statistics show
	// everything at once.
	VisibleAfter time.Duration
	// Hang is how long a "timeout" keeps the client waiting before the
	// connection is closed without an answer. Zero means until the client gives
	// up or the server is closed.
	Hang time.Duration
	// Work, where set, is called for each attempt after its key has been
	// claimed and before anything is charged: it stands for the time a real
	// processor takes, and duplicates that arrive meanwhile are refused with
	// "in_progress". Its context is not cancelled when the client goes away. It
	// must be safe for concurrent use.
	Work func(ctx context.Context, reference string)
	// Now is the clock. Nil means [time.Now]. It must be safe for concurrent
	// use.
	Now func() time.Time
}

// WithDefaults returns a copy of c in which every unset field with a default
// has it.
func (c Config) WithDefaults() Config {
	if c.KeyMemory == 0 {
		c.KeyMemory = 24 * time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate returns all faults of c in one error that names each field, or nil.
func (c Config) Validate() error {
	return errors.Join(
		notNegative("KeyMemory", c.KeyMemory),
		notNegative("VisibleAfter", c.VisibleAfter),
		notNegative("Hang", c.Hang),
	)
}

func notNegative(field string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("config %s: %v is negative", field, d)
	}
	return nil
}
