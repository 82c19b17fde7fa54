package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
)

// claimRules are about who may run.
func claimRules() []rule {
	return []rule{
		{"C1_one_of_many_claims_wins", "several attempts own one key at once: the claim is not one atomic step (cases B01, B06)", checkOneWinner},
		{"C2_losing_is_a_value", "a lost claim must say busy, with what is left of the lease, and be no error (case B02)", checkLosing},
		{"C3_a_claim_is_seen_elsewhere", "another handle does not see a claim that was confirmed", checkSeen},
		{"C4_a_lease_ends_by_the_stores_clock", "a lease must be over when the store's clock says so, neither earlier nor later (case B20)", checkLeaseEnd},
		{"C4_a_claim_without_a_lease_is_refused", "a claim that never ends locks its key for ever (case B05)", checkNoLease},
		{"T2_a_replay_says_what_is_left_of_its_retention", "a replay must say for how long its answer still stands", checkReplayRemaining},
		{"C7_a_resumed_life_keeps_its_operation", "what is recorded of a key changed its name while its life lasted: what looks for it by that does not find it", checkOperationKept},
		{"C7_only_a_repeatable_attempt_is_taken_over", "what a crash left behind may run again only if the record and the request both say so", checkTakeover},
		{"C7_what_steps_have_done_is_continued_by_steps_only", "a freed operation made of steps was claimed by a request that would not resume it: a finished step would run again", checkStepsContinue},
		{"C7_lease_lengths_do_not_matter_to_a_takeover", "a contender's own lease must not decide about the holder's (case B23)", checkTakeoverLease},
		{"C10_a_repeated_claim_finds_itself", "a claim whose reply was lost must be repeatable with its token, and not look like somebody else's", checkRepeat},
		{"F6_a_mismatch_changes_nothing", "another request under the key must be refused in every state, before anything else, and change nothing (case B38)", checkMismatch},
		{"C1_resolving_has_one_owner", "a key in doubt may be resolved by one attempt at a time", checkResolve},
	}
}

// B01, B06: of any number of claims of a free key one wins; the others are told
// so by a value, not by a constraint's error.
func checkOneWinner(t *testing.T, b *bench) {
	const contenders = 24
	stores := []onlyonce.Store{b.store, b.store}
	if b.Another != nil {
		stores[1] = b.Another
	}
	var mu sync.Mutex
	owners, others := 0, 0
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range contenders {
		wg.Go(func() {
			<-gate
			c, err := stores[i%2].Claim(b.ctx, again(request("race")))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Errorf("claim: %v", err)
			case c.Verdict.Owns():
				owners++
			case c.Verdict == onlyonce.Busy:
				others++
			default:
				t.Errorf("claim: verdict %v", c.Verdict)
			}
		})
	}
	close(gate)
	wg.Wait()
	if owners != 1 || others != contenders-1 {
		t.Fatalf("%d owners and %d busy of %d", owners, others, contenders)
	}
}

// B02: losing is an ordinary result and no failure of the store.
func checkLosing(t *testing.T, b *bench) {
	req := request("k")
	b.want(t, req, onlyonce.Won)
	b.clock.Advance(10 * time.Second)
	c := b.want(t, again(req), onlyonce.Busy)
	if c.Remaining != 20*time.Second {
		t.Errorf("remaining %v, want 20s", c.Remaining)
	}
	if c.Record.Attempt != req.Attempt || c.Record.State != onlyonce.InProgress {
		t.Errorf("a loser must see the owner's record, got %+v", c.Record)
	}
}

func checkSeen(t *testing.T, b *bench) {
	if b.Another == nil {
		t.Skip("not promised: a second handle on the same data")
	}
	req := request("k")
	c := b.want(t, req, onlyonce.Won)
	rec, found, err := b.Another.Get(b.ctx, req.Key)
	if err != nil || !found {
		t.Fatalf("get elsewhere: found %v, %v", found, err)
	}
	if diff := cmp.Diff(c.Record, rec); diff != "" {
		t.Errorf("the claim elsewhere (-claimed +seen):\n%s", diff)
	}
}

// B20: only the store's clock makes and judges a lease.
func checkLeaseEnd(t *testing.T, b *bench) {
	req := request("k")
	first := b.want(t, req, onlyonce.Won)
	b.clock.Advance(lease - time.Microsecond)
	b.want(t, again(req), onlyonce.Busy)
	b.clock.Advance(time.Microsecond)
	second := b.want(t, again(req), onlyonce.Resumed)
	if second.From != onlyonce.InProgress {
		t.Errorf("taken over from %q, want in_progress", second.From)
	}
	if second.Record.Fence <= first.Record.Fence {
		t.Errorf("fence went from %d to %d: it must rise", first.Record.Fence, second.Record.Fence)
	}
	if second.Remaining != lease || !second.Record.LeaseEnd.Equal(b.clock.Now().Add(lease)) {
		t.Errorf("a takeover begins a full lease, got %v until %v", second.Remaining, second.Record.LeaseEnd)
	}
}

// B05: a claim without an end cannot be made, so that none is ever taken for an
// orphan's.
func checkNoLease(t *testing.T, b *bench) {
	for _, d := range []time.Duration{0, -time.Second} {
		req := request("k")
		req.Lease = d
		if c, err := b.store.Claim(b.ctx, req); err == nil {
			t.Errorf("a lease of %v was granted: %v", d, c.Verdict)
		}
	}
	if _, found, err := b.store.Get(b.ctx, request("k").Key); found || err != nil {
		t.Errorf("a refused claim left a record: %v %v", found, err)
	}
}

func checkTakeover(t *testing.T, b *bench) {
	policies := []onlyonce.Abandon{onlyonce.AbandonHold, onlyonce.AbandonRerun, onlyonce.AbandonResume}
	for _, recorded := range policies {
		for _, asked := range policies {
			req := request(string(rune('a'+recorded)) + string(rune('a'+asked)))
			req.Abandon = recorded
			first := b.want(t, req, onlyonce.Won)
			b.clock.Advance(lease)
			next := again(req)
			next.Abandon = asked
			if recorded == asked && asked != onlyonce.AbandonHold {
				c := b.want(t, next, onlyonce.Resumed)
				if c.Record.Origin != first.Record.Origin || c.Record.Attempts != 2 || c.Record.Attempt != next.Attempt {
					t.Errorf("a takeover continues the key's life: %+v", c.Record)
				}
				continue
			}
			c := b.want(t, next, onlyonce.Abandoned)
			if diff := cmp.Diff(first.Record, b.get(t, req.Key)); diff != "" {
				t.Errorf("a refused takeover changed the record (-before +after):\n%s", diff)
			}
			if c.Record.Attempt != req.Attempt {
				t.Errorf("an abandoned claim must show the crashed attempt, got %+v", c.Record)
			}
		}
	}
}

// checkStepsContinue: a key that was freed behind finished steps.
func checkStepsContinue(t *testing.T, b *bench) {
	req := stepRequest("k")
	first := b.want(t, req, onlyonce.Won)
	if b.store.Features().Steps {
		b.begin(t, first.Record.Owner(), intent("s", 0))
		b.end(t, first.Record.Owner(), done("s", "result"))
	}
	b.release(t, first.Record.Owner())
	before := b.get(t, req.Key)
	for _, abandon := range []onlyonce.Abandon{onlyonce.AbandonHold, onlyonce.AbandonRerun} {
		for _, resolve := range []bool{false, true} {
			next := again(req)
			next.Abandon, next.Resolve = abandon, resolve
			b.want(t, next, onlyonce.Doubtful)
			if diff := cmp.Diff(before, b.get(t, req.Key)); diff != "" {
				t.Errorf("a refused claim changed the record (-before +after):\n%s", diff)
			}
		}
	}
	if c := b.want(t, again(req), onlyonce.Resumed); c.From != onlyonce.FailedRetryable || c.Record.Origin != first.Record.Origin {
		t.Errorf("resumed from %q: %+v", c.From, c.Record)
	}
	b.release(t, b.get(t, req.Key).Owner())
	b.clock.Advance(onlyonce.FreedStepRetention)
	next := again(req)
	next.Abandon = onlyonce.AbandonHold
	b.want(t, next, onlyonce.Won)
}

func checkTakeoverLease(t *testing.T, b *bench) {
	for i, contender := range []time.Duration{time.Second, lease, 10 * lease} {
		req := request(string(rune('a' + i)))
		b.want(t, req, onlyonce.Won)
		next := again(req)
		next.Lease = contender
		b.clock.Advance(lease - time.Millisecond)
		b.want(t, next, onlyonce.Busy)
		b.clock.Advance(time.Millisecond)
		if c := b.want(t, next, onlyonce.Resumed); c.Remaining != contender {
			t.Errorf("remaining %v, want the contender's own %v", c.Remaining, contender)
		}
	}
}

func checkRepeat(t *testing.T, b *bench) {
	req := request("k")
	first := b.want(t, req, onlyonce.Won)
	b.clock.Advance(time.Second)
	second := b.want(t, req, onlyonce.Won)
	if second.Record.Owner() != first.Record.Owner() || second.Remaining != lease-time.Second {
		t.Errorf("the repeated claim is another one: %+v, remaining %v", second.Record, second.Remaining)
	}
	for _, from := range []onlyonce.State{onlyonce.FailedRetryable, onlyonce.InDoubt, onlyonce.InProgress} {
		switch from {
		case onlyonce.FailedRetryable:
			b.release(t, b.get(t, req.Key).Owner())
		case onlyonce.InDoubt:
			b.park(t, b.get(t, req.Key).Owner(), false)
		default:
			b.clock.Advance(lease)
		}
		next := again(req)
		next.Resolve = true
		for range 2 {
			if c := b.want(t, next, onlyonce.Resumed); c.From != from {
				t.Errorf("claimed from %q, was told %q", from, c.From)
			}
		}
		req = next
	}
	b.complete(t, b.get(t, req.Key).Owner(), created())
	if c := b.want(t, req, onlyonce.Replay); c.Record.Attempt != req.Attempt {
		t.Errorf("an attempt must recognise its own answer")
	}
}

func checkOperationKept(t *testing.T, b *bench) {
	req := request("k")
	b.want(t, req, onlyonce.Won)
	b.clock.Advance(lease)
	for _, operation := range []string{"POST /refunds", "POST /charges", "POST /orders"} {
		next := again(req)
		next.Operation = operation
		c := b.want(t, next, onlyonce.Resumed)
		if got := b.get(t, req.Key).Operation; c.Record.Operation != req.Operation || got != req.Operation {
			t.Errorf("a life of %q became one of %q, recorded as %q", req.Operation, c.Record.Operation, got)
		}
		b.release(t, c.Record.Owner())
	}
	b.clock.Advance(retention)
	next := again(req)
	next.Operation = "POST /refunds"
	if c := b.want(t, next, onlyonce.Won); c.Record.Operation != next.Operation {
		t.Errorf("a new life is of %q, want its own %q", c.Record.Operation, next.Operation)
	}
}

// checkReplayRemaining: whoever keeps an answer must know for how long it may.
func checkReplayRemaining(t *testing.T, b *bench) {
	req := request("k")
	b.complete(t, b.want(t, req, onlyonce.Won).Record.Owner(), created())
	for _, age := range []time.Duration{0, time.Hour, retention - time.Hour - time.Microsecond} {
		before := b.clock.Now()
		b.clock.Advance(age)
		c := b.want(t, again(req), onlyonce.Replay)
		if want := c.Record.ExpiresAt.Sub(before.Add(age)); c.Remaining != want || want <= 0 {
			t.Errorf("remaining %v, want %v", c.Remaining, want)
		}
	}
	b.clock.Advance(time.Microsecond)
	b.want(t, again(req), onlyonce.Won)
}

// B38: clients' keys repeat: another request under a key is told so, whatever
// became of the first.
func checkMismatch(t *testing.T, b *bench) {
	other, version := fingerprintOf("b"), fingerprintOf("a")
	version.Version.Secret = "s2"
	arrange := map[string]func(onlyonce.Owner){
		"in progress": func(onlyonce.Owner) {},
		"lease over":  func(onlyonce.Owner) { b.clock.Advance(lease) },
		"completed":   func(o onlyonce.Owner) { b.complete(t, o, created()) },
		"freed":       func(o onlyonce.Owner) { b.release(t, o) },
		"in doubt":    func(o onlyonce.Owner) { b.park(t, o, false) },
	}
	for name, act := range arrange {
		for _, fp := range []onlyonce.Fingerprint{other, version} {
			req := request(name + fp.Version.Secret + string(fp.Sum[7]))
			act(b.want(t, req, onlyonce.Won).Record.Owner())
			before := b.get(t, req.Key)
			next := again(req)
			next.Fingerprint, next.Resolve = fp, true
			c := b.want(t, next, onlyonce.Mismatch)
			if diff := cmp.Diff(before, b.get(t, req.Key)); diff != "" {
				t.Errorf("%s: a mismatch changed the record (-before +after):\n%s", name, diff)
			}
			if !c.Record.Fingerprint.Equal(req.Fingerprint) {
				t.Errorf("%s: a mismatch must show the recorded fingerprint", name)
			}
		}
	}
}

func checkResolve(t *testing.T, b *bench) {
	req := request("k")
	first := b.want(t, req, onlyonce.Won)
	b.park(t, first.Record.Owner(), false)
	if c := b.want(t, again(req), onlyonce.Doubtful); c.Record.Reason != "test" {
		t.Errorf("a key in doubt must say why, got %q", c.Record.Reason)
	}
	resolving := again(req)
	resolving.Resolve = true
	c := b.want(t, resolving, onlyonce.Resumed)
	if c.From != onlyonce.InDoubt || c.Record.Fence <= first.Record.Fence || c.Record.Origin != first.Record.Origin {
		t.Errorf("a resolving claim continues the life under a higher fence: from %q, %+v", c.From, c.Record)
	}
	second := again(req)
	second.Resolve = true
	b.want(t, second, onlyonce.Busy)
	if s := b.complete(t, first.Record.Owner(), created()); s.Held {
		t.Errorf("the doubted attempt completed although its key is being resolved under a higher fence")
	}
}
