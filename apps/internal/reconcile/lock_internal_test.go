package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// The right is prolonged as long as the run is at work; one that cannot prolong it,
// or has lost it, is ended.
func TestKeepLock(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := db.Open(t.Context(), open(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			if err := d.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			exec := func(statement string) {
				if err := d.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
					_, err := tx.Exec(ctx, statement)
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}
			until := func() (us int64) {
				if err := d.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
					return tx.QueryRow(ctx, "SELECT until_us FROM payments_report_lock").Scan(&us)
				}); err != nil {
					t.Fatal(err)
				}
				return us
			}
			l, _, err := acquire(t.Context(), Config{DB: d, Actor: "ana"})
			if err != nil {
				t.Fatal(err)
			}
			l.every = time.Millisecond
			ctx, lost := context.WithCancelCause(t.Context())
			ended := make(chan struct{})
			go func() { l.keep(ctx, lost); close(ended) }()
			for first := until(); until() == first; { // until it has been prolonged
				if ctx.Err() != nil {
					t.Fatal(context.Cause(ctx))
				}
			}
			exec("UPDATE payments_report_lock SET run = 99")
			<-ended
			if !errors.Is(context.Cause(ctx), errLockLost) {
				t.Errorf("it ends with %v", context.Cause(ctx))
			}
			// A database that does not answer keeps nobody out for ever.
			exec("ALTER TABLE payments_report_lock RENAME TO gone")
			l.lease, l.every = 20*time.Millisecond, time.Millisecond
			ctx, lost = context.WithCancelCause(t.Context())
			l.keep(ctx, lost)
			if !errors.Is(context.Cause(ctx), errLockLost) {
				t.Errorf("it ends with %v", context.Cause(ctx))
			}
		})
	}
}
