package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
)

// sweepLock is how long a sweeper that has crashed keeps others out.
const sweepLock = 2 * time.Minute

// Sweep walks on over the keys, about SweepKeys of them, and does for each what
// is due, in one atomic step: what has expired goes (the server would delete it
// by itself a little later), abandoned attempts are decided, steps that outlived
// their retention go. Where it stopped is known to this Store alone; a new one
// begins at the beginning. More is set when a limit was reached, or when it found
// something to do and has not come round.
//
// One sweeper runs at a time; others get Busy. Every sweep first looks whether a
// server has begun to evict keys: it then fails with CodeConfig, and so does every
// claim until a sweep finds that it has stopped.
func (s *Store) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	if err := req.Validate(); err != nil {
		return onlyonce.SweepResult{}, err
	}
	for name, d := range map[string]time.Duration{"SweepRequest.Grace": req.Grace, "SweepRequest.StepRetention": req.StepRetention} {
		if err := checkDuration(name, d); err != nil {
			return onlyonce.SweepResult{}, err
		}
	}
	if err := s.inspect(ctx); err != nil {
		return onlyonce.SweepResult{}, err
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	holder := onlyonce.NewToken()
	locked, err := s.lock(ctx, holder)
	if err != nil || !locked {
		return onlyonce.SweepResult{Busy: err == nil}, err
	}
	defer s.unlock(ctx, holder)
	b := batch{store: s, req: req}
	s.sweptTo, err = b.sweep(ctx, s.sweptTo)
	if err = cmp.Or(err, b.damaged); err != nil {
		return onlyonce.SweepResult{}, err
	}
	return b.res, nil
}

// lock makes this the one sweeper. A lock that is held is an ordinary answer.
func (s *Store) lock(ctx context.Context, holder onlyonce.Token) (bool, error) {
	mk := &mark{text: holder[:]}
	v, err := s.client.Do(ctx, "set", s.sweeperName(), mk, "nx", "px", sweepLock.Milliseconds()).Result()
	if err == redis.Nil { //nolint:errorlint // the client's own value, never wrapped
		return false, nil
	}
	return v == "OK", classify(ctx, call{op: "sweep", reads: true}, err, fateOf(err, int(mk.sent.Load())))
}

// unlock lets the next sweeper in. Where it fails the lock ends by itself.
func (s *Store) unlock(ctx context.Context, holder onlyonce.Token) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = s.run(ctx, call{op: "sweep", script: s.scripts.unlock, key: s.sweeperName(), args: []any{holder[:]}})
}

// batch is one Sweep.
type batch struct {
	store  *Store
	req    onlyonce.SweepRequest
	res    onlyonce.SweepResult
	loaded *redis.Client // the master that knows the script
	// damaged is why the first of the keys that could not be swept could not be:
	// their hashes were changed by hand. They are left alone, and keep nobody from
	// sweeping the others.
	damaged error
}

// left is how many more keys may be swept without going over a limit.
func (b *batch) left() int {
	return b.req.Limit - max(b.res.Deleted, b.res.Freed+b.res.Parked, b.res.Steps)
}

func (b *batch) did() bool { return b.res.Deleted+b.res.Freed+b.res.Parked+b.res.Steps > 0 }

// sweep goes on from a position and tells where the next one is to: at a page
// that was left in the middle, or behind those that are done.
func (b *batch) sweep(ctx context.Context, from position) (position, error) {
	looked, to, stopped := 0, from, true
	err := b.store.walk(ctx, from, func(p page) (bool, error) {
		to, stopped = p.at, true
		if looked >= b.store.cfg.SweepKeys {
			b.res.More = b.did()
			return false, nil
		}
		looked += len(p.names)
		for names := p.names; len(names) > 0; {
			n := min(len(names), b.left())
			if n <= 0 {
				b.res.More = true
				return false, nil
			}
			if err := b.keys(ctx, p.master.client, names[:n]); err != nil {
				return false, err
			}
			names = names[n:]
		}
		stopped = false // until the next page
		return true, nil
	})
	if err == nil && !stopped {
		to = position{} // all the way round
	}
	return to, err
}

// keys sweeps some keys of one master.
func (b *batch) keys(ctx context.Context, node *redis.Client, names []string) error {
	c := call{op: "sweep", reads: true} // what is not done is done by the next one
	script := b.store.scripts.sweep
	if b.loaded != node {
		if err := script.Load(ctx, node).Err(); err != nil {
			return classify(ctx, c, err, open)
		}
		b.loaded = node
	}
	steps := max(1, (b.req.Limit-b.res.Steps)/len(names))
	args := []any{
		b.store.clockMark(), micros(b.req.Grace), micros(b.req.StepRetention), steps,
		micros(b.store.cfg.StepRetention), micros(onlyonce.FreedStepRetention),
		onlyonce.ReasonAbandoned, onlyonce.ReasonUnfinishedStep, onlyonce.ReasonUnansweredStep, onlyonce.ReasonSweptFree,
	}
	pipe := node.Pipeline()
	for _, name := range names {
		script.EvalSha(ctx, pipe, []string{name}, args...)
	}
	cmds, _ := pipe.Exec(ctx) // each command has its own error
	for _, cmd := range cmds {
		err := cmd.Err()
		if code, ok := replyCode(err); err != nil && (!ok || code == "NOSCRIPT") {
			return classify(ctx, c, err, open)
		}
		if err == nil {
			err = b.count(cmd.(*redis.Cmd), steps) //nolint:forcetypeassert // EvalSha made it
		}
		if err != nil && b.damaged == nil {
			b.damaged = fmt.Errorf("%s: %w", cmd.Args()[3], classify(ctx, c, err, refused))
		}
	}
	return nil
}

// count adds up what was done for one key.
func (b *batch) count(cmd *redis.Cmd, steps int) error {
	n, err := cmd.Int64Slice()
	if err != nil || len(n) != 4 {
		return cmp.Or(err, errors.New("a reply that makes no sense"))
	}
	b.res.Deleted += int(n[0])
	b.res.Freed += int(n[1])
	b.res.Parked += int(n[2])
	b.res.Steps += int(n[3])
	b.res.More = b.res.More || int(n[3]) == steps // this key may have more
	return nil
}
