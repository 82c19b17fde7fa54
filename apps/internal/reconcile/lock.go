package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// The right to be the one run at work, and how often it is prolonged. A run that
// dies keeps others out for so long.
const (
	lockLease = time.Minute
	lockRenew = 15 * time.Second
)

// BusyError says that another run is at work.
type BusyError struct {
	// Run is its number, Actor whose it is.
	Run   int64
	Actor string
	// Until is when its right ends if it has died.
	Until time.Time
}

// Error says who, and what to do.
func (e *BusyError) Error() string {
	return fmt.Sprintf("another reconciliation (run %d of %s) is at work on this database: wait for it, or, if it was killed, until %s",
		e.Run, e.Actor, e.Until.UTC().Format(time.RFC3339))
}

// errLockLost ends a run that could not keep its right: another one may have
// deleted its rows.
var errLockLost = errors.New("this run has lost its right to work on the database, which it could not prolong in time: start it again")

// lock is the right of a run.
type lock struct {
	db  *db.Database
	run int64
	// lease is how long it lasts, every how often it is prolonged.
	lease, every time.Duration
}

// acquire begins a run, alone.
func acquire(ctx context.Context, cfg Config) (*lock, time.Time, error) {
	l := &lock{db: cfg.DB, lease: lockLease, every: lockRenew}
	var started int64
	err := cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		n, err := tx.Exec(ctx, takeLock, cfg.Actor, l.lease.Microseconds())
		if err != nil {
			return fmt.Errorf("take lock: %w", err)
		}
		if n == 0 {
			return l.busy(ctx, tx)
		}
		if err := tx.QueryRow(ctx, insertRun, cfg.File, cfg.Provider.Name, cfg.Actor).Scan(&l.run, &started); err != nil {
			return fmt.Errorf("begin run: %w", err)
		}
		_, err = tx.Exec(ctx, nameLock, l.run)
		return err
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return l, time.UnixMicro(started).UTC(), nil
}

func (l *lock) busy(ctx context.Context, tx db.Tx) error {
	e := &BusyError{}
	var until int64
	if err := tx.QueryRow(ctx, selectLock).Scan(&e.Run, &e.Actor, &until); err != nil {
		return fmt.Errorf("read lock: %w", err)
	}
	e.Until = time.UnixMicro(until)
	return e
}

// keep prolongs the right until ctx ends, and ends the run that has lost it.
func (l *lock) keep(ctx context.Context, lost context.CancelCauseFunc) {
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	sure := now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := now()
		n := int64(0)
		err := l.db.Write(ctx, func(ctx context.Context, tx db.Tx) error {
			var err error
			n, err = tx.Exec(ctx, renewLock, l.lease.Microseconds(), l.run)
			return err
		})
		switch {
		case err == nil && n == 1:
			sure = asked
		case err == nil || asked.Sub(sure) > l.lease-l.every:
			lost(errLockLost)
			return
		}
	}
}

// held makes sure, for what a transaction reads of the staged rows, that nobody
// else has deleted them and that they are all there.
func (l *lock) held(ctx context.Context, tx db.Tx, last int64) error {
	var mine, there int64
	if err := tx.QueryRow(ctx, lockHeld, l.run).Scan(&mine); err != nil {
		return fmt.Errorf("check lock: %w", err)
	}
	if mine != 1 {
		return errLockLost
	}
	if last == 0 {
		return nil
	}
	if err := tx.QueryRow(ctx, lineStaged, l.run, last).Scan(&there); err != nil {
		return fmt.Errorf("check staged rows: %w", err)
	}
	if there != 1 {
		return errors.New("the staged rows are gone: the database was restarted meanwhile; start again")
	}
	return nil
}

// release gives the right back.
func (l *lock) release(ctx context.Context) error {
	return l.db.Write(context.WithoutCancel(ctx), func(ctx context.Context, tx db.Tx) error {
		_, err := tx.Exec(ctx, dropLock, l.run)
		return err
	})
}
