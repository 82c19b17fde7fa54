package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

type migrateStatusCmd struct {
	tablesFlags
	JSON bool `name:"json" env:"-" help:"Print JSON."`
}

// migrationView is a migration as it is printed.
type migrationView struct {
	Version   int        `json:"version"`
	Name      string     `json:"name,omitempty"`
	Applied   bool       `json:"applied"`
	AppliedAt *time.Time `json:"applied_at,omitempty"` // absent where the store does not note it
}

// statusView is what there is to say about a store's tables.
type statusView struct {
	Keys []migrationView `json:"keys"`
	// Payments is absent where the payments service is not meant.
	Payments []migrationView `json:"payments,omitempty"`
	// Pending counts the migrations of both that are to be applied.
	Pending int `json:"pending"`
}

// Run looks, and changes nothing.
func (c *migrateStatusCmd) Run(ctx context.Context, std Streams) error {
	view, err := c.look(ctx)
	if err != nil {
		return err
	}
	if err := c.print(std.Out, view); err != nil {
		return err
	}
	if err := newer("keys", view.Keys); err != nil {
		return err
	}
	if err := newer("the payments service", view.Payments); err != nil {
		return err
	}
	if view.Pending == 0 {
		return nil
	}
	what := ""
	if len(view.Payments) > 0 && !view.Payments[0].Applied {
		what = "; --keys-only leaves the payments service out"
	}
	return fmt.Errorf("%d pending; `onlyonce migrate up` applies what is pending%s", view.Pending, what)
}

// look lists the migrations of all tables that are meant.
func (c *migrateStatusCmd) look(ctx context.Context) (statusView, error) {
	list, err := keystore.Status(ctx, c.Store)
	if err != nil {
		return statusView{}, err
	}
	view := statusView{Keys: []migrationView{}}
	for _, m := range list {
		view.Keys = append(view.Keys, migrationView{m.Version, m.Name, m.Applied, set(m.At)})
	}
	if c.payments() {
		own, err := db.Status(ctx, c.Store)
		if err != nil {
			return statusView{}, err
		}
		for _, m := range own {
			view.Payments = append(view.Payments, migrationView{m.Version, m.Name, m.Applied, set(m.At)})
		}
	}
	for _, m := range slices.Concat(view.Keys, view.Payments) {
		if !m.Applied {
			view.Pending++
		}
	}
	return view, nil
}

// newer refuses tables that only a newer program knows.
func newer(whose string, list []migrationView) error {
	if len(list) == 0 || list[len(list)-1].Name != "" {
		return nil
	}
	return fmt.Errorf("the tables of %s are of version %d, which this program does not know: use a newer program", whose, list[len(list)-1].Version)
}

func (c *migrateStatusCmd) print(out io.Writer, view statusView) error {
	if c.JSON {
		return printJSON(out, view)
	}
	if len(view.Keys) == 0 {
		fmt.Fprintf(out, "a store of the kind %s has no migrations, and can be used as it is\n", keystore.Scheme(c.Store))
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TABLES\tVERSION\tNAME\tSTATE")
	for _, m := range view.Keys {
		m.print(w, "keys")
	}
	for _, m := range view.Payments {
		m.print(w, "payments")
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// print writes a migration's line.
func (m migrationView) print(w io.Writer, tables string) {
	state := "pending"
	switch {
	case m.AppliedAt != nil:
		state = "applied " + m.AppliedAt.Format(time.RFC3339)
	case m.Applied:
		state = "applied"
	}
	fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", tables, m.Version, orDefault(m.Name, "(of a newer program)"), state)
}
