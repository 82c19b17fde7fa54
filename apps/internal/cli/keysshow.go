package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// keysShowCmd shows everything that is known of one key.
type keysShowCmd struct {
	storeFlag
	Key   string `arg:"" help:"The idempotency key."`
	Scope string `required:"" help:"Whose key it is: the merchant."`
	JSON  bool   `name:"json" env:"-" help:"Print JSON."`
}

// detailView is a key, its steps, what its operation holds, and what operators
// did.
type detailView struct {
	keyView
	Steps []stepView  `json:"steps"`
	Holds []holdView  `json:"holds"`
	Audit []auditView `json:"audit"`
}

type stepView struct {
	Name       string `json:"name"`
	Occurrence int    `json:"occurrence"`
	Provider   string `json:"provider"`
	State      string `json:"state"`
	Epoch      int    `json:"epoch"`
	Sends      int    `json:"sends"`
	DerivedKey string `json:"derived_key"`
	Reference  string `json:"reference"`
	Request    string `json:"request"`
	Result     string `json:"result,omitempty"`
	AgeSeconds int64  `json:"age_seconds"`
}

// holdView is what an operation keeps from others: an order or a refund.
type holdView struct {
	Order     string `json:"order,omitempty"`
	Refund    string `json:"refund,omitempty"`
	Reference string `json:"reference"`
}

// String names it for people.
func (h holdView) String() string {
	if h.Order != "" {
		return "order " + h.Order + ", which it is paying"
	}
	return "refund " + h.Refund + ", which is pending"
}

// heldBy lists what a key holds.
func heldBy(ctx context.Context, d *db.Database, key onlyonce.Key) ([]holdView, error) {
	holds, err := payments.Holds(ctx, d, key)
	if err != nil {
		return nil, fmt.Errorf("read holds: %w", err)
	}
	views := []holdView{}
	for _, h := range holds {
		views = append(views, holdView(h))
	}
	return views, nil
}

type auditView struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	Reason string    `json:"reason"`
}

// Run shows.
func (c *keysShowCmd) Run(ctx context.Context, std Streams) error {
	var v detailView
	err := c.with(ctx, func(d *db.Database) error {
		var err error
		v, err = detail(ctx, d, onlyonce.Key{Scope: c.Scope, Value: c.Key})
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.Out, v)
	}
	return v.print(std.Out)
}

func detail(ctx context.Context, d *db.Database, key onlyonce.Key) (detailView, error) {
	rec, found, err := d.Keys().Get(ctx, key)
	if err != nil {
		return detailView{}, fmt.Errorf("read key: %w", err)
	}
	if !found {
		return detailView{}, &onlyonce.Error{
			Code: onlyonce.CodeNotFound, Op: "show key",
			Hint: fmt.Sprintf("there is no key %q of scope %q; onlyonce keys list lists them", key.Value, key.Scope),
		}
	}
	v := detailView{keyView: viewOf(rec), Steps: []stepView{}, Holds: []holdView{}, Audit: []auditView{}}
	steps, err := d.Keys().Steps(ctx, key)
	if err != nil {
		return v, fmt.Errorf("read steps: %w", err)
	}
	for _, s := range steps {
		v.Steps = append(v.Steps, stepView{
			Name: s.Name, Occurrence: s.Occurrence, Provider: s.Provider, State: string(s.State), Epoch: s.Epoch, Sends: s.Sends,
			DerivedKey: s.DerivedKey, Reference: s.Reference, Request: string(s.Request), Result: string(s.Result),
			AgeSeconds: int64(s.Age / time.Second),
		})
	}
	if v.Holds, err = heldBy(ctx, d, key); err != nil {
		return v, err
	}
	audit, err := d.Keys().Audit(ctx, key)
	if err != nil {
		return v, fmt.Errorf("read audit: %w", err)
	}
	for _, a := range audit {
		v.Audit = append(v.Audit, auditView{At: a.At.UTC(), Actor: a.Actor, Action: a.Action, Reason: a.Reason})
	}
	return v, nil
}

func (v detailView) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name string, value any) { fmt.Fprintf(w, "%s:\t%v\n", name, value) }
	line("key", v.Key)
	line("scope", v.Scope)
	line("operation", v.Operation)
	line("name", v.Name)
	line("state", v.State)
	if v.Reason != "" {
		line("reason", v.Reason)
	}
	line("attempts", v.Attempts)
	line("created", v.CreatedAt.Format(time.RFC3339))
	for name, t := range map[string]*time.Time{"lease end": v.LeaseEnd, "expires": v.ExpiresAt} {
		if t != nil {
			line(name, t.Format(time.RFC3339))
		}
	}
	if v.Answer != nil {
		line("status", v.Answer.Status)
		for _, name := range slices.Sorted(maps.Keys(v.Answer.Headers)) {
			line("header "+name, v.Answer.Headers[name])
		}
		line("body", v.Answer.Body)
	}
	for _, s := range v.Steps {
		line("step "+s.Name, fmt.Sprintf("%s, %d sends to %s under %s, our reference %s", s.State, s.Sends, s.Provider, s.DerivedKey, s.Reference))
		line("  request", s.Request)
		if s.Result != "" {
			line("  result", s.Result)
		}
	}
	for _, h := range v.Holds {
		line("holds", fmt.Sprintf("%s; our reference %s", h, h.Reference))
	}
	for _, a := range v.Audit {
		line("audit "+a.At.Format(time.RFC3339), fmt.Sprintf("%s by %s: %s", a.Action, a.Actor, a.Reason))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
