package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// txStepRules are about steps whose effect is in the store's own database.
func txStepRules[Tx any]() []txRule[Tx] {
	rules := []txRule[Tx]{
		{"D_a_step_in_a_transaction_commits_all_or_nothing", "a business write and the record of its step did not share one fate", checkTxStep[Tx]},
		{"C6_a_step_in_a_transaction_is_fenced", "a step of an attempt that was taken over was committed", checkTxStepFenced[Tx]},
		{"C10_a_step_in_a_transaction_is_repeatable", "a step whose commit's reply was lost was done twice", checkTxStepRepeat[Tx]},
		{"D4_a_step_keeps_its_kind", "a step in a transaction was taken for one outside, or the other way round", checkTxStepKind[Tx]},
	}
	rules = append(rules, txRule[Tx]{"X1_what_never_left_the_store_waits_for_its_caller", "the recoverer would go on where a caller was told that nothing had happened", checkTxStepNotDue[Tx]})
	for i := range rules {
		fn := rules[i].check
		rules[i].check = func(t *testing.T, b *txBench[Tx]) {
			if !b.store.Features().Steps {
				t.Skip("not promised: steps")
			}
			fn(t, b)
		}
	}
	return rules
}

// reserves is a step's code that adds a name.
func (b *txBench[Tx]) reserves(name string) onlyonce.TxStepFunc[Tx] {
	return func(ctx context.Context, tx Tx) ([]byte, error) {
		return []byte("result of " + name), b.Write(ctx, tx, name)
	}
}

func checkTxStep[Tx any](t *testing.T, b *txBench[Tx]) {
	owner := b.want(t, stepRequest("k"), onlyonce.Won).Record.Owner()
	step := onlyonce.TxStep{Name: "reserve"}
	for name, fail := range map[string]func(){"error": nil, "panic": func() { panic(errBusiness) }} {
		err := stepOrPanic(b, owner, step, func(ctx context.Context, tx Tx) ([]byte, error) {
			if err := b.Write(ctx, tx, name); err != nil {
				return nil, err
			}
			if fail != nil {
				fail()
			}
			return nil, errBusiness
		})
		if !errors.Is(err, errBusiness) {
			t.Errorf("%s: the function's error must come back as it is, got %v", name, err)
		}
		b.count(t, name, 0)
	}
	if steps := b.steps(t, owner.Key); len(steps) != 0 {
		t.Errorf("a failed step left %+v", steps)
	}
	result, held, err := b.tx.StepTx(b.ctx, owner, step, b.reserves("k"))
	if err != nil || !held || string(result) != "result of k" {
		t.Fatalf("step: %q, held %v, %v", result, held, err)
	}
	b.count(t, "k", 1)
	steps := b.steps(t, owner.Key)
	if len(steps) != 1 || steps[0].Name != "reserve" || steps[0].Provider != onlyonce.ProviderStore ||
		steps[0].State != onlyonce.StepDone || string(steps[0].Result) != "result of k" {
		t.Errorf("recorded: %+v", steps)
	}
	b.begin(t, owner, intent("next", 0)) // in order behind it
	if steps := b.steps(t, owner.Key); len(steps) != 2 || steps[1].Name != "next" {
		t.Errorf("recorded: %+v", steps)
	}
}

func stepOrPanic[Tx any](b *txBench[Tx], owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[Tx]) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err, _ = v.(error)
		}
	}()
	_, _, err = b.tx.StepTx(b.ctx, owner, step, fn)
	return err
}

func checkTxStepFenced[Tx any](t *testing.T, b *txBench[Tx]) {
	req := stepRequest("k")
	zombie := b.want(t, req, onlyonce.Won).Record.Owner()
	step := onlyonce.TxStep{Name: "reserve"}
	b.clock.Advance(lease)
	owner := b.want(t, again(req), onlyonce.Resumed).Record.Owner()
	if _, held, err := b.tx.StepTx(b.ctx, zombie, step, b.reserves("zombie")); held || err != nil {
		t.Errorf("a fenced attempt did a step: held %v, %v", held, err)
	}
	b.count(t, "zombie", 0)
	if _, held, err := b.tx.StepTx(b.ctx, owner, step, b.reserves("owner")); !held || err != nil {
		t.Errorf("the owner: held %v, %v", held, err)
	}
	b.complete(t, owner, created())
	late := onlyonce.TxStep{Name: "late"}
	if _, held, err := b.tx.StepTx(b.ctx, owner, late, b.reserves("late")); held || err != nil {
		t.Errorf("a completed key did a step: held %v, %v", held, err)
	}
	b.count(t, "late", 0)
	b.count(t, "owner", 1)
}

func checkTxStepRepeat[Tx any](t *testing.T, b *txBench[Tx]) {
	req := stepRequest("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	step := onlyonce.TxStep{Name: "reserve", Occurrence: 3}
	for range 2 {
		result, held, err := b.tx.StepTx(b.ctx, owner, step, b.reserves("k"))
		if err != nil || !held || string(result) != "result of k" {
			t.Fatalf("step: %q, held %v, %v", result, held, err)
		}
	}
	b.clock.Advance(lease)
	owner = b.want(t, again(req), onlyonce.Resumed).Record.Owner()
	result, held, err := b.tx.StepTx(b.ctx, owner, step, b.reserves("other"))
	if err != nil || !held || string(result) != "result of k" {
		t.Errorf("after a takeover: %q, held %v, %v", result, held, err)
	}
	b.count(t, "k", 1)
	b.count(t, "other", 0)
}

func checkTxStepKind[Tx any](t *testing.T, b *txBench[Tx]) {
	owner := b.want(t, stepRequest("k"), onlyonce.Won).Record.Owner()
	b.begin(t, owner, intent("charge", 0))
	if _, held, err := b.tx.StepTx(b.ctx, owner, onlyonce.TxStep{Name: "charge"}, b.reserves("k")); held || err != nil {
		t.Errorf("a begun call was done as a step of the store: held %v, %v", held, err)
	}
	b.count(t, "k", 0)
	if _, held, err := b.tx.StepTx(b.ctx, owner, onlyonce.TxStep{Name: "reserve"}, b.reserves("k")); !held || err != nil {
		t.Fatalf("step: held %v, %v", held, err)
	}
	if held, err := b.stepStore().BeginStep(b.ctx, owner, intent("reserve", 0)); held || err != nil {
		t.Errorf("a step of the store was begun as a call: held %v, %v", held, err)
	}
}

func checkTxStepNotDue[Tx any](t *testing.T, b *txBench[Tx]) {
	if !b.store.Features().Recovery {
		t.Skip("not promised: recovery")
	}
	freed := b.want(t, keeping("freed"), onlyonce.Won).Record.Owner()
	abandoned := b.want(t, keeping("abandoned"), onlyonce.Won).Record.Owner()
	for _, o := range []onlyonce.Owner{freed, abandoned} {
		if _, held, err := b.tx.StepTx(b.ctx, o, onlyonce.TxStep{Name: "reserve"}, b.reserves("k")); !held || err != nil {
			t.Fatalf("step: held %v, %v", held, err)
		}
	}
	b.release(t, freed)
	b.clock.Advance(lease + dueGrace)
	b.wantDue(t, "abandoned")
	if _, found, err := b.recovery().Kept(b.ctx, freed.Key); !found || err != nil {
		t.Errorf("behind a finished step the request is no longer kept: %v, %v", found, err)
	}
}
