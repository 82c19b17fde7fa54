package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// expiryRules are about how long records live.
func expiryRules() []rule {
	return []rule{
		{"T1_retention_counts_from_completion", "the answer must be replayed for the whole retention, counted from completion, whatever the lease", checkRetention},
		{"T2_expiry_is_decided_when_read", "an expired record must be absent at the stored time, swept or not", checkExpiry},
		{"T2_what_is_not_settled_never_expires", "an attempt in progress or in doubt was forgotten: its effect may be repeated", checkNeverExpires},
		{"T3_a_sweep_deletes_what_expired_and_nothing_else", "a sweep changed an answer, or left what it should have deleted", checkSweep},
		{"C7_no_sweep_decides_about_a_live_attempt", "a sweep with a negative grace freed a key whose owner was at work", checkLiveNotSwept},
		{"T3_a_sweep_is_bounded", "one sweep touched more rows than it was allowed to", checkSweepBounded},
		{"C7_a_sweep_decides_abandoned_attempts_as_a_takeover_would", "an abandoned key that nobody retries must end free or in doubt, by its recorded policy and steps", checkSweepAbandoned},
		{"C6_a_fence_never_returns", "after expiry or a sweep a fence came back to an old value: a sleeping worker could pass for the owner", checkFenceRises},
	}
}

func checkRetention(t *testing.T, b *bench) {
	req := request("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.clock.Advance(20 * time.Second)
	s := b.complete(t, owner, created())
	if want := b.clock.Now().Add(retention); !s.ExpiresAt.Equal(want) {
		t.Fatalf("expires %v, want %v", s.ExpiresAt, want)
	}
	b.clock.Advance(retention - time.Microsecond)
	b.want(t, again(req), onlyonce.Replay)
}

func checkExpiry(t *testing.T, b *bench) {
	completed, freed := request("completed"), request("freed")
	c1 := b.want(t, completed, onlyonce.Won)
	c2 := b.want(t, freed, onlyonce.Won)
	b.complete(t, c1.Record.Owner(), created())
	b.release(t, c2.Record.Owner())
	b.clock.Advance(retention)
	for _, req := range []onlyonce.ClaimRequest{completed, freed} {
		if _, found, err := b.store.Get(b.ctx, req.Key); found || err != nil {
			t.Errorf("get %s after expiry: found %v, %v", req.Key.Value, found, err)
		}
		other := again(req)
		other.Fingerprint = fingerprintOf("b")
		c := b.want(t, other, onlyonce.Won)
		if c.Record.Origin != c.Record.Fence || c.Record.Fence <= c1.Record.Fence || c.Record.Attempts != 1 {
			t.Errorf("%s: a new life begins with a new origin: %+v", req.Key.Value, c.Record)
		}
		rec := b.get(t, req.Key)
		if rec.Answer != nil || rec.State != onlyonce.InProgress || !rec.CreatedAt.Equal(b.clock.Now()) || !rec.CompletedAt.IsZero() {
			t.Errorf("%s: a new life carries over the old one: %+v", req.Key.Value, rec)
		}
	}
}

func checkNeverExpires(t *testing.T, b *bench) {
	running, doubt := request("running"), request("doubt")
	running.Abandon = onlyonce.AbandonHold
	b.want(t, running, onlyonce.Won)
	b.park(t, b.want(t, doubt, onlyonce.Won).Record.Owner(), false)
	b.clock.Advance(400 * 24 * time.Hour)
	b.want(t, again(running), onlyonce.Abandoned)
	b.want(t, again(doubt), onlyonce.Doubtful)
	b.sweep(t, 100)
	b.want(t, again(running), onlyonce.Doubtful)
	b.want(t, again(doubt), onlyonce.Doubtful)
}

func (b *bench) sweep(t *testing.T, limit int) onlyonce.SweepResult {
	t.Helper()
	r, err := b.store.Sweep(b.ctx, onlyonce.SweepRequest{Limit: limit, Grace: time.Minute, StepRetention: 90 * 24 * time.Hour})
	if err != nil {
		t.Fatalf("sweep: %v", err)
	}
	return r
}

func checkSweep(t *testing.T, b *bench) {
	old := request("old")
	b.complete(t, b.want(t, old, onlyonce.Won).Record.Owner(), created())
	freed := request("freed")
	b.release(t, b.want(t, freed, onlyonce.Won).Record.Owner())
	b.clock.Advance(time.Hour)
	young := request("young")
	b.complete(t, b.want(t, young, onlyonce.Won).Record.Owner(), created())
	if r := b.sweep(t, 100); r.Deleted != 0 || r.More {
		t.Fatalf("nothing has expired, swept %+v", r)
	}
	b.clock.Advance(retention - time.Hour)
	live := request("live")
	b.want(t, live, onlyonce.Won)
	if r := b.sweep(t, 100); r.Deleted != 2 || r.Freed != 0 || r.Parked != 0 {
		t.Errorf("swept %+v, want 2 deleted", r)
	}
	b.want(t, again(young), onlyonce.Replay)
	b.want(t, again(live), onlyonce.Busy)
	b.want(t, again(old), onlyonce.Won)
}

func checkSweepBounded(t *testing.T, b *bench) {
	for i := range 7 {
		b.complete(t, b.want(t, request(fmt.Sprint(i)), onlyonce.Won).Record.Owner(), created())
	}
	b.clock.Advance(retention)
	total, rounds := 0, 0
	for more := true; more && rounds < 20; rounds++ {
		r := b.sweep(t, 3)
		if r.Deleted > 3 {
			t.Fatalf("one sweep deleted %d rows, at most 3 were allowed", r.Deleted)
		}
		total += r.Deleted
		more = r.More
	}
	if total != 7 || rounds < 3 {
		t.Errorf("%d rows in %d sweeps, want 7 in at least 3", total, rounds)
	}
}

func checkSweepAbandoned(t *testing.T, b *bench) {
	hold, rerun, resume := request("hold"), request("rerun"), request("resume")
	hold.Abandon, rerun.Abandon, resume.Abandon = onlyonce.AbandonHold, onlyonce.AbandonRerun, onlyonce.AbandonResume
	for _, req := range []onlyonce.ClaimRequest{hold, rerun, resume} {
		b.want(t, req, onlyonce.Won)
	}
	b.clock.Advance(lease + time.Minute - time.Microsecond)
	if r := b.sweep(t, 100); r.Freed+r.Parked != 0 {
		t.Fatalf("swept %+v within the grace period", r)
	}
	b.clock.Advance(time.Microsecond)
	if r := b.sweep(t, 100); r.Freed != 2 || r.Parked != 1 {
		t.Errorf("swept %+v, want 2 freed and 1 parked", r)
	}
	for req, want := range map[string]onlyonce.State{"hold": onlyonce.InDoubt, "rerun": onlyonce.FailedRetryable, "resume": onlyonce.FailedRetryable} {
		if rec := b.get(t, request(req).Key); rec.State != want || rec.Reason == "" {
			t.Errorf("%s: swept to %q (%s), want %q", req, rec.State, rec.Reason, want)
		}
	}
	if b.store.Features().Steps {
		b.sweepsSteps(t)
	}
}

// sweepsSteps: what an abandoned operation's steps have done decides: only one
// without a trace of an effect is freed.
func (b *bench) sweepsSteps(t *testing.T) {
	t.Helper()
	notApplied := onlyonce.StepEnd{Name: "a", State: onlyonce.StepNotApplied}
	tests := map[string]struct {
		ends   []onlyonce.StepEnd // of steps that were begun before
		open   bool               // one more was begun
		want   onlyonce.State
		reason string
	}{
		"begun":                {open: true, want: onlyonce.InDoubt, reason: onlyonce.ReasonUnfinishedStep},
		"done":                 {ends: []onlyonce.StepEnd{done("a", "r")}, want: onlyonce.InDoubt, reason: onlyonce.ReasonUnansweredStep},
		"done, then begun":     {ends: []onlyonce.StepEnd{done("a", "r")}, open: true, want: onlyonce.InDoubt, reason: onlyonce.ReasonUnfinishedStep},
		"not applied":          {ends: []onlyonce.StepEnd{notApplied}, want: onlyonce.FailedRetryable, reason: onlyonce.ReasonSweptFree},
		"not applied and done": {ends: []onlyonce.StepEnd{notApplied, done("c", "r")}, want: onlyonce.InDoubt, reason: onlyonce.ReasonUnansweredStep},
	}
	for name, tt := range tests {
		owner := b.want(t, stepRequest(name), onlyonce.Won).Record.Owner()
		for _, end := range tt.ends {
			b.begin(t, owner, intent(end.Name, 0))
			b.end(t, owner, end)
		}
		if tt.open {
			b.begin(t, owner, intent("b", 0))
		}
	}
	b.clock.Advance(lease + time.Minute)
	if r := b.sweep(t, 100); r.Freed != 1 || r.Parked != len(tests)-1 {
		t.Errorf("swept %+v, want 1 freed and %d parked", r, len(tests)-1)
	}
	for name, tt := range tests {
		if rec := b.get(t, request(name).Key); rec.State != tt.want || rec.Reason != tt.reason {
			t.Errorf("an attempt whose steps are %s was swept to %q (%s), want %q (%s)", name, rec.State, rec.Reason, tt.want, tt.reason)
		}
	}
}

func checkFenceRises(t *testing.T, b *bench) {
	req := request("k")
	var last int64
	for range 5 { // faster than the clock's microseconds
		c := b.claim(t, again(req))
		if !c.Verdict.Owns() || c.Record.Fence <= last {
			t.Fatalf("fence %d after %d (%v)", c.Record.Fence, last, c.Verdict)
		}
		last = c.Record.Fence
		b.release(t, c.Record.Owner())
	}
	b.clock.Advance(retention)
	c := b.want(t, again(req), onlyonce.Won)
	if c.Record.Fence <= last {
		t.Errorf("after expiry: fence %d, was %d", c.Record.Fence, last)
	}
	last = c.Record.Fence
	b.complete(t, c.Record.Owner(), created())
	b.clock.Advance(retention)
	b.sweep(t, 100)
	if c := b.want(t, again(req), onlyonce.Won); c.Record.Fence <= last {
		t.Errorf("after a sweep: fence %d, was %d", c.Record.Fence, last)
	}
}

// checkLiveNotSwept: no request makes a sweeper, or who looks for what is due, take a
// live attempt for an abandoned one.
func checkLiveNotSwept(t *testing.T, b *bench) {
	owner := b.want(t, request("k"), onlyonce.Won).Record.Owner()
	for _, req := range []onlyonce.SweepRequest{
		{Limit: 10, Grace: -time.Hour, StepRetention: time.Hour},
		{Limit: 10, Grace: time.Minute, StepRetention: -time.Hour},
		{Limit: 0, Grace: time.Minute, StepRetention: time.Hour},
		{Limit: -1, Grace: time.Minute, StepRetention: time.Hour},
	} {
		if r, err := b.store.Sweep(b.ctx, req); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("sweep %+v: %+v, %v; want it refused", req, r, err)
		}
	}
	if due, ok := onlyonce.RecoveryOf(b.store); ok {
		if given, err := due.Due(b.ctx, onlyonce.DueRequest{Limit: 10, Grace: -time.Hour, Pause: time.Minute, MaxPause: time.Hour}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("due with a negative grace: %d given, %v; want it refused", len(given), err)
		}
	}
	if !b.renew(t, owner) {
		t.Error("the owner lost its key")
	}
}
