package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
)

// latency is how long a store takes, one call after another.
type latency struct {
	Keys                    int
	Claim, Complete, Replay quantiles
}

// quantiles are of the calls of one kind.
type quantiles struct{ P50, P99 time.Duration }

// quantilesOf sorts the times.
func quantilesOf(times []time.Duration) quantiles {
	slices.Sort(times)
	at := func(percent int) time.Duration {
		if len(times) == 0 {
			return 0
		}
		return times[(len(times)*percent+99)/100-1]
	}
	return quantiles{at(50), at(99)}
}

// sweepOurs bounds the sweep behind a measurement.
const sweepOurs = 30 * time.Second

// latencies measures on the store itself. What it writes expires a second after it is
// completed; the sweep behind it deletes it with whatever else has expired by then,
// and decides nothing about anybody's attempts. A signal ends it after the key at
// hand, and what was measured until then counts.
func (c *estimateCmd) latencies(ctx context.Context, std Streams, s *keystore.Store) (l *latency, err error) {
	fmt.Fprintf(std.Err, "onlyonce: writing %d keys to the store itself, under the scope %s; they expire %s after they are completed and are swept at the end\n",
		c.Keys, estimateScope, estimateRetention)
	w := newKeyWriter(s, int(c.Row))
	w.retention = estimateRetention
	p := newProgress(std.Err)
	var claims, completions, replays []time.Duration
	for w.made < c.Keys && ctx.Err() == nil {
		times, err := w.timed(context.WithoutCancel(ctx), p.now)
		if err != nil {
			p.end()
			return nil, err
		}
		claims, completions, replays = append(claims, times[0]), append(completions, times[1]), append(replays, times[2])
		p.say(func(time.Duration) string { return w.line("measuring", c.Keys) })
	}
	p.end()
	l = &latency{len(claims), quantilesOf(claims), quantilesOf(completions), quantilesOf(replays)}
	return l, sweepBehind(ctx, s)
}

// timed takes one key through its life: claim, completion, replay.
func (w *keyWriter) timed(ctx context.Context, now func() time.Time) (times [3]time.Duration, err error) {
	req := w.next()
	begun := now()
	owner, err := w.claim(ctx, req, onlyonce.Won)
	if err != nil {
		return times, err
	}
	claimed := now()
	if err := w.complete(ctx, owner); err != nil {
		return times, err
	}
	completed := now()
	req.Attempt = onlyonce.NewToken()
	if _, err := w.claim(ctx, req, onlyonce.Replay); err != nil {
		return times, err
	}
	return [3]time.Duration{claimed.Sub(begun), completed.Sub(claimed), now().Sub(completed)}, nil
}

// sweepBehind waits until all keys have expired and sweeps, for a while: what it does
// not reach goes with the next sweep.
func sweepBehind(ctx context.Context, s *keystore.Store) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepOurs)
	defer cancel()
	quiet, err := s.Rounds(ctx)
	if err != nil {
		return err
	}
	expired := time.NewTimer(estimateRetention + estimateRetention/10)
	defer expired.Stop()
	<-expired.C
	_, err = onlyonce.Sweeper{Store: s, Quiet: quiet, Grace: maxRetention, StepRetention: maxRetention}.Once(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
