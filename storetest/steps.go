package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
)

// stepRules are about recorded steps.
func stepRules() []rule {
	rules := []rule{
		{"D2_an_intent_is_kept_whole", "an intent lost something: a resumed step could not ask or re-send", checkIntent},
		{"D4_a_finished_step_stays_finished", "a step that is done was begun again", checkStepDone},
		{"D1_an_epoch_rises_only_on_proof", "a step got a new derived key while the outcome of the last send was open", checkEpoch},
		{"D4_ages_are_the_stores", "how long ago a send was recorded must be told by the store's clock", checkAges},
		{"D_steps_belong_to_one_life", "steps of an expired key leaked into its next life, or were lost in a takeover", checkStepLife},
		{"D_a_freed_key_outlives_its_retention_while_steps_stand_behind_it", "a key was forgotten whose finished steps nobody has answered for: its next life would do them again", checkFreedStepLives},
		{"C6_a_step_beside_a_takeover_is_refused_or_seen", "a step was begun by an owner that had lost its key, and whoever had it did not see the step: both send", checkStepBeside},
		{"X2_steps_outlive_keys", "steps must go only when their life is over and their retention past", checkStepSweep},
	}
	return onlyWith("steps", func(f onlyonce.Features) bool { return f.Steps }, rules)
}

func intent(name string, epoch int) onlyonce.Intent {
	return onlyonce.Intent{
		Name: name, Provider: "acme", Epoch: epoch, DerivedKey: "key-of-" + name, Reference: "ref-of-" + name,
		Request: []byte{'{', 0, 0xff, '}'}, SendWithin: 20 * time.Second,
	}
}

func done(name, result string) onlyonce.StepEnd {
	return onlyonce.StepEnd{Name: name, State: onlyonce.StepDone, Result: []byte(result)}
}

func (b *bench) stepStore() onlyonce.StepStore {
	return b.store.(onlyonce.StepStore) //nolint:forcetypeassert // Features().Steps says so
}

func (b *bench) begin(t *testing.T, o onlyonce.Owner, in onlyonce.Intent) {
	t.Helper()
	if held, err := b.stepStore().BeginStep(b.ctx, o, in); err != nil || !held {
		t.Fatalf("begin step %s: held %v, %v", in.Name, held, err)
	}
}

func (b *bench) end(t *testing.T, o onlyonce.Owner, end onlyonce.StepEnd) {
	t.Helper()
	if held, err := b.stepStore().EndStep(b.ctx, o, end); err != nil || !held {
		t.Fatalf("end step %s: held %v, %v", end.Name, held, err)
	}
}

func (b *bench) steps(t *testing.T, key onlyonce.Key) []onlyonce.StepRecord {
	t.Helper()
	steps, err := b.stepStore().Steps(b.ctx, key)
	if err != nil {
		t.Fatalf("steps: %v", err)
	}
	return steps
}

// stepRequest is a claim of an operation made of steps.
func stepRequest(value string) onlyonce.ClaimRequest {
	req := request(value)
	req.Abandon = onlyonce.AbandonResume
	return req
}

func checkIntent(t *testing.T, b *bench) {
	req := stepRequest("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	first, second, loop := intent("b", 0), intent("a", 0), intent("b", 0)
	loop.Occurrence = 1
	for _, in := range []onlyonce.Intent{first, second, loop} {
		b.begin(t, owner, in)
		b.clock.Advance(time.Second)
	}
	b.end(t, owner, done("a", ""))
	want := []onlyonce.StepRecord{
		{Intent: first, State: onlyonce.StepBegun, Sends: 1, Age: 3 * time.Second, Idle: 3 * time.Second},
		{Intent: second, State: onlyonce.StepDone, Result: []byte{}, Sends: 1, Age: 2 * time.Second, Idle: 2 * time.Second},
		{Intent: loop, State: onlyonce.StepBegun, Sends: 1, Age: time.Second, Idle: time.Second},
	}
	if diff := cmp.Diff(want, b.steps(t, req.Key)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func checkStepDone(t *testing.T, b *bench) {
	req := stepRequest("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.begin(t, owner, intent("s", 0))
	b.end(t, owner, done("s", "result"))
	b.end(t, owner, done("s", "another")) // repeated: the first result stands
	for _, epoch := range []int{0, 1} {
		if held, err := b.stepStore().BeginStep(b.ctx, owner, intent("s", epoch)); held || err != nil {
			t.Errorf("a finished step was begun again in epoch %d: %v", epoch, err)
		}
	}
	if held, err := b.stepStore().EndStep(b.ctx, owner, onlyonce.StepEnd{Name: "s", State: onlyonce.StepNotApplied}); held || err != nil {
		t.Errorf("a finished step was declared not applied: %v", err)
	}
	if held, err := b.stepStore().EndStep(b.ctx, owner, done("never begun", "x")); held || err != nil {
		t.Errorf("a step that never began was ended: %v", err)
	}
	if s := b.steps(t, req.Key); len(s) != 1 || string(s[0].Result) != "result" {
		t.Errorf("steps: %+v", s)
	}
}

func checkEpoch(t *testing.T, b *bench) {
	req := stepRequest("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.begin(t, owner, intent("s", 0))
	if held, err := b.stepStore().BeginStep(b.ctx, owner, intent("s", 1)); held || err != nil {
		t.Errorf("a step whose send is open went to the next epoch: %v", err)
	}
	b.end(t, owner, onlyonce.StepEnd{Name: "s", State: onlyonce.StepNotApplied})
	if held, err := b.stepStore().BeginStep(b.ctx, owner, intent("s", 0)); held || err != nil {
		t.Errorf("a step that was not applied was sent again under its old key: %v", err)
	}
	b.clock.Advance(time.Second)
	next := intent("s", 1)
	next.DerivedKey = "another"
	b.begin(t, owner, next)
	want := []onlyonce.StepRecord{{Intent: next, State: onlyonce.StepBegun, Sends: 1}}
	if diff := cmp.Diff(want, b.steps(t, req.Key)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func checkAges(t *testing.T, b *bench) {
	req := stepRequest("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.begin(t, owner, intent("s", 0))
	b.clock.Advance(10 * time.Second)
	shorter := intent("s", 0)
	shorter.SendWithin = 5 * time.Second
	b.begin(t, owner, shorter)
	b.clock.Advance(3 * time.Second)
	s := b.steps(t, req.Key)
	if len(s) != 1 || s[0].Sends != 2 || s[0].Age != 13*time.Second || s[0].Idle != 3*time.Second {
		t.Fatalf("steps: %+v", s)
	}
	// The first send, 20 s from its beginning, may leave later than the second.
	if s[0].SendWithin != 10*time.Second {
		t.Errorf("something may leave %v after the last beginning, want 10s", s[0].SendWithin)
	}
}

func checkStepLife(t *testing.T, b *bench) {
	req := stepRequest("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.begin(t, owner, intent("s", 0))
	b.end(t, owner, done("s", "result"))
	b.clock.Advance(lease)
	owner = b.want(t, again(req), onlyonce.Resumed).Record.Owner()
	if s := b.steps(t, req.Key); len(s) != 1 || s[0].State != onlyonce.StepDone {
		t.Errorf("after a takeover: %+v", s)
	}
	b.complete(t, owner, created())
	b.clock.Advance(retention)
	owner = b.want(t, again(req), onlyonce.Won).Record.Owner()
	if s := b.steps(t, req.Key); len(s) != 0 {
		t.Errorf("the next life sees steps of the last one: %+v", s)
	}
	b.begin(t, owner, intent("s", 0))
	if s := b.steps(t, req.Key); len(s) != 1 || s[0].State != onlyonce.StepBegun {
		t.Errorf("the next life's own step: %+v", s)
	}
}

func checkStepSweep(t *testing.T, b *bench) {
	req, live := stepRequest("k"), stepRequest("live")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.begin(t, owner, intent("s", 0))
	b.end(t, owner, done("s", "result"))
	b.complete(t, owner, created())
	b.begin(t, b.want(t, live, onlyonce.Won).Record.Owner(), intent("s", 0))
	b.clock.Advance(retention)
	if r := b.sweep(t, 100); r.Deleted != 1 || r.Steps != 0 {
		t.Errorf("swept %+v, want one key and no step", r)
	}
	b.clock.Advance(91 * 24 * time.Hour)
	if r := b.sweep(t, 100); r.Steps != 1 {
		t.Errorf("swept %+v, want one step", r)
	}
	if s := b.steps(t, live.Key); len(s) != 1 {
		t.Errorf("a live key lost its steps: %+v", s)
	}
}

func checkFreedStepLives(t *testing.T, b *bench) {
	for name, end := range map[string]onlyonce.StepState{"done": onlyonce.StepDone, "not applied": onlyonce.StepNotApplied} {
		req := stepRequest(name)
		owner := b.want(t, req, onlyonce.Won).Record.Owner()
		b.begin(t, owner, intent("s", 0))
		b.end(t, owner, onlyonce.StepEnd{Name: "s", State: end})
		b.release(t, owner)
		life := retention
		if end == onlyonce.StepDone {
			life = onlyonce.FreedStepRetention
		}
		b.clock.Advance(life - time.Microsecond)
		b.sweep(t, 100)
		if c := b.claim(t, again(req)); c.Verdict != onlyonce.Resumed || len(b.steps(t, req.Key)) != 1 {
			t.Errorf("%s: %v just before %v were over, with %d steps", name, c.Verdict, life, len(b.steps(t, req.Key)))
		}
		b.release(t, b.get(t, req.Key).Owner())
		b.clock.Advance(life)
		b.want(t, again(req), onlyonce.Won)
	}
}
