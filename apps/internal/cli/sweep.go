package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
)

// sweepCmd does the housekeeping of keys once; serve does it by itself.
type sweepCmd struct {
	keysFlag
	Batch         int  `default:"5000" help:"How many rows of each kind one batch may touch."`
	Pause         span `default:"100ms" help:"The pause between two batches."`
	Grace         span `default:"5m" help:"How long a lease must have been over before an attempt that nobody retries is decided."`
	StepRetention span `default:"90d" help:"How long steps are kept after their last change, and in any case for as long as their key."`
	Timeout       span `default:"1m" help:"How long one batch may take before it is given up, with exit code 1."`
	For           span `default:"0s" help:"How long to sweep at most; what is left then is for the next sweep. 0: until nothing is left."`
	JSON          bool `name:"json" env:"-" help:"Print JSON."`
}

// Help is printed under the command's usage.
func (*sweepCmd) Help() string {
	return `Only what has expired and what has been abandoned is touched, so a sweep changes no answer, whenever it comes.
Each batch is one transaction. One sweeper is at work at a time: where another one is, this one says so and ends.
SIGINT and SIGTERM end it after the batch that is under way. Exit codes: 0 swept, or stopped, or another sweeper is at
work (--json tells which), 1 the store failed, 2 usage.`
}

// Validate refuses what makes no sense.
func (c *sweepCmd) Validate() error {
	switch {
	case c.Batch <= 0:
		return fmt.Errorf("--batch must be at least 1, got %d", c.Batch)
	case c.Pause < 0, c.Grace < 0, c.StepRetention < 0, c.For < 0:
		return fmt.Errorf("--pause, --grace, --step-retention and --for must not be negative")
	case c.Timeout <= 0:
		return fmt.Errorf("--timeout must be positive, got %s", c.Timeout)
	}
	return nil
}

// sweepView is the result as it is printed.
type sweepView struct {
	Busy bool `json:"busy"`
	Done bool `json:"done"` // nothing is left that this sweep decides
	// AbandonedDecided: the store judges leases by its clock. If not, abandoned attempts
	// are left to a Sweeper that runs, and Done says nothing of them.
	AbandonedDecided bool  `json:"abandoned_decided"`
	Batches          int64 `json:"batches"`
	Deleted          int64 `json:"deleted"`
	Freed            int64 `json:"freed"`
	Parked           int64 `json:"parked"`
	Steps            int64 `json:"steps"`
	// Seconds is how long it took, LongestBatch the longest batch of it.
	Seconds      float64 `json:"seconds"`
	LongestBatch float64 `json:"longest_batch_seconds"`
	Stopped      string  `json:"stopped,omitempty"` // why, before the end: signal or time
}

// Run sweeps.
func (c *sweepCmd) Run(ctx context.Context, std Streams) error {
	var view sweepView
	err := c.with(ctx, func(s *keystore.Store) (err error) {
		if s.Features().SingleProcess {
			return &usageError{"--store: what is in memory is in the process that has it", "sweep there, with onlyonce.Sweeper"}
		}
		if s.Features().Observes {
			fmt.Fprintln(std.Err, "onlyonce: this kind of store judges leases by watching them, so that a sweep by hand decides no abandoned attempts; let an onlyonce.Sweeper run")
		}
		view, err = c.sweep(ctx, s, std.Err)
		view.AbandonedDecided = !s.Features().Observes
		return err
	})
	if err != nil {
		if view.Batches > 0 {
			err = fmt.Errorf("%w; before that: %s", err, view.counts())
		}
		return fmt.Errorf("sweep: %w", err)
	}
	if c.JSON {
		return printJSON(std.Out, view)
	}
	view.print(std.Out)
	return nil
}

// sweep does the work on an open store.
func (c *sweepCmd) sweep(ctx context.Context, s *keystore.Store, out io.Writer) (sweepView, error) {
	quiet, err := s.Rounds(ctx)
	if err != nil {
		return sweepView{}, err
	}
	within, cancel := ctx, context.CancelFunc(func() {})
	if c.For > 0 {
		within, cancel = context.WithTimeout(ctx, time.Duration(c.For))
	}
	defer cancel()
	var counter onlyonce.SweepCounter
	p := newProgress(out)
	sum, err := onlyonce.Sweeper{
		Store: wholeBatches{s.Store, time.Duration(c.Timeout)}, Timeout: -1,
		Batch: c.Batch, Pause: max(time.Duration(c.Pause), 1), Quiet: quiet,
		Grace: max(time.Duration(c.Grace), 1), StepRetention: max(time.Duration(c.StepRetention), 1),
		Observe: func(ctx context.Context, e onlyonce.SweepEvent) {
			counter.Observe(ctx, e)
			p.say(func(took time.Duration) string { return sweepLine(counter.Totals(), took) })
		},
	}.Once(within)
	p.end()
	view := sweptView(counter.Totals())
	view.Seconds = p.now().Sub(p.begun).Seconds()
	view.Busy, view.Done = sum.Busy, err == nil && !sum.Busy && !sum.More
	switch {
	case !sum.More:
	case ctx.Err() != nil:
		view.Stopped = "signal"
	case within.Err() != nil:
		view.Stopped = "time"
	}
	return view, err
}

// wholeBatches is a store whose batches are carried out to their end, whatever
// becomes of the caller, but not for ever.
type wholeBatches struct {
	onlyonce.Store
	timeout time.Duration
}

// Sweep does one batch.
func (w wholeBatches) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.timeout)
	defer cancel()
	return w.Store.Sweep(ctx, req)
}

func sweptView(t onlyonce.SweepTotals) sweepView {
	return sweepView{
		Batches: t.Batches, Deleted: t.Deleted, Freed: t.Freed, Parked: t.Parked, Steps: t.Steps,
		LongestBatch: t.Longest.Seconds(),
	}
}

// sweepLine is how far a sweep is.
func sweepLine(t onlyonce.SweepTotals, took time.Duration) string {
	rows := t.Deleted + t.Freed + t.Parked + t.Steps
	line := fmt.Sprintf("sweeping: %s rows in %s batches", count(rows), count(t.Batches))
	if took > 0 {
		line += fmt.Sprintf(", %s a second", count(float64(rows)/took.Seconds()))
	}
	return line
}

// counts says what was done.
func (v sweepView) counts() string {
	return fmt.Sprintf("%d expired keys deleted, %d abandoned attempts freed, %d put in doubt, %d old steps deleted", v.Deleted, v.Freed, v.Parked, v.Steps)
}

func (v sweepView) print(out io.Writer) {
	var notes []string
	switch {
	case v.Busy:
		notes = append(notes, "another sweeper is at work")
	case v.Stopped == "signal":
		notes = append(notes, "stopped by a signal: more may be left")
	case v.Stopped == "time":
		notes = append(notes, "the time is over: more may be left")
	}
	if v.Batches > 1 || !v.Busy {
		notes = append(notes, v.counts())
	}
	fmt.Fprintln(out, strings.Join(notes, "; "))
}
