package sqljournal

import (
	"context"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// lock is a lease of an entry. Its token is what a row must still have.
type lock struct {
	j      *Journal
	intent string
	token  onlyonce.Token

	ctx  context.Context    // of Unlock, which is given none; it has no end
	stop context.CancelFunc // ends the renewing
	done chan struct{}      // closed when that has ended
	free bool
}

// start begins to renew the lease.
func (l *lock) start(ctx context.Context) {
	renewing, stop := context.WithCancel(ctx)
	l.ctx, l.stop, l.done = ctx, stop, make(chan struct{})
	go func() {
		defer close(l.done)
		l.renew(renewing)
	}()
}

// renew keeps the lease until ctx ends or somebody else has it. An error is no reason
// to stop: the next turn may come in time, and Save finds out if it did not.
func (l *lock) renew(ctx context.Context) {
	every := l.j.cfg.Lease / 3
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		turn, cancel := context.WithTimeout(ctx, every)
		n, err := l.j.exec(turn, "renew lock", l.j.sql.renew, l.j.lease(), l.intent, l.token[:])
		cancel()
		if err == nil && n == 0 {
			return
		}
	}
}

// Save implements [onceclient.Lock]. After an error other than ErrLockLost it may have
// been saved; it may be repeated.
func (l *lock) Save(ctx context.Context, e onceclient.Entry) error {
	if err := e.Validate(); err != nil {
		return fmt.Errorf("%s: %w", opSave, err)
	}
	n, err := l.j.exec(ctx, opSave, l.j.sql.save, append(standing(e), l.j.lease(), l.intent, l.token[:])...)
	if err == nil && n == 0 {
		err = fmt.Errorf("%s: %w", opSave, onceclient.ErrLockLost)
	}
	return err
}

// Unlock implements [onceclient.Lock]. It waits for the renewing to end. After an error
// the entry is free when the lease is over.
func (l *lock) Unlock() error {
	l.stop()
	<-l.done
	if l.free {
		return nil
	}
	err := l.letGo(l.ctx)
	l.free = err == nil
	return err
}

// abandon frees an entry whose lock was asked for, but not seen to be got, also when the
// caller's time is over. What the database has refused was not done.
func (l *lock) abandon(ctx context.Context, why error) error {
	if refused(why) {
		return nil
	}
	return l.letGo(context.WithoutCancel(ctx))
}

// letGo frees the entry if the lock is still its own. It does not keep a caller for long
// who may have been cancelled: when the lease is over, the entry is free anyway.
func (l *lock) letGo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(l.j.cfg.Lease, 5*time.Second))
	defer cancel()
	_, err := l.j.exec(ctx, opUnlock, l.j.sql.unlock, l.intent, l.token[:])
	return err
}
