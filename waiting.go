package onlyonce

import (
	"context"
	"sync"
	"time"
)

// waiting holds the requests of this process that wait for keys which others own
// (rule C2). One goroutine looks at a key for all that wait for it; what ends in this
// process wakes them at once.
type waiting struct {
	mu   sync.Mutex
	keys map[Digest]*waitedKey
}

// waitedKey is a key that somebody waits for.
type waitedKey struct {
	waiters int // guarded by waiting.mu
	// changed is closed when the key has changed: everybody asks again.
	changed chan struct{}
	// probe lets one of them ask again, where looking cannot tell.
	probe chan struct{}
	// stop ends the goroutine that looks; done is closed when it has ended.
	stop context.CancelFunc
	done chan struct{}
}

// Pauses between looks at a key that is waited for.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = time.Second
)

// patient is for how long the request may wait for its key.
func (c *claimant) patient() time.Duration {
	patience := c.op.Wait
	if c.req.Wait > 0 {
		patience = min(c.req.Wait, max(c.op.MaxWait, c.op.Wait))
	}
	return patience
}

// await waits for a key that another attempt owns. It returns true when it is worth
// claiming again, false when the request's patience is over or it has none.
func (c *claimant) await(ctx context.Context) bool {
	if c.until.IsZero() {
		c.until = now().Add(c.patient())
	}
	left := c.until.Sub(now())
	if left <= 0 {
		return false
	}
	k := c.e.joinWaiting(ctx, c)
	defer c.e.leaveWaiting(c.req.Key.Digest(), k)
	over := time.NewTimer(left)
	defer over.Stop()
	select {
	case <-k.changed:
		return true
	case <-k.probe:
		return true
	case <-over.C:
	case <-ctx.Done():
	}
	return false
}

// joinWaiting makes the request one of those that wait for its key.
func (e *Engine) joinWaiting(ctx context.Context, c *claimant) *waitedKey {
	w, digest := &e.waiting, c.req.Key.Digest()
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keys[digest]
	if k == nil {
		k = &waitedKey{changed: make(chan struct{}), probe: make(chan struct{}), done: make(chan struct{})}
		if w.keys == nil {
			w.keys = map[Digest]*waitedKey{}
		}
		w.keys[digest] = k
		var looking context.Context
		looking, k.stop = context.WithCancel(context.WithoutCancel(ctx)) // it looks for those who come later, too
		go func() {
			defer close(k.done)
			if e.look(looking, k, c.req.Key, c.op.Lease) {
				e.wake(c.req.Key)
			}
		}()
	}
	k.waiters++
	return k
}

// leaveWaiting ends the looking with the last who waits.
func (e *Engine) leaveWaiting(digest Digest, k *waitedKey) {
	w := &e.waiting
	w.mu.Lock()
	k.waiters--
	last := k.waiters == 0
	if last && w.keys[digest] == k {
		delete(w.keys, digest)
	}
	w.mu.Unlock()
	if last {
		k.stop()
		<-k.done
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

// look reads the key at growing pauses until it is no longer in progress (true), or
// nobody waits. A key that cannot be seen, since its claim is not committed, and one
// whose lease may be over are asked for by one of those who wait.
func (e *Engine) look(ctx context.Context, k *waitedKey, key Key, lease time.Duration) bool {
	var seen Record
	since := now()
	for pause := firstLook; wait(ctx, backoff(0, pause, pause)+pause/2); pause = min(2*pause, lastLook) {
		rec, found, err := e.Record(ctx, key)
		switch {
		case err != nil:
			continue
		case found && rec.State != InProgress:
			return true
		case found && (rec.Fence != seen.Fence || !rec.LeaseEnd.Equal(seen.LeaseEnd)):
			seen, since = rec, now()
			continue
		case found && now().Sub(since) < lease:
			continue
		}
		select {
		case k.probe <- struct{}{}:
		default: // nobody is listening: they are all about to ask, or gone
		}
	}
	return false
}
