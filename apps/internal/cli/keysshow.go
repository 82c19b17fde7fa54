package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments"
)

// keysShowCmd shows everything that is known of one key.
type keysShowCmd struct {
	keysFlag
	Key   string `arg:"" help:"The idempotency key."`
	Scope string `required:"" help:"Whose key it is: in the payments service, the merchant."`
	JSON  bool   `name:"json" env:"-" help:"Print JSON."`
}

// detailView is a key, its steps, what operators did, and what can be done.
type detailView struct {
	keyView
	// RequestKept: the operation can be run again without its client.
	RequestKept bool        `json:"request_kept"`
	Steps       []stepView  `json:"steps"`
	Audit       []auditView `json:"audit"`
	Next        []string    `json:"next"`
}

// stepView is a step as it is printed. Of its request, which may hold card tokens,
// only the digest is.
type stepView struct {
	Name          string `json:"name"`
	Occurrence    int    `json:"occurrence"`
	Provider      string `json:"provider"`
	State         string `json:"state"`
	Epoch         int    `json:"epoch"`
	Sends         int    `json:"sends"`
	DerivedKey    string `json:"derived_key,omitempty"`
	Reference     string `json:"reference,omitempty"`
	RequestSHA256 string `json:"request_sha256,omitempty"`
	Result        string `json:"result,omitempty"`
	AgeSeconds    int64  `json:"age_seconds"`
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
	err := c.look(ctx, func(o opened) error {
		var err error
		v, err = o.detail(ctx, onlyonce.Key{Scope: c.Scope, Value: c.Key})
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

// detail reads what the store keeps of a key: where it has not the power to keep
// requests, steps or an audit, there is none.
func (o opened) detail(ctx context.Context, key onlyonce.Key) (detailView, error) {
	rec, steps, err := findKey(ctx, o.Store.Store, key)
	if err != nil {
		return detailView{}, err
	}
	v := detailView{keyView: viewOf(rec), Steps: []stepView{}, Audit: []auditView{}}
	for _, s := range steps {
		v.Steps = append(v.Steps, viewOfStep(s))
	}
	if v.RequestKept, err = o.kept(ctx, key); err != nil {
		return v, err
	}
	v.Next = situation{rec: rec, steps: steps, kept: v.RequestKept, payments: o.payments != nil}.next()
	if rec.State == onlyonce.Completed && o.payments != nil && o.payments.CheckVersion(ctx) == nil {
		order, err := payments.ReservedBy(ctx, o.payments, key)
		if err != nil {
			return v, err
		}
		if order != "" {
			v.Next = reserving(order)
		}
	}
	ops, ok := onlyonce.OperatorsOf(o.Store.Store)
	if !ok {
		return v, nil
	}
	audit, err := ops.Audit(ctx, key)
	if err != nil {
		return v, fmt.Errorf("read audit: %w", err)
	}
	for _, a := range audit {
		v.Audit = append(v.Audit, auditView{At: a.At.UTC(), Actor: a.Actor, Action: a.Action, Reason: a.Reason})
	}
	return v, nil
}

// kept tells whether the operation can be run again without its client.
func (o opened) kept(ctx context.Context, key onlyonce.Key) (bool, error) {
	store, ok := onlyonce.RecoveryOf(o.Store.Store)
	if !ok {
		return false, nil
	}
	_, kept, err := store.Kept(ctx, key)
	if err != nil {
		return false, fmt.Errorf("read what is kept: %w", err)
	}
	return kept, nil
}

func viewOfStep(s onlyonce.StepRecord) stepView {
	v := stepView{
		Name: s.Name, Occurrence: s.Occurrence, Provider: s.Provider, State: string(s.State), Epoch: s.Epoch, Sends: s.Sends,
		DerivedKey: s.DerivedKey, Reference: s.Reference, Result: string(s.Result), AgeSeconds: int64(s.Age / time.Second),
	}
	if s.Provider != onlyonce.ProviderStore {
		sum := sha256.Sum256(s.Request)
		v.RequestSHA256 = hex.EncodeToString(sum[:])
	}
	return v
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
	if v.Resource != "" {
		line("resource", v.Resource+map[bool]string{true: ", held: no other key may have it", false: ", not held"}[v.Holds])
	}
	line("request", map[bool]string{true: "kept: the operation can be run again without its client", false: "not kept"}[v.RequestKept])
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
		s.print(line)
	}
	for _, a := range v.Audit {
		line("audit "+a.At.Format(time.RFC3339), fmt.Sprintf("%s by %s: %s", a.Action, a.Actor, a.Reason))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	for i, what := range v.Next {
		if i == 0 {
			fmt.Fprintln(out, "\nwhat can be done:")
		}
		fmt.Fprintln(out, "- "+what)
	}
	return nil
}

// print writes a step's lines.
func (s stepView) print(line func(name string, value any)) {
	age := (time.Duration(s.AgeSeconds) * time.Second).String()
	if s.Provider == onlyonce.ProviderStore {
		line("step "+s.Name, fmt.Sprintf("%s, in the database, %s ago", s.State, age))
	} else {
		line("step "+s.Name, fmt.Sprintf("%s, %d sends to %s under %s (epoch %d), the first %s ago, our reference %s",
			s.State, s.Sends, s.Provider, s.DerivedKey, s.Epoch, age, s.Reference))
		line("  request sha-256", s.RequestSHA256)
	}
	if s.Result != "" {
		line("  result", s.Result)
	}
}
