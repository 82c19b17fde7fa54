package sqljournal_test

import (
	"errors"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqljournal"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// leaseIsOver lets all leases end, as if their holders had slept through them.
const leaseIsOver = `UPDATE onlyonce_journal SET locked_until_us = 1`

// B16, C6: whoever has lost its lease changes nothing any more.
func TestLostLease(t *testing.T) {
	t.Parallel()
	for name, fresh := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fresh(t)
			j, db := p.open(t), p.pool(t)
			begin(t, j, "i")
			late, _ := lock(t, j, "i")
			run(t, db, leaseIsOver)
			next, _ := lock(t, p.open(t), "i")
			want := answered(entryOf("i"))
			if err := next.Save(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			before := one[int64](t, db, `SELECT version FROM onlyonce_journal`)
			refused := want
			refused.State = onceclient.Refused
			if err := late.Save(t.Context(), refused); !errors.Is(err, onceclient.ErrLockLost) {
				t.Errorf("a late save: %v", err)
			}
			if err := late.Unlock(); err != nil { // B15
				t.Errorf("a late unlock: %v", err)
			}
			if after := one[int64](t, db, `SELECT version FROM onlyonce_journal`); after != before {
				t.Error("the late one changed the row")
			}
			if _, _, err := j.Lock(t.Context(), "i"); !errors.Is(err, onceclient.ErrLocked) {
				t.Errorf("the late one let go of the other's lock: %v", err)
			}
			if got := stands(t, j, "i"); got.State != onceclient.Answered {
				t.Errorf("it is %v", got.State)
			}
		})
	}
}

// A lease that is over and that nobody has taken is as good as before.
func TestLeaseOverAndNobodyCame(t *testing.T) {
	t.Parallel()
	for name, fresh := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fresh(t)
			j, db := p.open(t), p.pool(t)
			begin(t, j, "i")
			l, _ := lock(t, j, "i")
			run(t, db, leaseIsOver)
			if err := l.Save(t.Context(), answered(entryOf("i"))); err != nil {
				t.Fatal(err)
			}
			if _, _, err := j.Lock(t.Context(), "i"); !errors.Is(err, onceclient.ErrLocked) {
				t.Errorf("the save did not renew the lease: %v", err)
			}
			run(t, db, leaseIsOver)
			if n, err := j.Prune(t.Context(), moment().Add(time.Hour), 10); n != 1 || err != nil {
				t.Errorf("pruned %d, %v", n, err)
			}
			if err := l.Save(t.Context(), answered(entryOf("i"))); !errors.Is(err, onceclient.ErrLockLost) {
				t.Errorf("a save of what was pruned: %v", err)
			}
		})
	}
}

// B18: the renewing ends when somebody else has the entry, and with Unlock; it does not
// end with the context of the caller.
func TestRenewing(t *testing.T) {
	t.Parallel()
	for name, fresh := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fresh(t)
			db := p.pool(t)
			j := newJournal(t, db, sqljournal.Config{Dialect: p.dialect, Lease: shortLease})
			begin(t, j, "i")
			lock(t, j, "i")
			version := func() int64 { return one[int64](t, db, `SELECT version FROM onlyonce_journal`) }
			locked := version()
			until(t, "it is renewed twice", func() bool { return version() >= locked+2 })
			run(t, db, leaseIsOver)
			var next onceclient.Lock
			until(t, "somebody else has it between two turns", func() bool {
				var err error
				if next, _, err = p.open(t).Lock(t.Context(), "i"); err != nil {
					run(t, db, leaseIsOver)
				}
				return err == nil
			})
			if err := next.Unlock(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A row that cannot be read is an error, and not locked until its lease is over.
func TestDamagedRow(t *testing.T) {
	t.Parallel()
	for name, fresh := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fresh(t)
			j, db := p.open(t), p.pool(t)
			begin(t, j, "i")
			begin(t, j, "j")
			header := map[sqljournal.Dialect]string{sqljournal.SQLite: `x'7b'`, sqljournal.Postgres: `'\x7b'::bytea`, sqljournal.MySQL: `x'7b'`}[p.dialect]
			run(t, db, `UPDATE onlyonce_journal SET header = `+header+` WHERE intent = 'i'`)
			_, _, err := j.Lock(t.Context(), "i")
			wantCode(t, err, onlyonce.CodeStoreUnavailable)
			_, _, err = j.Begin(t.Context(), entryOf("i"))
			wantCode(t, err, onlyonce.CodeStoreUnavailable)
			if n := one[int64](t, db, `SELECT count(*) FROM onlyonce_journal WHERE locker IS NOT NULL`); n != 0 {
				t.Errorf("%d rows are locked", n)
			}
			lock(t, j, "j")
		})
	}
}
