package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// keysSettleCmd is an operator's word on a key in doubt.
type keysSettleCmd struct {
	storeFlag
	Key        string `arg:"" help:"The idempotency key."`
	Scope      string `required:"" help:"Whose key it is: the merchant."`
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
a quarter of an hour after it was made, and its stock given back.`
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
	return c.with(ctx, func(d *db.Database) error {
		if err := c.check(ctx, d, s); err != nil {
			return err
		}
		rec, err := settle(ctx, d, s)
		if err != nil {
			return err
		}
		var end settled
		if len(s.Results) > 0 && rec.State == onlyonce.FailedRetryable {
			rec, end = finish(ctx, d, rec)
		}
		if err := c.print(std, rec, end.note); err != nil {
			return err
		}
		return end.unknown
	})
}

// settled is what became of the answer of a key that is settled.
type settled struct {
	// note says what is left to do; unknown is set where that is to find out what
	// happened.
	note    string
	unknown error
}

// finish lets the service make the answer. However that ends, the key is settled:
// an error here must not look as if it had to be settled again.
func finish(ctx context.Context, d *db.Database, rec onlyonce.Record) (onlyonce.Record, settled) {
	note, failed := finishSettled(ctx, d, rec.Key)
	now, steps, err := findKey(ctx, d, rec.Key)
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
	for _, what := range next(rec, steps, true) {
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

// check refuses what would leave the books wrong. Without a key there is nothing
// to check: settling says so.
func (c *keysSettleCmd) check(ctx context.Context, d *db.Database, s onlyonce.Settlement) error {
	steps, err := d.Keys().Steps(ctx, s.Key)
	if err != nil {
		return fmt.Errorf("read steps: %w", err)
	}
	all, begun := calls(steps)
	switch {
	case s.Applied != nil && len(begun) > 0 && !c.AnswerOnly:
		return &usageError{
			fmt.Sprintf("step %s may have had its effect: with an answer alone the books would lack it", begun[0].Name),
			fmt.Sprintf(`give the result of the step instead: {"step": %q, "result": {"status": "succeeded", "id": "…"}}; or say --answer-only`, begun[0].Name),
		}
	case s.Applied != nil && len(all) > 0 && !c.AnswerOnly:
		return &usageError{
			fmt.Sprintf("step %s is done: with an answer alone the books would lack it", all[0].Name),
			"onlyonce keys recover lets the service make the answer; or say --answer-only",
		}
	}
	for _, r := range s.Results {
		if err := checkAmount(steps, r); err != nil {
			return &usageError{fmt.Sprintf("--applied %s: %v", c.Applied, err), "compare the processor's record with the order: a person has to decide what was paid"}
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

func settle(ctx context.Context, d *db.Database, s onlyonce.Settlement) (onlyonce.Record, error) {
	engine, err := onlyonce.New(d.Keys(), onlyonce.Config{})
	if err != nil {
		return onlyonce.Record{}, fmt.Errorf("settle key: %w", err)
	}
	rec, err := engine.Settle(ctx, s)
	return rec, errors.Join(err, engine.Close(ctx))
}
