package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// Config says what a run compares.
type Config struct {
	// DB has the keys and the books. Required; its tables must be up to date.
	DB *db.Database
	// Report is what the provider says. Required.
	Report io.Reader
	// File is the report's name, for people and audits.
	File string
	// Format says how to read it. Required.
	Format report.Format
	// Provider is who wrote it. Required.
	Provider Provider
	// Actor is who runs it: findings and audits name him. Required.
	Actor string
	// From and CompleteUntil are the operator's word that the report holds all
	// that the provider has done between them. Only where both are given does
	// absence prove something: a step whose every send lies between them, and
	// that the report does not have, was not applied. What is missing there is
	// looked for between them, or else between the oldest and the newest row.
	From, CompleteUntil time.Time
	// Visible is how long the provider may take to report an effect, and how far
	// its clock may be from ours: so much is kept away from both ends. Default
	// 1 min.
	Visible time.Duration
	// Heal settles keys whose end the report proves. Default: they are listed.
	Heal bool
	// Engine settles keys. Required where Heal is set.
	Engine *onlyonce.Engine
	// Recover runs the kept request of a key again. Required where Heal is set.
	Recover func(ctx context.Context, key onlyonce.Key) (onlyonce.Result, error)
	// Progress is told how far the run is, some times a second; nil: nobody is.
	Progress func(Progress)
}

// DefaultVisible is Config.Visible where it is not set.
const DefaultVisible = time.Minute

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Visible == 0 {
		c.Visible = DefaultVisible
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	var errs []error
	need := func(field string, there bool) {
		if !there {
			errs = append(errs, fmt.Errorf("config %s: is required", field))
		}
	}
	need("DB", c.DB != nil)
	need("Report", c.Report != nil)
	need("Format", len(c.Format.Columns) > 0)
	need("Provider", c.Provider.Name != "" && c.Provider.Decode != nil)
	need("Actor", c.Actor != "")
	need("Engine", !c.Heal || c.Engine != nil)
	need("Recover", !c.Heal || c.Recover != nil)
	if c.Visible < 0 {
		errs = append(errs, fmt.Errorf("config Visible: %v is negative", c.Visible))
	}
	if !c.CompleteUntil.IsZero() && c.CompleteUntil.Before(c.From) {
		errs = append(errs, errors.New("config CompleteUntil: is before From"))
	}
	return errors.Join(errs...)
}

// Phase is what a run is doing.
type Phase string

// The phases, in their order.
const (
	Reading   Phase = "reading"
	Matching  Phase = "matching"
	Intents   Phase = "keys"
	Comparing Phase = "comparing"
	Cleaning  Phase = "cleaning up"
)

// Progress is how far a run is.
type Progress struct {
	Phase Phase
	// Bytes and Rows have been read of the report so far.
	Bytes, Rows int64
	// Done and Of count the lines that a later phase has gone through.
	Done, Of int64
}
