package storetest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
)

// recoveryRules are about operations that nobody retries (rules D6, X1).
func recoveryRules() []rule {
	rules := []rule{
		{"D6_what_was_kept_comes_back_whole", "an operation could not be resumed: its request is lost or changed", checkKept},
		{"X1_only_what_may_have_had_an_effect_is_due", "the recoverer would run what has ended, or leave lying what has not", checkDueStates},
		{"X1_a_live_attempt_is_not_due", "the recoverer would compete with an attempt whose lease is not over", checkDueLease},
		{"X1_turns_are_spaced", "a key would be tried again and again without a pause", checkDueSpacing},
		{"X1_a_claim_brings_no_turn_nearer", "the recoverer's own claim would undo the pause before the next turn", checkDueAfterClaim},
		{"X1_each_key_goes_to_one_recoverer", "two recoverers were given the same turn of a key", checkDueRace},
		{"X1_those_longest_due_come_first", "old work waits behind new work", checkDueOrder},
		{"X1_other_operations_keep_their_turns", "a program spent the turns of operations that it does not know", checkDueOperations},
		{"X1_requeue_begins_again", "what an operator asked for did not come", checkRequeue},
		{"X1_what_is_settled_keeps_no_request", "the request of a settled key is still kept", checkKeptNoLonger},
	}
	return onlyWith("recovery", func(f onlyonce.Features) bool { return f.Recovery }, rules)
}

// keeping is a request that is kept.
func keeping(value string) onlyonce.ClaimRequest {
	req := stepRequest(value)
	req.Keep = []byte("request of " + value + "\x00\xff")
	return req
}

func (b *bench) recovery() onlyonce.RecoveryStore {
	return b.store.(onlyonce.RecoveryStore) //nolint:forcetypeassert // Features().Recovery says so
}

const (
	dueGrace = time.Minute
	duePause = 2 * time.Minute
	dueMost  = 5 * time.Minute
)

// due is the values of the keys that are due, in order.
func (b *bench) due(t *testing.T, limit int) []onlyonce.Due {
	t.Helper()
	due, err := b.recovery().Due(b.ctx, onlyonce.DueRequest{Limit: limit, Grace: dueGrace, Pause: duePause, MaxPause: dueMost})
	if err != nil {
		t.Fatalf("due: %v", err)
	}
	return due
}

func valuesOf(due []onlyonce.Due) string {
	var values []string
	for _, d := range due {
		values = append(values, d.Record.Key.Value)
	}
	return strings.Join(values, " ")
}

func (b *bench) wantDue(t *testing.T, want string) []onlyonce.Due {
	t.Helper()
	due := b.due(t, 100)
	sorted := slices.Clone(due)
	slices.SortFunc(sorted, func(x, y onlyonce.Due) int { return strings.Compare(x.Record.Key.Value, y.Record.Key.Value) })
	if got := valuesOf(sorted); got != want {
		t.Errorf("due: %q, want %q", got, want)
	}
	return due
}

func checkKept(t *testing.T, b *bench) {
	req := keeping("k")
	b.want(t, req, onlyonce.Won)
	b.clock.Advance(lease + dueGrace)
	due := b.wantDue(t, "k")
	want := onlyonce.Due{Record: b.get(t, req.Key), Keep: req.Keep, Turn: 1}
	if diff := cmp.Diff([]onlyonce.Due{want}, due); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
	kept, found, err := b.recovery().Kept(b.ctx, req.Key)
	if err != nil || !found || string(kept) != string(req.Keep) {
		t.Errorf("kept %q, %v, %v", kept, found, err)
	}
	next := again(req)
	next.Keep = []byte("another form of the same request")
	b.want(t, next, onlyonce.Resumed)
	if kept, _, _ := b.recovery().Kept(b.ctx, req.Key); string(kept) != string(req.Keep) {
		t.Errorf("a takeover changed it to %q", kept)
	}
	if _, found, err := b.recovery().Kept(b.ctx, request("absent").Key); found || err != nil {
		t.Errorf("an absent key: found %v, %v", found, err)
	}
	empty := keeping("empty")
	empty.Keep = []byte{}
	b.want(t, empty, onlyonce.Won)
	if kept, found, err := b.recovery().Kept(b.ctx, empty.Key); !found || err != nil || len(kept) != 0 {
		t.Errorf("empty is not nothing: %q, %v, %v", kept, found, err)
	}
}

func checkDueStates(t *testing.T, b *bench) {
	own := map[string]onlyonce.Owner{}
	for _, v := range []string{"abandoned", "behind", "completed", "doubt", "freed", "refuted", "unfinished"} {
		own[v] = b.want(t, keeping(v), onlyonce.Won).Record.Owner()
	}
	b.want(t, stepRequest("not kept"), onlyonce.Won)
	b.complete(t, own["completed"], created())
	b.park(t, own["doubt"], false)
	b.release(t, own["freed"])
	for _, v := range []string{"behind", "refuted", "unfinished"} {
		b.begin(t, own[v], intent("s", 0))
	}
	b.end(t, own["behind"], done("s", "x"))
	b.end(t, own["refuted"], onlyonce.StepEnd{Name: "s", State: onlyonce.StepNotApplied})
	for _, v := range []string{"behind", "refuted"} {
		b.release(t, own[v])
	}
	b.clock.Advance(lease + dueGrace)
	b.wantDue(t, "abandoned behind doubt unfinished")
}

func checkDueLease(t *testing.T, b *bench) {
	req := keeping("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.clock.Advance(lease + dueGrace - time.Microsecond)
	b.wantDue(t, "")
	b.renew(t, owner)
	b.clock.Advance(dueGrace)
	b.wantDue(t, "")
	b.clock.Advance(lease)
	b.wantDue(t, "k")
	// A claim, by whomever, keeps the recoverer away for a lease and the grace.
	b.clock.Advance(dueMost)
	owner = b.want(t, again(req), onlyonce.Resumed).Record.Owner()
	b.park(t, owner, false)
	b.clock.Advance(lease + dueGrace - time.Microsecond)
	b.wantDue(t, "")
	b.clock.Advance(time.Microsecond)
	b.wantDue(t, "k")
}

func checkDueSpacing(t *testing.T, b *bench) {
	owner := b.want(t, keeping("k"), onlyonce.Won).Record.Owner()
	b.park(t, owner, false)
	b.clock.Advance(lease + dueGrace)
	for turn, pause := range []time.Duration{duePause, 2 * duePause, dueMost, dueMost} {
		due := b.wantDue(t, "k")
		if len(due) == 1 && due[0].Turn != turn+1 {
			t.Errorf("turn %d, want %d", due[0].Turn, turn+1)
		}
		b.clock.Advance(pause + dueGrace - time.Microsecond)
		b.wantDue(t, "")
		b.clock.Advance(time.Microsecond)
	}
}

func checkDueAfterClaim(t *testing.T, b *bench) {
	req := keeping("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.park(t, owner, false)
	b.clock.Advance(lease + dueGrace)
	b.wantDue(t, "k")
	resolving := again(req)
	resolving.Resolve, resolving.Lease = true, time.Second
	b.park(t, b.want(t, resolving, onlyonce.Resumed).Record.Owner(), false)
	b.clock.Advance(duePause + dueGrace - time.Microsecond)
	b.wantDue(t, "")
	b.clock.Advance(time.Microsecond)
	b.wantDue(t, "k")
}

func checkDueRace(t *testing.T, b *bench) {
	const keys, recoverers = 12, 6
	want := map[string]int{}
	for i := range keys {
		v := string(rune('a' + i))
		b.want(t, keeping(v), onlyonce.Won)
		want[v] = 1
	}
	b.clock.Advance(lease + dueGrace)
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range recoverers {
		store := b.recovery()
		if other, ok := b.Another.(onlyonce.RecoveryStore); ok && i%2 == 1 {
			store = other
		}
		wg.Go(func() {
			<-gate
			for range 4 * keys {
				due, err := store.Due(b.ctx, onlyonce.DueRequest{Limit: 2, Grace: dueGrace, Pause: duePause, MaxPause: dueMost})
				if err != nil && !conflicting(err) {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, d := range due {
					got[d.Record.Key.Value]++
				}
				mu.Unlock()
			}
		})
	}
	close(gate)
	wg.Wait()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}

func checkDueOrder(t *testing.T, b *bench) {
	for _, v := range []string{"c", "a", "b"} {
		b.want(t, keeping(v), onlyonce.Won)
		b.clock.Advance(time.Second)
	}
	b.clock.Advance(lease + dueGrace)
	if got := valuesOf(b.due(t, 2)); got != "c a" {
		t.Errorf("due %q, want those that waited longest, c and a", got)
	}
	if got := valuesOf(b.due(t, 2)); got != "b" {
		t.Errorf("due %q, want b", got)
	}
}

func checkDueOperations(t *testing.T, b *bench) {
	for _, v := range []string{"POST /charges", "POST /refunds"} {
		req := keeping(v)
		req.Operation = v
		b.want(t, req, onlyonce.Won)
	}
	b.clock.Advance(lease + dueGrace)
	for _, ask := range []struct {
		operations []string
		want       string
	}{
		{[]string{}, ""},
		{[]string{"POST /orders"}, ""},
		{[]string{"POST /refunds", "POST /orders"}, "POST /refunds"},
		{nil, "POST /charges"},
	} {
		due, err := b.recovery().Due(b.ctx, onlyonce.DueRequest{Limit: 10, Grace: dueGrace, Pause: duePause, MaxPause: dueMost, Operations: ask.operations})
		if got := valuesOf(due); err != nil || got != ask.want {
			t.Errorf("due of %q: %q, %v; want %q", ask.operations, got, err, ask.want)
		}
		for _, d := range due {
			if d.Turn != 1 {
				t.Errorf("turn %d of %s, want the first", d.Turn, d.Record.Operation)
			}
		}
	}
	for _, limit := range []int{0, -1} {
		_, err := b.recovery().Due(b.ctx, onlyonce.DueRequest{Limit: limit, Grace: dueGrace, Pause: duePause, MaxPause: dueMost})
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("a limit of %d: %v", limit, err)
		}
	}
}

func checkRequeue(t *testing.T, b *bench) {
	req := keeping("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.park(t, owner, false)
	b.clock.Advance(lease + dueGrace)
	b.wantDue(t, "k")
	if found, err := b.recovery().Requeue(b.ctx, req.Key); !found || err != nil {
		t.Fatalf("requeue: %v, %v", found, err)
	}
	if due := b.wantDue(t, "k"); len(due) == 1 && due[0].Turn != 1 {
		t.Errorf("turn %d after requeue, want 1", due[0].Turn)
	}
	for _, key := range []onlyonce.Key{request("absent").Key, b.want(t, stepRequest("not kept"), onlyonce.Won).Record.Key} {
		if found, err := b.recovery().Requeue(b.ctx, key); found || err != nil {
			t.Errorf("requeue of %q: %v, %v", key.Value, found, err)
		}
	}
}

func checkKeptNoLonger(t *testing.T, b *bench) {
	ends := map[string]func(onlyonce.Owner){
		"completed": func(o onlyonce.Owner) { b.complete(t, o, created()) },
		"released":  func(o onlyonce.Owner) { b.release(t, o) },
	}
	for name, end := range ends {
		req := keeping(name)
		end(b.want(t, req, onlyonce.Won).Record.Owner())
		if kept, found, err := b.recovery().Kept(b.ctx, req.Key); found || err != nil {
			t.Errorf("%s: %q is kept, %v", name, kept, err)
		}
	}
	// The next life of a freed key keeps its own.
	req := keeping("released")
	req.Keep = []byte("second")
	b.want(t, req, onlyonce.Resumed)
	if kept, found, _ := b.recovery().Kept(b.ctx, req.Key); !found || string(kept) != "second" {
		t.Errorf("after a second claim %q is kept, %v", kept, found)
	}
}
