package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// resourceRules are about resources that claims name (rule C12).
func resourceRules() []rule {
	rules := []rule{
		{"C12_one_key_holds_a_resource", "two keys worked on one resource: the same order could be paid twice", checkResourceBusy},
		{"C12_doubt_keeps_the_resource", "a resource was free while what became of it was unknown", checkResourceDoubt},
		{"C12_a_settled_key_lets_the_resource_go", "a resource stayed taken for good", checkResourceFreed},
		{"C12_a_freed_key_with_a_finished_step_holds_on", "money had moved, and the resource was free for another key", checkResourceBehindStep},
		{"C12_scopes_do_not_share_resources", "one tenant's order was locked by another's", checkResourceScopes},
		{"C12_one_of_many_wins_the_resource", "simultaneous claims of one resource must leave one owner", checkResourceRace},
		{"C12_an_expired_holder_holds_nothing", "a record that has expired still held its resource", checkResourceExpired},
		{"C12_a_resumed_life_keeps_its_resource", "a takeover lost the resource of its key", checkResourceResumed},
	}
	return onlyWith("resources", func(f onlyonce.Features) bool { return f.Resources }, rules)
}

// onlyWith skips rules of a store that does not promise what they are about.
func onlyWith(what string, promised func(onlyonce.Features) bool, rules []rule) []rule {
	for i := range rules {
		fn := rules[i].check
		rules[i].check = func(t *testing.T, b *bench) {
			if !promised(b.store.Features()) {
				t.Skip("not promised: " + what)
			}
			fn(t, b)
		}
	}
	return rules
}

// on is a request that names a resource.
func on(resource, value string) onlyonce.ClaimRequest {
	req := stepRequest(value)
	req.Resource = resource
	return req
}

func checkResourceBusy(t *testing.T, b *bench) {
	one, two := on("order/1", "one"), on("order/1", "two")
	first := b.want(t, one, onlyonce.Won).Record
	if first.Resource != "order/1" || !first.Holds {
		t.Errorf("the owner's record has resource %q, holds %v", first.Resource, first.Holds)
	}
	busy := b.want(t, two, onlyonce.ResourceBusy)
	if busy.Record.Key != one.Key || busy.Remaining != lease {
		t.Errorf("the holder is %q, its lease %v; want %q, %v", busy.Record.Key.Value, busy.Remaining, "one", lease)
	}
	if _, found, err := b.store.Get(b.ctx, two.Key); found || err != nil {
		t.Errorf("a refused claim left a record: %v, %v", found, err)
	}
	b.want(t, one, onlyonce.Won)         // its own claim again
	b.want(t, again(one), onlyonce.Busy) // by its key, not by its resource
	b.want(t, on("order/2", "three"), onlyonce.Won)
	other := again(one)
	other.Fingerprint = fingerprintOf("b")
	b.want(t, other, onlyonce.Mismatch)
	b.clock.Advance(10 * lease)
	b.want(t, two, onlyonce.ResourceBusy) // abandoned is not settled
}

func checkResourceDoubt(t *testing.T, b *bench) {
	one, two := on("r", "one"), on("r", "two")
	owner := b.want(t, one, onlyonce.Won).Record.Owner()
	b.park(t, owner, false)
	b.clock.Advance(1000 * time.Hour)
	if c := b.want(t, two, onlyonce.ResourceBusy); c.Record.State != onlyonce.InDoubt {
		t.Errorf("the holder is %q", c.Record.State)
	}
	b.complete(t, owner, created()) // the late completion still wins
	b.want(t, two, onlyonce.Won)
}

func checkResourceFreed(t *testing.T, b *bench) {
	ends := map[string]func(onlyonce.Owner){
		"completed": func(o onlyonce.Owner) { b.complete(t, o, created()) },
		"released":  func(o onlyonce.Owner) { b.release(t, o) },
		"swept": func(onlyonce.Owner) {
			b.clock.Advance(time.Hour)
			if _, err := b.store.Sweep(b.ctx, sweepAll()); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, end := range ends {
		req := on(name, "first "+name)
		end(b.want(t, req, onlyonce.Won).Record.Owner())
		if rec := b.get(t, req.Key); rec.Holds || rec.Resource != name {
			t.Errorf("%s: resource %q, holds %v", name, rec.Resource, rec.Holds)
		}
		next := on(name, "second "+name)
		b.want(t, next, onlyonce.Won)
		if name != "completed" { // the same request again finds the resource taken
			b.want(t, again(req), onlyonce.ResourceBusy)
		}
	}
}

func checkResourceBehindStep(t *testing.T, b *bench) {
	one, two := on("r", "one"), on("r", "two")
	owner := b.want(t, one, onlyonce.Won).Record.Owner()
	b.begin(t, owner, intent("charge", 0))
	b.end(t, owner, done("charge", "ok"))
	b.release(t, owner)
	b.want(t, two, onlyonce.ResourceBusy)
	owner = b.want(t, again(one), onlyonce.Resumed).Record.Owner()
	b.complete(t, owner, created())
	b.want(t, two, onlyonce.Won)

	// A step of which it is proved that nothing came holds nothing.
	one, two = on("q", "three"), on("q", "four")
	owner = b.want(t, one, onlyonce.Won).Record.Owner()
	b.begin(t, owner, intent("charge", 0))
	b.end(t, owner, onlyonce.StepEnd{Name: "charge", State: onlyonce.StepNotApplied})
	b.release(t, owner)
	b.want(t, two, onlyonce.Won)
}

func checkResourceScopes(t *testing.T, b *bench) {
	one, two := on("order/1", "k"), on("order/1", "k")
	two.Key.Scope = "other"
	b.want(t, one, onlyonce.Won)
	b.want(t, two, onlyonce.Won)
	// Joining is unambiguous.
	a, c := on("b:c", "x"), on("c", "y")
	a.Key.Scope, c.Key.Scope = "a", "a:b"
	b.want(t, a, onlyonce.Won)
	b.want(t, c, onlyonce.Won)
	// Bytes, not letters (rule K3).
	b.want(t, on("R", "upper"), onlyonce.Won)
	b.want(t, on("r", "lower"), onlyonce.Won)
}

func checkResourceRace(t *testing.T, b *bench) {
	const contenders = 8
	verdicts := make(chan onlyonce.Verdict, contenders)
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range contenders {
		wg.Go(func() {
			<-gate
			for {
				c, err := b.store.Claim(b.ctx, on("r", fmt.Sprint(i)))
				if conflicting(err) {
					continue
				}
				if err != nil {
					t.Error(err)
				}
				verdicts <- c.Verdict
				return
			}
		})
	}
	close(gate)
	wg.Wait()
	close(verdicts)
	got := map[onlyonce.Verdict]int{}
	for v := range verdicts {
		got[v]++
	}
	if got[onlyonce.Won] != 1 || got[onlyonce.ResourceBusy] != contenders-1 {
		t.Errorf("verdicts %v, want one owner", got)
	}
}

func conflicting(err error) bool { return onlyonce.CodeOf(err) == onlyonce.CodeConflict }

func checkResourceExpired(t *testing.T, b *bench) {
	one, two := on("r", "one"), on("r", "two")
	owner := b.want(t, one, onlyonce.Won).Record.Owner()
	b.begin(t, owner, intent("charge", 0))
	b.end(t, owner, done("charge", "ok"))
	b.release(t, owner)
	b.clock.Advance(onlyonce.FreedStepRetention)
	b.want(t, two, onlyonce.Won)
	b.want(t, again(one), onlyonce.ResourceBusy) // a new life of the first
}

func checkResourceResumed(t *testing.T, b *bench) {
	one := on("r", "one")
	b.want(t, one, onlyonce.Won)
	b.clock.Advance(lease)
	bare := again(one)
	bare.Resource = ""
	if rec := b.want(t, bare, onlyonce.Resumed).Record; rec.Resource != "r" || !rec.Holds {
		t.Errorf("after a takeover: resource %q, holds %v", rec.Resource, rec.Holds)
	}
	b.want(t, on("r", "two"), onlyonce.ResourceBusy)
	// Nor does a deploy that names it otherwise let it go.
	b.clock.Advance(lease)
	renamed := again(one)
	renamed.Resource = "q"
	b.want(t, on("q", "three"), onlyonce.Won)
	if rec := b.want(t, renamed, onlyonce.Resumed).Record; rec.Resource != "r" || !rec.Holds {
		t.Errorf("after a takeover under another name: resource %q, holds %v", rec.Resource, rec.Holds)
	}
	b.want(t, on("r", "two"), onlyonce.ResourceBusy)
}

// sweepAll is a sweep of whatever is due.
func sweepAll() onlyonce.SweepRequest {
	return onlyonce.SweepRequest{Limit: 1000, Grace: time.Minute, StepRetention: 90 * 24 * time.Hour}
}
