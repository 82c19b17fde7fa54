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
	// Pending counts the migrations of both that are to be applied: not those of the
	// payments service where it has no tables at all, which serve makes.
	Pending int `json:"pending"`
	// Partitions is absent where the tables of keys have none.
	Partitions *partitionsView `json:"partitions,omitempty"`
}

// partitionsView are the time partitions of PostgreSQL's tables.
type partitionsView struct {
	EverySeconds float64 `json:"every_seconds"`
	Ahead        int     `json:"ahead"`
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
	command := "onlyonce migrate up"
	if !view.paid() {
		command += " --keys-only"
	}
	return fmt.Errorf("%d pending; `%s` applies what is pending", view.Pending, command)
}

// paid tells whether there are tables of the payments service.
func (v statusView) paid() bool {
	return slices.ContainsFunc(v.Payments, func(m migrationView) bool { return m.Applied })
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
	parts, err := keystore.PartitionsOf(ctx, c.Store)
	if err != nil {
		return statusView{}, err
	}
	if parts.Every > 0 {
		view.Partitions = &partitionsView{parts.Every.Seconds(), parts.Ahead}
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
	meant := view.Keys
	if view.paid() {
		meant = slices.Concat(view.Keys, view.Payments)
	}
	for _, m := range meant {
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
		m.print(w, "keys", "pending")
	}
	absent := "pending"
	if !view.paid() {
		absent = "not there; serve makes them"
	}
	for _, m := range view.Payments {
		m.print(w, "payments", absent)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if p := view.Partitions; p != nil {
		fmt.Fprintf(out, "answers and kept requests are in partitions of %s, %d ahead\n", span(p.EverySeconds*float64(time.Second)), p.Ahead)
	}
	return nil
}

// print writes a migration's line; absent is what one is that was not applied.
func (m migrationView) print(w io.Writer, tables, absent string) {
	state := absent
	switch {
	case m.AppliedAt != nil:
		state = "applied " + m.AppliedAt.Format(time.RFC3339)
	case m.Applied:
		state = "applied"
	}
	fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", tables, m.Version, orDefault(m.Name, "(of a newer program)"), state)
}
