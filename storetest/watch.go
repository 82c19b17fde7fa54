package storetest

import (
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// watchRules are about stores without a clock of their own, whose handles take
// over only what they have watched (Features.Observes).
func watchRules() []rule {
	return []rule{
		{"C4_without_a_clock_a_takeover_needs_a_lease_of_watching", "a contender that had just met the key took it over: only clocks of other machines said that the lease was over", checkWatch},
		{"C4_a_renewal_that_is_seen_begins_the_watch_anew", "an owner that renews its lease was taken over", checkWatchRenewed},
		{"C4_a_sweeper_decides_only_what_it_has_watched", "a sweeper that had just met the key decided about its owner", checkWatchSwept},
	}
}

// watched gives the second handle of a store that observes.
func (b *bench) watched(t *testing.T) onlyonce.Store {
	t.Helper()
	if !b.store.Features().Observes {
		t.Skip("not needed: the store judges leases by its one clock")
	}
	if b.Another == nil {
		t.Skip("not given: a second handle on the same data")
	}
	return b.Another
}

// watch has a handle see the key as it is, where it would not take it over
// without.
func (b *bench) watch(t *testing.T, store onlyonce.Store, req onlyonce.ClaimRequest) {
	t.Helper()
	if !store.Features().Observes {
		return
	}
	if c, err := store.Claim(b.ctx, again(req)); err != nil || c.Verdict != onlyonce.Busy {
		t.Fatalf("claim of a key that is owned: %v, %v", c.Verdict, err)
	}
}

// tells claims by the other handle and checks the verdict.
func (b *bench) tells(t *testing.T, other onlyonce.Store, req onlyonce.ClaimRequest, verdict onlyonce.Verdict) {
	t.Helper()
	c, err := other.Claim(b.ctx, again(req))
	if err != nil || c.Verdict != verdict {
		t.Fatalf("claim %q elsewhere: %v, %v; want %v", req.Key.Value, c.Verdict, err, verdict)
	}
	if verdict == onlyonce.Busy && (c.Remaining <= 0 || c.Remaining > lease) {
		t.Errorf("claim %q elsewhere: %v of %v left", req.Key.Value, c.Remaining, lease)
	}
}

func checkWatch(t *testing.T, b *bench) {
	other, req := b.watched(t), request("k")
	b.want(t, req, onlyonce.Won)
	b.clock.Advance(10 * lease)
	b.tells(t, other, req, onlyonce.Busy) // met for the first time
	b.clock.Advance(lease - time.Microsecond)
	b.tells(t, other, req, onlyonce.Busy)
	b.clock.Advance(time.Microsecond)
	b.tells(t, other, req, onlyonce.Resumed)
}

func checkWatchRenewed(t *testing.T, b *bench) {
	other, req := b.watched(t), request("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	for range 3 {
		b.tells(t, other, req, onlyonce.Busy)
		b.clock.Advance(lease - time.Microsecond)
		if !b.renew(t, owner) {
			t.Fatal("the owner lost the key")
		}
		b.clock.Advance(time.Second)
	}
	b.tells(t, other, req, onlyonce.Busy)
	b.clock.Advance(lease)
	b.tells(t, other, req, onlyonce.Resumed)
	if b.renew(t, owner) {
		t.Error("an owner that was taken over renewed")
	}
}

func checkWatchSwept(t *testing.T, b *bench) {
	other, req := b.watched(t), request("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.clock.Advance(10 * lease)
	park := onlyonce.ParkRequest{Owner: owner, Reason: "over", LeaseOver: true}
	if parked, err := other.Park(b.ctx, park); parked || err != nil {
		t.Errorf("parked what it has just met: %v, %v", parked, err)
	}
	sweep := onlyonce.SweepRequest{Limit: 100, Grace: time.Minute, StepRetention: time.Hour}
	for range 2 { // the first look meets the key
		if r, err := other.Sweep(b.ctx, sweep); err != nil || r.Freed+r.Parked != 0 {
			t.Errorf("swept what it has just met: %+v, %v", r, err)
		}
	}
	b.clock.Advance(lease + time.Minute)
	if r, err := other.Sweep(b.ctx, sweep); err != nil || r.Freed != 1 {
		t.Errorf("swept %+v, %v; want 1 freed", r, err)
	}
}
