package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// keysSettleCmd is an operator's word on a key in doubt.
type keysSettleCmd struct {
	keysFlag
	Key        string `arg:"" help:"The idempotency key."`
	Scope      string `required:"" help:"Whose key it is: in the payments service, the merchant."`
	Applied    string `xor:"outcome" required:"" env:"-" placeholder:"FILE" help:"The effect has happened: JSON file with the result of its step, {\"step\": \"charge\", \"result\": {\"status\": \"succeeded\", \"id\": …}}, or with an answer, {\"status\": 201, \"headers\": {…}, \"body\": …}; - reads standard input."`
	NotApplied bool   `xor:"outcome" required:"" env:"-" help:"It is proved that the effect has not happened; the next retry runs again."`
	AnswerOnly bool   `env:"-" help:"Store the answer of FILE although a step has left, or may have: nothing else is written."`
	Reason     string `required:"" env:"-" help:"How that is known. Kept for good."`
	Actor      string `env:"ONLYONCE_ACTOR,USER" help:"Who says so. Default: the user of this session."`
	JSON       bool   `name:"json" env:"-" help:"Print the key as JSON."`
}

// Help says what settling does, and what it does not.
func (c *keysSettleCmd) Help() string {
	return `Most doubts settle themselves: a retry with the same key, or the service's recoverer, asks the processor. Settle by hand what that cannot.
keys show names the step, our reference to ask the processor by, and what can be done.

--applied with a step's result records it as if the processor had answered. When all steps are done the operation then runs to its end, and makes
answer, rows and ledger entries as ever. A result has status succeeded or declined, and the processor's id; a declined one has its code:
  {"step": "charge", "result": {"status": "declined", "id": "pc_…", "code": "insufficient_funds"}}

--applied with an answer stores that answer, which retries get, and nothing else. For an operation with a step that has left, or may have, the
books would lack it: that is refused, unless --answer-only says that it is meant.

--not-applied frees the key and what it holds: the next retry runs again. A checkout that nobody retries is cancelled by the service
a quarter of an hour after it was made, and its stock given back.

Where the store has no tables of the payments service, its keys are another program's: a step's result is any JSON there, as that program's own code
would have recorded it (a string is the text itself), and that program makes the answer of it, at the next retry by the client or by its Recoverer.`
}

// Run settles.
func (c *keysSettleCmd) Run(ctx context.Context, std Streams) error {
	if c.Actor == "" {
		return &usageError{"--actor is required: this session names no user", "say who settles the key: --actor NAME"}
	}
	if c.AnswerOnly && c.NotApplied {
		return &usageError{"--answer-only goes with --applied FILE: --not-applied stores no answer", "leave one of the two out"}
	}
	s := onlyonce.Settlement{Key: onlyonce.Key{Scope: c.Scope, Value: c.Key}, Actor: c.Actor, Reason: c.Reason}
	if !c.NotApplied {
		if err := c.read(std.In, &s); err != nil {
			return err
		}
	}
	return c.look(ctx, func(o opened) error {
		err := c.loses(ctx, o, s.Key)
		if err != nil {
			return err
		}
		if s.Results, err = c.check(ctx, o, s); err != nil {
			return err
		}
		rec, err := o.settle(ctx, s)
		if err != nil {
			return err
		}
		var end settled
		if len(s.Results) > 0 && rec.State == onlyonce.FailedRetryable {
			rec, end = o.finish(ctx, rec)
		}
		if err := c.print(std, rec, end.note); err != nil {
			return err
		}
		return end.unknown
	})
}

// loses refuses to free the key of a message that nobody but the store has: it would go.
func (c *keysSettleCmd) loses(ctx context.Context, o opened, key onlyonce.Key) error {
	store, keeps := onlyonce.RecoveryOf(o.Store.Store)
	if !c.NotApplied || !keeps || !inbox.Owns(key) {
		return nil
	}
	_, kept, err := store.Kept(ctx, key)
	if err != nil {
		return fmt.Errorf("read what is kept with the key: %w", err)
	}
	if !kept {
		return nil
	}
	return &usageError{
		"--not-applied would delete the message that is kept with the key, and whoever sent it has forgotten it",
		"onlyonce inbox retry tries it again, onlyonce inbox drop says that it is not to be handled",
	}
}

// settled is what became of the answer of a key that is settled.
type settled struct {
	// note says what is left to do; unknown is set where that is to find out what
	// happened.
	note    string
	unknown error
}

// finish lets the payments service make the answer; of another program's key it says
// who does. However that ends, the key is settled: an error here must not look as if it
// had to be settled again.
func (o opened) finish(ctx context.Context, rec onlyonce.Record) (onlyonce.Record, settled) {
	if o.payments == nil {
		return rec, settled{note: "the store has no tables of the payments service: the program whose key it is makes the answer, at a retry by its client or by its Recoverer"}
	}
	note, failed := finishSettled(ctx, o.payments, rec.Key)
	now, steps, err := findKey(ctx, o.Store.Store, rec.Key)
	if err == nil {
		rec = now
	}
	if failed == nil {
		failed = err
	}
	switch {
	case failed == nil && (note != "" || rec.State == onlyonce.Completed):
		return rec, settled{note: note}
	case failed == nil:
		failed = fmt.Errorf("the handler has left it %s: %s", rec.State, rec.Reason)
	}
	end := settled{note: fmt.Sprintf("settled; the answer is still to be made: %v", failed)}
	for _, what := range (situation{rec: rec, steps: steps, kept: true, payments: true}).next() {
		end.note += "\n- " + what
	}
	if rec.State == onlyonce.InDoubt || exitOf(onlyonce.CodeOf(failed)) == exitUnknown {
		end.unknown = &onlyonce.Error{Code: onlyonce.CodeOutcomeUnknown, Op: "make the answer of a settled key", Operation: rec.Key.Operation(), Err: failed}
	}
	return rec, end
}

// print says how the key is now. Notes are for people: beside JSON they are no part
// of what is read.
func (c *keysSettleCmd) print(std Streams, rec onlyonce.Record, note string) error {
	out := std.Out
	if c.JSON {
		if err := printJSON(std.Out, viewOf(rec)); err != nil {
			return err
		}
		out = std.Err
	} else {
		printState(std.Out, rec)
	}
	if note != "" {
		fmt.Fprintln(out, note)
	}
	if c.AnswerOnly && rec.State == onlyonce.Completed {
		fmt.Fprintln(out, "warning: only the answer is stored. What the operation has done elsewhere is not in the service's books"+freed(rec)+".")
	}
	return nil
}

// freed says what others may do now that a key is completed.
func freed(rec onlyonce.Record) string {
	if rec.Resource == "" {
		return ""
	}
	return ", and another key may work on " + rec.Resource + " now"
}

// read takes the outcome from FILE.
func (c *keysSettleCmd) read(stdin io.Reader, s *onlyonce.Settlement) error {
	text, err := readInput(c.Applied, stdin)
	if err != nil {
		return &usageError{fmt.Sprintf("--applied: %v", err), "name a file with the step's result or the answer, or - for standard input"}
	}
	if isResult(text) {
		result, err := parseResult(text)
		if err != nil {
			return &usageError{fmt.Sprintf("--applied %s: %v", c.Applied, err), resultHint}
		}
		s.Results = []onlyonce.StepResult{result}
		return nil
	}
	answer, err := parseAnswer(text)
	if err != nil {
		return &usageError{fmt.Sprintf("--applied %s: %v", c.Applied, err), answerHint}
	}
	s.Applied = &answer
	return nil
}

// check refuses what would leave the books wrong, and returns the results as they are to
// be recorded. Without a key there is nothing to check: settling says so.
func (c *keysSettleCmd) check(ctx context.Context, o opened, s onlyonce.Settlement) ([]onlyonce.StepResult, error) {
	if _, err := o.operators(); err != nil {
		return nil, err
	}
	steps, err := stepsOf(ctx, o.Store.Store, s.Key)
	if err != nil {
		return nil, err
	}
	if err := c.checkAnswer(o, s, steps); err != nil {
		return nil, err
	}
	var results []onlyonce.StepResult
	for _, r := range s.Results {
		if o.payments != nil {
			if r.Result, err = paymentsResult(r.Result); err != nil {
				return nil, &usageError{fmt.Sprintf("--applied %s: %v", c.Applied, err), resultHint}
			}
		}
		if err := checkAmount(steps, r); err != nil {
			return nil, &usageError{fmt.Sprintf("--applied %s: %v", c.Applied, err), "compare the provider's record with the order: a person has to decide what was paid"}
		}
		results = append(results, r)
	}
	return results, nil
}

// checkAnswer refuses an answer alone where steps have left, or may have.
func (c *keysSettleCmd) checkAnswer(o opened, s onlyonce.Settlement, steps []onlyonce.StepRecord) error {
	all, begun := calls(steps)
	result, turn := `{"status": "succeeded", "id": "…"}`, "onlyonce keys recover lets the service make the answer"
	if o.payments == nil {
		result, turn = "…", "a retry by its client makes the answer"
	}
	switch {
	case s.Applied != nil && len(begun) > 0 && !c.AnswerOnly:
		return &usageError{
			fmt.Sprintf("step %s may have had its effect: with an answer alone the books would lack it", begun[0].Name),
			fmt.Sprintf(`give the result of the step instead: {"step": %q, "result": %s}; or say --answer-only`, begun[0].Name, result),
		}
	case s.Applied != nil && len(all) > 0 && !c.AnswerOnly:
		return &usageError{
			fmt.Sprintf("step %s is done: with an answer alone the books would lack it", all[0].Name),
			turn + "; or say --answer-only",
		}
	}
	return nil
}

// printState says how a key stands.
func printState(out io.Writer, rec onlyonce.Record) {
	fmt.Fprintf(out, "%s is %s", rec.Key.Operation(), rec.State)
	if rec.Answer != nil {
		fmt.Fprintf(out, " with status %d", rec.Answer.Status)
	}
	fmt.Fprintln(out)
	if rec.State == onlyonce.InDoubt {
		fmt.Fprintln(out, rec.Reason)
	}
}

func (o opened) settle(ctx context.Context, s onlyonce.Settlement) (onlyonce.Record, error) {
	engine, err := onlyonce.New(o.Store.Store, onlyonce.Config{})
	if err != nil {
		return onlyonce.Record{}, fmt.Errorf("settle key: %w", err)
	}
	rec, err := engine.Settle(ctx, s)
	err = errors.Join(err, engine.Close(ctx))
	if onlyonce.CodeOf(err) == onlyonce.CodeNotInDoubt && rec.State == onlyonce.InProgress && o.Features().Observes {
		err = fmt.Errorf("%w; this kind of store judges leases by watching them, as no command does: where its attempt is dead, a Sweeper or Recoverer that runs puts the key in doubt, and then it can be settled", err)
	}
	return rec, err
}
