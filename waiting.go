package onlyonce

import (
	"context"
	"sync"
	"time"
)

// waiting holds the requests of this process that wait for keys which others own
// (rule C2). One goroutine looks at a key for all that wait for it, and what ends in
// this process is told at once. All of them ask again when there is an answer. A key
// that was freed, or is in doubt, only one can have: one is sent to ask for it, and
// reports when it did not get it.
type waiting struct {
	mu   sync.Mutex
	keys map[Digest]*waitedKey
	// over is closed when nobody is to wait any longer.
	over chan struct{}
	end  sync.Once
}

// waitedKey is a key that somebody waits for.
type waitedKey struct {
	waiters int // guarded by waiting.mu
	// changed is closed when everybody is to ask again.
	changed chan struct{}
	// turn has something in it when one of them is to ask again.
	turn chan struct{}
	// stop ends the goroutine that looks.
	stop context.CancelFunc
}

// Pauses between looks at a key that is waited for.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = time.Second
)

// Drain ends all waiting for keys that other attempts own (Op.Wait), now and from now
// on: those who wait are refused as busy, and repeat their requests elsewhere. Nothing
// else ends. It is for the beginning of a shutdown, before requests under way are
// waited for: http.Server.RegisterOnShutdown(engine.Drain). Close does it too. It may
// be called at any time, and more than once.
func (e *Engine) Drain() {
	e.waiting.end.Do(func() { close(e.waiting.over) })
}

// patient is for how long the request may wait for its key.
func (c *claimant) patient() time.Duration {
	patience := c.op.Wait
	if c.req.Wait > 0 {
		patience = min(c.req.Wait, max(c.op.MaxWait, c.op.Wait))
	}
	return patience
}

// await waits for a key that another attempt owns. It returns true when it is worth
// claiming again, false when the request's patience is over or it has none. leave has
// to be called in the end.
func (c *claimant) await(ctx context.Context) bool {
	c.sent = false
	if c.until.IsZero() {
		c.until = now().Add(c.patient())
	}
	left := c.until.Sub(now())
	if left <= 0 {
		return false
	}
	if c.place == nil {
		c.place = c.e.joinWaiting(ctx, c)
	}
	patience := time.NewTimer(left)
	defer patience.Stop()
	select {
	case <-c.place.changed:
		c.leave() // this waiting is over; another may begin
		return true
	case <-c.place.turn:
		c.sent = true
		return true
	case <-patience.C:
	case <-ctx.Done():
	case <-c.e.waiting.over:
	}
	return false
}

// report lets all that wait for the key ask, since the one that was sent has not got it.
func (c *claimant) report() {
	if c.sent {
		c.e.wake(c.req.Key)
	}
	c.sent = false
}

// joinWaiting makes the request one of those that wait for its key.
func (e *Engine) joinWaiting(ctx context.Context, c *claimant) *waitedKey {
	w, digest := &e.waiting, c.req.Key.Digest()
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keys[digest]
	if k == nil {
		k = &waitedKey{changed: make(chan struct{}), turn: make(chan struct{}, 1)}
		w.keys[digest] = k
		var looking context.Context
		looking, k.stop = context.WithCancel(context.WithoutCancel(ctx)) // it looks for those who come later, too
		e.pending.Go(func() {                                            // while the operation itself is counted: never from zero
			if e.look(looking, k, c.req.Key, c.op.Lease) {
				e.wake(c.req.Key)
			}
		})
	}
	k.waiters++
	return k
}

// leave gives up the request's place. The looking ends with the last who waits, who
// does not wait for that: it may own the key by now.
func (c *claimant) leave() {
	k, digest, w := c.place, c.req.Key.Digest(), &c.e.waiting
	if k == nil {
		return
	}
	c.place = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	k.waiters--
	if k.waiters > 0 {
		return
	}
	k.stop()
	if w.keys[digest] == k {
		delete(w.keys, digest)
	}
}

// wake lets all that wait for the key ask again.
func (e *Engine) wake(key Key) {
	w, digest := &e.waiting, key.Digest()
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.keys[digest]; k != nil {
		delete(w.keys, digest)
		close(k.changed)
	}
}

// sendOne lets one of those that wait for the key ask again.
func (e *Engine) sendOne(key Key) {
	w := &e.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.keys[key.Digest()]; k != nil {
		k.send()
	}
}

// send lets one ask, or leaves it to the one that was told and has not set out.
func (k *waitedKey) send() {
	select {
	case k.turn <- struct{}{}:
	default:
	}
}

// look reads the key at growing pauses until there is an answer (true), or nobody
// waits. Somebody is sent to ask for a key that is free or in doubt, one that cannot be
// seen, since its claim is not committed or it is gone, and one whose lease may be over.
func (e *Engine) look(ctx context.Context, k *waitedKey, key Key, lease time.Duration) bool {
	var seen Record
	since := now()
	for pause := firstLook; wait(ctx, backoff(0, pause, pause)+pause/2); pause = min(2*pause, lastLook) {
		rec, found, err := e.Record(ctx, key)
		switch {
		case err != nil:
			continue
		case found && rec.State == Completed:
			return true
		case found && rec.State == InProgress && (rec.Fence != seen.Fence || !rec.LeaseEnd.Equal(seen.LeaseEnd)):
			seen, since = rec, now()
			continue
		case found && rec.State == InProgress && now().Sub(since) < lease:
			continue
		}
		k.send()
	}
	return false
}
