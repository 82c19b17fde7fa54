package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// reconcileCmd compares the books with a provider's report, and keeps what was
// found.
type reconcileCmd struct {
	Run    reconcileRunCmd    `cmd:"" default:"withargs" help:"Compare the books and the keys with a report (the default)."`
	List   reconcileListCmd   `cmd:"" help:"List the open findings, with their age."`
	Accept reconcileAcceptCmd `cmd:"" help:"Close a finding with an explanation."`
}

// reconcileRunCmd is one run.
type reconcileRunCmd struct {
	storeFlag
	Report        string            `required:"" env:"-" placeholder:"FILE" help:"The provider's report, in CSV; - reads standard input."`
	Format        string            `default:"processor" enum:"processor,stripe" help:"Who wrote it: processor (onlyonce processor report) or stripe (balance transactions)."`
	Columns       map[string]string `mapsep:"," env:"-" placeholder:"FIELD=COLUMN,…" help:"Names of the columns instead of a format: type, id, amount, currency, created; optional: reference, refund_id, refund_reference, presented_amount, presented_currency."`
	Types         map[string]string `mapsep:"," env:"-" placeholder:"TYPE=MEANING,…" help:"What types of rows mean: charge, refund or skip."`
	Amounts       string            `default:"" enum:",minor,major" help:"Units of the amounts: minor (1500) or major (15.00). Default: what the format has; major with --columns."`
	Separator     string            `env:"-" placeholder:"CHARACTER" help:"What separates the columns. Default: a comma."`
	Provider      string            `env:"-" help:"The provider's name in the steps. Default: what the format has."`
	From          moment            `env:"-" placeholder:"TIME" help:"The report holds everything from this time on."`
	CompleteUntil moment            `env:"-" placeholder:"TIME" help:"The report holds everything up to this time. With --from: what it does not have was not done. Default: absence proves nothing."`
	Visible       time.Duration     `default:"1m" help:"How long the provider may take to report an effect, and how far its clock may be off."`
	Heal          bool              `env:"-" help:"Settle the keys whose end the report proves. Default: list them."`
	Actor         string            `env:"ONLYONCE_ACTOR,USER" help:"Who does it; kept for good. Default: the user of this session."`
	Limit         int               `default:"20" env:"-" help:"How many findings to print; 0 prints all. They are all stored."`
	JSON          bool              `name:"json" env:"-" help:"Print JSON."`
}

// Help says what a run does, and what its exit code means.
func (c *reconcileRunCmd) Help() string {
	return `The whole report is read and checked before anything else is written: a broken line is named with its column, and nothing is imported.

Without --heal it only says what it would settle. With it, a key in doubt whose charge or refund is in the report, with the amount that was asked for, gets
that as the result of its step, and its handler writes books and answer. With --from and --complete-until, a key whose every send lies between them and that
the report does not have is settled as not applied. Both are audited. The provider is never called.

Exit codes: 0 everything agrees, 1 something does not (or is still unknown), 2 the report or the command line is wrong, 3 the store failed while a key was
being settled: run it again. docs/RECONCILIATION.md says what each finding means.`
}

// moment is a time on the command line.
type moment struct{ time.Time }

// UnmarshalText reads RFC 3339, or a date and a time of day in UTC.
func (m *moment) UnmarshalText(text []byte) error {
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, string(text), time.UTC); err == nil {
			m.Time = t
			return nil
		}
	}
	return fmt.Errorf("%q is no time: write it like 2026-01-31T00:00:00Z", text)
}

// Run compares.
func (c *reconcileRunCmd) Run(ctx context.Context, std Streams) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	var res reconcile.Result
	err = c.with(ctx, func(d *db.Database) error {
		if err := d.CheckVersion(ctx); err != nil {
			return err
		}
		cfg.DB = d
		return c.on(std, func(in io.Reader, size int64) error {
			cfg.Report = in
			bar := newBar(std.Err, size)
			cfg.Progress = bar.show
			res, err = c.reconcile(ctx, cfg)
			bar.end()
			if err != nil {
				return err
			}
			return c.print(ctx, std.Out, d, res)
		})
	})
	if e, ok := errors.AsType[*report.Error](err); ok {
		return &usageError{fmt.Sprintf("--report %s: %s; nothing was imported", c.Report, e.Error()), e.Hint}
	}
	if err != nil {
		return err
	}
	return verdictOf(res)
}

// config is the run that the flags ask for.
func (c *reconcileRunCmd) config() (reconcile.Config, error) {
	if c.Actor == "" {
		return reconcile.Config{}, &usageError{"--actor is required: this session names no user", "say who reconciles: --actor NAME"}
	}
	if c.Limit < 0 || c.Visible < 0 {
		return reconcile.Config{}, &usageError{"--limit and --visible must not be negative", "write them like --limit 20 --visible 1m"}
	}
	if !c.CompleteUntil.IsZero() && !c.From.IsZero() && !c.From.Before(c.CompleteUntil.Time) {
		return reconcile.Config{}, &usageError{"--complete-until is not after --from", "say between which times the report holds everything"}
	}
	f, err := c.format()
	if err != nil {
		return reconcile.Config{}, &usageError{err.Error(), "onlyonce reconcile --help explains the flags"}
	}
	cfg := reconcile.Config{
		File: c.Report, Format: f, Actor: c.Actor, Heal: c.Heal, Visible: max(c.Visible, time.Nanosecond),
		From: c.From.Time, CompleteUntil: c.CompleteUntil.Time,
	}
	switch name := orDefault(c.Provider, orDefault(f.Provider, "processor")); name {
	case "processor":
		cfg.Provider = reconcile.Processor()
	case "stripe":
		cfg.Provider = reconcile.Stripe()
	default: // another account of one of the two
		if cfg.Provider = reconcile.Processor(); f.Name == report.FormatStripe {
			cfg.Provider = reconcile.Stripe()
		}
		cfg.Provider.Name = name
	}
	return cfg, nil
}

// format is how the report is to be read.
func (c *reconcileRunCmd) format() (report.Format, error) {
	f, err := report.Named(c.Format)
	if len(c.Columns) > 0 {
		f, err = report.WithColumns(c.Columns)
	}
	if err == nil {
		f, err = f.WithTypes(c.Types)
	}
	if err != nil {
		return f, err
	}
	if c.Amounts != "" {
		f.Major = c.Amounts == "major"
	}
	if c.Separator != "" {
		separator := []rune(c.Separator)
		if c.Separator == `\t` {
			separator = []rune{'\t'}
		}
		if len(separator) != 1 || separator[0] == '"' || separator[0] == '\r' || separator[0] == '\n' {
			return f, fmt.Errorf("--separator %q is not one character that can separate columns", c.Separator)
		}
		f.Separator = separator[0]
	}
	return f, nil
}

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// on opens the report.
func (c *reconcileRunCmd) on(std Streams, fn func(in io.Reader, size int64) error) error {
	if c.Report == "-" {
		return fn(std.In, 0)
	}
	file, err := os.Open(c.Report)
	if err != nil {
		return &usageError{fmt.Sprintf("--report: %v", err), "name a CSV file, or - for standard input"}
	}
	defer func() { _ = file.Close() }() // it was only read
	size := int64(0)
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return fn(file, size)
}

// reconcile runs, with what it takes to heal where that is asked for.
func (c *reconcileRunCmd) reconcile(ctx context.Context, cfg reconcile.Config) (reconcile.Result, error) {
	if !c.Heal {
		return reconcile.Run(ctx, cfg)
	}
	cfg, engine, err := healing(cfg)
	if err != nil {
		return reconcile.Result{}, err
	}
	res, err := reconcile.Run(ctx, cfg)
	return res, errors.Join(err, engine.Close(ctx))
}

const findingsHint = "onlyonce reconcile list lists all that are open, docs/RECONCILIATION.md says what to do about each"

// verdictOf is how a run ends that has come to its end.
func verdictOf(res reconcile.Result) error {
	if res.Uncertain > 0 {
		return &onlyonce.Error{
			Code: onlyonce.CodeUncertain, Op: "reconcile",
			Hint: fmt.Sprintf("the store failed while %d keys were being settled; run it again", res.Uncertain),
		}
	}
	n := int64(0)
	for _, found := range res.Breaks {
		n += found
	}
	switch n {
	case 0:
		return nil
	case 1:
		return errors.New("there is a finding; " + findingsHint)
	default:
		return fmt.Errorf("there are %d findings; %s", n, findingsHint)
	}
}
