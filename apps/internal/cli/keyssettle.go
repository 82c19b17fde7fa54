package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// keysSettleCmd is an operator's word on a key in doubt.
type keysSettleCmd struct {
	storeFlag
	Key        string `arg:"" help:"The idempotency key."`
	Scope      string `required:"" help:"Whose key it is: the merchant."`
	Applied    string `xor:"outcome" required:"" env:"-" placeholder:"FILE" help:"The effect has happened: JSON file with the answer, {\"status\": 201, \"headers\": {…}, \"body\": …}; - reads standard input."`
	NotApplied bool   `xor:"outcome" required:"" env:"-" help:"It is proved that the effect has not happened; the next retry runs again."`
	Reason     string `required:"" env:"-" help:"How that is known. Kept for good."`
	Actor      string `env:"ONLYONCE_ACTOR,USER" help:"Who says so. Default: the user of this session."`
	JSON       bool   `name:"json" env:"-" help:"Print the key as JSON."`
}

// Help says what settling does, and what it does not.
func (c *keysSettleCmd) Help() string {
	return `A retry with the same key settles most doubts by itself: the service asks the processor. Settle by hand what that cannot.

--applied stores an answer, which retries get; it writes no charge, refund or ledger entry by itself. What the key holds, an order that it is paying or a
refund, is named in the output and by keys show. Within a minute the running service asks the processor for it, by our reference: what it finds is
written down with its ledger entry, and the order is paid or the refund succeeds; what it does not find stays held, is logged as needing a person, and
is given back only if the answer is a refusal (status 400 or more). A charge for no order holds nothing: settled as applied it is in the processor's
books and not in the service's.

--not-applied frees the key. What it holds is given back unless one of its steps is done.`
}

// settledView is a settled key and what it still holds.
type settledView struct {
	keyView
	Holds []holdView `json:"holds"`
}

// Run settles.
func (c *keysSettleCmd) Run(ctx context.Context, std Streams) error {
	if c.Actor == "" {
		return &usageError{"--actor is required: this session names no user", "say who settles the key: --actor NAME"}
	}
	s := onlyonce.Settlement{Key: onlyonce.Key{Scope: c.Scope, Value: c.Key}, Actor: c.Actor, Reason: c.Reason}
	if !c.NotApplied {
		answer, err := c.answer(std.In)
		if err != nil {
			return err
		}
		s.Applied = &answer
	}
	return c.with(ctx, func(d *db.Database) error {
		rec, err := settle(ctx, d, s)
		if err != nil {
			return err
		}
		v := settledView{keyView: viewOf(rec)}
		if v.Holds, err = heldBy(ctx, d, rec.Key); err != nil {
			return err
		}
		return v.print(std.Out, c.JSON)
	})
}

// print says how the key stands, and what its settlement has not settled.
func (v settledView) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(out, v)
	}
	fmt.Fprintf(out, "%s is %s\n", v.Operation, v.State)
	if v.State != string(onlyonce.Completed) {
		return nil
	}
	for _, h := range v.Holds {
		fmt.Fprintf(out, "warning: it still holds %s. The answer is stored; the running service now asks the processor for %s and writes down what it finds. If it finds nothing, that stays held: see keys show and the service's log.\n", h, h.Reference)
	}
	if len(v.Holds) == 0 && v.Answer != nil && v.Answer.Status < http.StatusBadRequest {
		fmt.Fprintln(out, "warning: only the answer is stored. Whatever the operation has done elsewhere is not in the service's books unless it was before.")
	}
	return nil
}

func settle(ctx context.Context, d *db.Database, s onlyonce.Settlement) (onlyonce.Record, error) {
	engine, err := onlyonce.New(d.Keys(), onlyonce.Config{})
	if err != nil {
		return onlyonce.Record{}, fmt.Errorf("settle key: %w", err)
	}
	rec, err := engine.Settle(ctx, s)
	return rec, errors.Join(err, engine.Close(ctx))
}

// answerFile is the answer an operator gives. A body that is a JSON string is
// the text itself, any other JSON is the body as it stands.
type answerFile struct {
	Status  int                        `json:"status"`
	Headers map[string]json.RawMessage `json:"headers"`
	Body    json.RawMessage            `json:"body"`
}

const answerHint = `write it like {"status": 201, "headers": {"Content-Type": "application/json"}, "body": {"id": "ch_…"}}`

func (c *keysSettleCmd) answer(stdin io.Reader) (onlyonce.Answer, error) {
	text, err := readInput(c.Applied, stdin)
	if err != nil {
		return onlyonce.Answer{}, &usageError{fmt.Sprintf("--applied: %v", err), "name a file with the answer, or - for standard input"}
	}
	answer, err := parseAnswer(text)
	if err != nil {
		return onlyonce.Answer{}, &usageError{fmt.Sprintf("--applied %s: %v", c.Applied, err), answerHint}
	}
	return answer, nil
}

func readInput(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

func parseAnswer(text []byte) (onlyonce.Answer, error) {
	var file answerFile
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return onlyonce.Answer{}, fmt.Errorf("read answer: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return onlyonce.Answer{}, errors.New("read answer: there is more than one value")
	}
	if file.Status < 200 || file.Status > 599 {
		return onlyonce.Answer{}, fmt.Errorf("read answer: status %d is not one from 200 to 599", file.Status)
	}
	header := http.Header{}
	for name, raw := range file.Headers {
		var one string
		var many []string
		switch {
		case json.Unmarshal(raw, &one) == nil:
			header.Set(name, one)
		case json.Unmarshal(raw, &many) == nil:
			header[http.CanonicalHeaderKey(name)] = many
		default:
			return onlyonce.Answer{}, fmt.Errorf("read answer: header %s is neither a string nor a list of strings", name)
		}
	}
	body := append([]byte{}, file.Body...) // empty is not absent
	var plain string
	if json.Unmarshal(file.Body, &plain) == nil {
		body = []byte(plain)
	} else if header.Get("Content-Type") == "" && len(body) > 0 {
		header.Set("Content-Type", "application/json")
	}
	return onlyonce.Answer{Status: file.Status, Header: header, Body: body}, nil
}
