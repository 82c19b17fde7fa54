package storetest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
)

// doubtRules are about keys in doubt, and who may claim them.
func doubtRules() []rule {
	return []rule{
		{"C1_only_the_doubt_that_was_seen_is_resolved", "a key that was put in doubt anew was claimed by an attempt that had decided about an earlier doubt", checkDoubtSeen},
		{"O2_any_reason_can_be_recorded", "a key whose handler failed with an odd message could not be put in doubt, or freed", checkReasons},
	}
}

// heldRules are about keys that are in doubt until there is an answer, with their
// requests (onlyonce.Request.Hold).
func heldRules() []rule {
	rules := []rule{
		{"D6_a_resumed_life_takes_what_is_to_be_kept", "a life that had kept nothing, or nothing any more, was resumed with a request to keep, and it is lost", checkKeptLater},
		{"D6_a_held_key_keeps_its_request", "the request of a held key got lost before there was an answer", checkKeptThroughDoubt},
		{"O2_what_steps_have_done_can_be_held", "a freed operation made of steps could not be put in doubt and claimed to be held, or lost its steps or its request", checkSeized},
	}
	return onlyWith("recovery", func(f onlyonce.Features) bool { return f.Recovery && f.Steps }, rules)
}

// resolving is another claim that resolves a doubt, and would leave one after a crash.
func resolving(req onlyonce.ClaimRequest) onlyonce.ClaimRequest {
	req = again(req)
	req.Resolve, req.Abandon = true, onlyonce.AbandonHold
	return req
}

func checkDoubtSeen(t *testing.T, b *bench) {
	req := request("k")
	first := b.want(t, req, onlyonce.Won).Record
	b.park(t, first.Owner(), false)
	second := resolving(req)
	second.Doubt = first.Fence
	c := b.want(t, second, onlyonce.Resumed)
	if again := b.want(t, second, onlyonce.Resumed); again.Record.Owner() != c.Record.Owner() {
		t.Errorf("the repeated claim is another one: %+v", again.Record)
	}
	b.park(t, c.Record.Owner(), false)
	before := b.get(t, req.Key)
	late := resolving(req)
	late.Doubt = first.Fence
	if got := b.want(t, late, onlyonce.Doubtful); got.Record.Fence != before.Fence || got.Record.Reason != before.Reason {
		t.Errorf("refused with %+v, want the present doubt", got.Record)
	}
	if diff := cmp.Diff(before, b.get(t, req.Key)); diff != "" {
		t.Errorf("a refused claim changed the record (-before +after):\n%s", diff)
	}
	late.Doubt = before.Fence
	b.release(t, b.want(t, late, onlyonce.Resumed).Record.Owner())
	free := resolving(req)
	free.Doubt = before.Fence
	b.want(t, free, onlyonce.Resumed) // it is free: there is no doubt to be wrong about
}

func checkReasons(t *testing.T, b *bench) {
	for name, reason := range map[string]string{
		"nul":     "held: \x00broken",
		"no text": "held: \xff\xfe\xc3",
		"long":    "held: " + strings.Repeat("é", 100_000),
		"quotes":  "held: 'x\\' \"y\"\n\t$1 %s ?",
	} {
		parked := b.want(t, request("parked: "+name), onlyonce.Won).Record.Owner()
		if held, err := b.store.Park(b.ctx, onlyonce.ParkRequest{Owner: parked, Reason: reason}); err != nil || !held {
			t.Errorf("%s: park: %v, %v", name, held, err)
		}
		if rec := b.get(t, parked.Key); rec.State != onlyonce.InDoubt || !strings.HasPrefix(rec.Reason, "held: ") {
			t.Errorf("%s: parked as %q: %.40q", name, rec.State, rec.Reason)
		}
		freed := b.want(t, request("freed: "+name), onlyonce.Won).Record.Owner()
		if held, err := b.store.Release(b.ctx, freed, reason); err != nil || !held {
			t.Errorf("%s: release: %v, %v", name, held, err)
		}
		if rec := b.get(t, freed.Key); rec.State != onlyonce.FailedRetryable {
			t.Errorf("%s: freed as %q", name, rec.State)
		}
	}
}

// wantKept checks what is kept with a key.
func (b *bench) wantKept(t *testing.T, when string, req onlyonce.ClaimRequest) {
	t.Helper()
	kept, found, err := b.recovery().Kept(b.ctx, req.Key)
	if err != nil || !found || string(kept) != string(req.Keep) {
		t.Errorf("%s: kept %q, %v, %v; want %q", when, kept, found, err, req.Keep)
	}
}

func checkKeptLater(t *testing.T, b *bench) {
	for name, before := range map[string]func(first onlyonce.Owner){
		"freed":      func(o onlyonce.Owner) { b.release(t, o) },
		"in doubt":   func(o onlyonce.Owner) { b.park(t, o, false) },
		"taken over": func(onlyonce.Owner) { b.clock.Advance(lease) },
	} {
		for _, kept := range []bool{false, true} {
			req := keeping(name)
			first := req
			if first.Keep = nil; kept && name == "freed" {
				first.Keep = []byte("what goes when the key is freed")
			}
			req.Key.Value += map[bool]string{true: ", had kept"}[kept]
			first.Key = req.Key
			before(b.want(t, first, onlyonce.Won).Record.Owner())
			next := again(req)
			next.Resolve = true
			owner := b.want(t, next, onlyonce.Resumed).Record.Owner()
			b.wantKept(t, name, next)
			b.park(t, owner, false)
			b.wantKept(t, name+", then in doubt", next)
			b.clock.Advance(lease + dueGrace)
			if due := b.due(t, 10); valuesOf(due) != req.Key.Value {
				t.Errorf("%s: due %q", name, valuesOf(due))
			}
			b.complete(t, owner, created())
		}
	}
}

func checkKeptThroughDoubt(t *testing.T, b *bench) {
	req := keeping("k")
	req.Abandon = onlyonce.AbandonHold
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.begin(t, owner, intent("s", 0))
	b.clock.Advance(lease)
	if !b.park(t, owner, true) {
		t.Fatal("not parked")
	}
	b.wantKept(t, "abandoned", req)
	for _, keep := range []string{"", "another"} {
		next := resolving(req)
		if next.Keep = nil; keep != "" {
			next.Keep = []byte(keep)
		}
		b.want(t, next, onlyonce.Resumed)
		b.wantKept(t, "resolved by a request with "+keep, req)
		b.clock.Advance(retention)
		b.sweep(t, 10)
		b.wantKept(t, "swept", req)
		if rec := b.get(t, req.Key); rec.State != onlyonce.InDoubt || rec.Reason != onlyonce.ReasonAbandoned {
			t.Errorf("swept to %q: %q", rec.State, rec.Reason)
		}
	}
	late := b.get(t, req.Key).Owner()
	if s := b.complete(t, late, created()); !s.Held {
		t.Error("the doubted attempt could not complete late")
	}
	if _, found, err := b.recovery().Kept(b.ctx, req.Key); found || err != nil {
		t.Errorf("a completed key keeps something: %v, %v", found, err)
	}
}

func checkSeized(t *testing.T, b *bench) {
	first := stepRequest("k")
	owner := b.want(t, first, onlyonce.Won).Record.Owner()
	b.begin(t, owner, intent("s", 0))
	b.end(t, owner, done("s", "result"))
	b.release(t, owner)
	held := again(keeping("k"))
	held.Abandon = onlyonce.AbandonHold
	b.want(t, held, onlyonce.Doubtful)
	seizing := again(keeping("k"))
	seized := b.want(t, seizing, onlyonce.Resumed).Record
	b.park(t, seized.Owner(), false)
	held = resolving(held)
	held.Doubt = seized.Fence
	c := b.want(t, held, onlyonce.Resumed)
	if c.Record.Abandon != onlyonce.AbandonHold || c.From != onlyonce.InDoubt || c.Record.Attempts != 3 {
		t.Errorf("claimed from %q: %+v", c.From, c.Record)
	}
	b.clock.Advance(lease + dueGrace)
	b.sweep(t, 10)
	if rec := b.get(t, held.Key); rec.State != onlyonce.InDoubt {
		t.Errorf("a crash left %q", rec.State)
	}
	b.wantKept(t, "after a crash", held)
	if steps := b.steps(t, held.Key); len(steps) != 1 || steps[0].State != onlyonce.StepDone {
		t.Errorf("steps: %+v", steps)
	}
}
