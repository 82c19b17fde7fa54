package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
)

// ownerRules are about what the owner of a key may do, and nobody else.
func ownerRules() []rule {
	return []rule{
		{"C5_renewal_moves_the_lease_end", "a renewed lease must run from the renewal on, so that a slow handler keeps its key (case B17)", checkRenew},
		{"C6_a_fenced_owner_changes_nothing", "an attempt that was taken over still changes the key (cases B15, B16)", checkFenced},
		{"C6_fence_and_token_both_count", "a write with the right fence but another token, or the other way round, is somebody else's", checkBothCount},
		{"C6_an_owner_past_its_lease_may_complete", "only a takeover ends an owner's right: late is not lost", checkLate},
		{"O_completed_never_changes", "a completed key was changed, or its completion cannot be repeated (case B72)", checkCompletedStands},
		{"O_parking_keeps_the_fence", "the doubted attempt's own late completion must still win", checkParkKeepsFence},
		{"O_parking_waits_for_the_lease", "somebody else's attempt may be parked only when its lease is over", checkParkLease},
		{"O_release_frees_the_key_at_once", "a freed key must be claimable at once by the same request", checkRelease},
		{"O_settling_is_repeatable", "a release or a park whose reply was lost must be repeatable", checkRepeatable},
	}
}

func checkRenew(t *testing.T, b *bench) {
	req := request("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	for range 5 {
		b.clock.Advance(lease - time.Second)
		if !b.renew(t, owner) {
			t.Fatal("the owner could not renew")
		}
		b.want(t, again(req), onlyonce.Busy)
	}
	if rec := b.get(t, req.Key); !rec.LeaseEnd.Equal(b.clock.Now().Add(lease)) {
		t.Errorf("lease ends %v, want %v", rec.LeaseEnd, b.clock.Now().Add(lease))
	}
	b.complete(t, owner, created())
	if b.renew(t, owner) {
		t.Error("a completed key was renewed")
	}
}

// foreignWrites tries every write with an owner that must not be heard.
func foreignWrites(t *testing.T, b *bench, owner onlyonce.Owner) {
	t.Helper()
	before := b.get(t, owner.Key)
	if b.renew(t, owner) {
		t.Error("it renewed")
	}
	if b.complete(t, owner, onlyonce.Answer{Status: 200, Body: []byte("stale")}).Held {
		t.Error("it completed")
	}
	if b.release(t, owner) {
		t.Error("it released")
	}
	if b.park(t, owner, false) || b.park(t, owner, true) {
		t.Error("it parked")
	}
	if steps, ok := onlyonce.StepsOf(b.store); ok {
		if held, err := steps.BeginStep(b.ctx, owner, intent("s", 0)); held || err != nil {
			t.Errorf("it began a step: %v %v", held, err)
		}
		if held, err := steps.EndStep(b.ctx, owner, done("s", "x")); held || err != nil {
			t.Errorf("it ended a step: %v %v", held, err)
		}
	}
	if diff := cmp.Diff(before, b.get(t, owner.Key)); diff != "" {
		t.Errorf("it changed the record (-before +after):\n%s", diff)
	}
}

func checkFenced(t *testing.T, b *bench) {
	req := request("k")
	zombie := b.want(t, req, onlyonce.Won).Record.Owner()
	b.clock.Advance(lease)
	owner := b.want(t, again(req), onlyonce.Resumed).Record.Owner()
	foreignWrites(t, b, zombie)
	if !b.complete(t, owner, created()).Held {
		t.Error("the new owner could not complete")
	}
	foreignWrites(t, b, zombie)
}

func checkBothCount(t *testing.T, b *bench) {
	req := request("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	wrongToken, wrongFence := owner, owner
	wrongToken.Attempt = onlyonce.NewToken()
	wrongFence.Fence++
	foreignWrites(t, b, wrongToken)
	foreignWrites(t, b, wrongFence)
}

func checkLate(t *testing.T, b *bench) {
	req := request("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.clock.Advance(10 * lease)
	if s := b.complete(t, owner, created()); !s.Held || !s.ExpiresAt.Equal(b.clock.Now().Add(retention)) {
		t.Errorf("late completion: %+v", s)
	}
	b.want(t, again(req), onlyonce.Replay)
}

func checkCompletedStands(t *testing.T, b *bench) {
	req := request("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	first := b.complete(t, owner, created())
	before := b.get(t, req.Key)
	b.clock.Advance(time.Minute)
	if s := b.complete(t, owner, onlyonce.Answer{Status: 500}); !s.Held || !s.ExpiresAt.Equal(first.ExpiresAt) {
		t.Errorf("repeating a completion: %+v, want %+v", s, first)
	}
	if b.release(t, owner) || b.park(t, owner, false) || b.renew(t, owner) {
		t.Error("a completed key was released, parked or renewed by its owner")
	}
	resolving := again(req)
	resolving.Resolve = true
	b.want(t, resolving, onlyonce.Replay)
	if diff := cmp.Diff(before, b.get(t, req.Key)); diff != "" {
		t.Errorf("a completed record changed (-before +after):\n%s", diff)
	}
}

func checkParkKeepsFence(t *testing.T, b *bench) {
	req := request("k")
	c := b.want(t, req, onlyonce.Won)
	b.park(t, c.Record.Owner(), false)
	rec := b.get(t, req.Key)
	if rec.State != onlyonce.InDoubt || rec.Owner() != c.Record.Owner() || rec.Reason != "test" {
		t.Errorf("parked: %+v", rec)
	}
	if !b.complete(t, c.Record.Owner(), created()).Held {
		t.Error("the doubted attempt's late completion was refused")
	}
	b.want(t, again(req), onlyonce.Replay)
}

func checkParkLease(t *testing.T, b *bench) {
	req := request("k")
	req.Abandon = onlyonce.AbandonHold
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.clock.Advance(lease - time.Microsecond)
	if b.park(t, owner, true) {
		t.Fatal("a live attempt was parked")
	}
	b.clock.Advance(time.Microsecond)
	if !b.park(t, owner, true) {
		t.Fatal("an abandoned attempt could not be parked")
	}
	b.want(t, again(req), onlyonce.Doubtful)
}

func checkRelease(t *testing.T, b *bench) {
	req := request("k")
	first := b.want(t, req, onlyonce.Won)
	if !b.release(t, first.Record.Owner()) {
		t.Fatal("the owner could not release")
	}
	rec := b.get(t, req.Key)
	if rec.State != onlyonce.FailedRetryable || rec.Reason != "test" || !rec.ExpiresAt.Equal(b.clock.Now().Add(retention)) {
		t.Errorf("released: %+v", rec)
	}
	c := b.want(t, again(req), onlyonce.Resumed)
	if c.From != onlyonce.FailedRetryable || c.Record.Fence <= first.Record.Fence || c.Record.Origin != first.Record.Origin {
		t.Errorf("claimed again: from %q, %+v", c.From, c.Record)
	}
	if !c.Record.ExpiresAt.IsZero() || c.Record.Reason != "" {
		t.Errorf("a claim begins clean, got reason %q, expires %v", c.Record.Reason, c.Record.ExpiresAt)
	}
	foreignWrites(t, b, first.Record.Owner())
}

func checkRepeatable(t *testing.T, b *bench) {
	freed := b.want(t, request("freed"), onlyonce.Won).Record.Owner()
	parked := b.want(t, request("parked"), onlyonce.Won).Record.Owner()
	for range 2 {
		if !b.release(t, freed) {
			t.Error("release is not repeatable")
		}
		if !b.park(t, parked, false) {
			t.Error("park is not repeatable")
		}
	}
	if b.park(t, freed, false) {
		t.Error("a freed key was parked")
	}
	if b.release(t, parked) {
		t.Error("a key in doubt was released without a resolving claim")
	}
	if b.complete(t, freed, created()).Held {
		t.Error("a freed key was completed by its former owner")
	}
}
