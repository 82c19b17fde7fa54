package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce"
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
	// Payments is nil where the payments service is not meant.
	Payments *paymentsView `json:"payments,omitempty"`
	// Pending counts migrations of keys, and the payments service's tables as one.
	Pending int `json:"pending"`
}

// paymentsView is about the service's own tables, which note their version alone.
type paymentsView struct {
	UpToDate bool   `json:"up_to_date"`
	Detail   string `json:"detail,omitempty"`
}

// Run looks, and changes nothing.
func (c *migrateStatusCmd) Run(ctx context.Context, std Streams) error {
	list, err := keystore.Status(ctx, c.Store)
	if err != nil {
		return err
	}
	view := statusView{Keys: []migrationView{}}
	newer := 0
	for _, m := range list {
		v := migrationView{Version: m.Version, Name: m.Name, Applied: m.Applied}
		if !m.At.IsZero() {
			v.AppliedAt = &m.At
		}
		if !m.Applied {
			view.Pending++
		}
		if !m.Known() {
			newer = m.Version
		}
		view.Keys = append(view.Keys, v)
	}
	if c.payments() {
		if view.Payments, err = c.service(ctx, view.Pending == 0 && newer == 0); err != nil {
			return err
		}
		if !view.Payments.UpToDate {
			view.Pending++
		}
	}
	if err := c.print(std.Out, view); err != nil {
		return err
	}
	switch {
	case newer > 0:
		return fmt.Errorf("the tables of keys are of version %d, which this program does not know: use a newer program", newer)
	case view.Pending > 0:
		return fmt.Errorf("%d pending; `onlyonce migrate up` applies what is pending", view.Pending)
	}
	return nil
}

// service looks at the service's own tables, which are opened with those of keys.
func (c *migrateStatusCmd) service(ctx context.Context, keys bool) (*paymentsView, error) {
	if !keys {
		return &paymentsView{Detail: "not looked at until the tables of keys are up to date"}, nil
	}
	err := storeFlag{Store: c.Store}.with(ctx, func(d *db.Database) error { return d.CheckVersion(ctx) })
	if e, ok := errors.AsType[*onlyonce.Error](err); ok && e.Code == onlyonce.CodeConfig {
		return &paymentsView{Detail: e.Hint + "; without that service: --keys-only"}, nil
	}
	if err != nil {
		return nil, err
	}
	return &paymentsView{UpToDate: true}, nil
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
		state := "pending"
		switch {
		case m.AppliedAt != nil:
			state = "applied " + m.AppliedAt.Format(time.RFC3339)
		case m.Applied:
			state = "applied"
		}
		fmt.Fprintf(w, "keys\t%d\t%s\t%s\n", m.Version, orDefault(m.Name, "(of a newer program)"), state)
	}
	if p := view.Payments; p != nil {
		state := "up to date"
		if !p.UpToDate {
			state = "pending: " + p.Detail
		}
		fmt.Fprintf(w, "payments\t-\t-\t%s\n", state)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
