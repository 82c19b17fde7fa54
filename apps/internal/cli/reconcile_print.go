package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// errEnough ends a list.
var errEnough = errors.New("enough")

// some are the findings that each gives, up to a limit; 0 is none.
func some(limit int, each func(fn func(reconcile.Finding) error) error) (list []reconcile.Finding, err error) {
	list = []reconcile.Finding{}
	err = each(func(f reconcile.Finding) error {
		if limit > 0 && len(list) == limit {
			return errEnough
		}
		list = append(list, f)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return list, err
}

// print says what a run has found.
func (c *reconcileRunCmd) print(ctx context.Context, out io.Writer, d *db.Database, res reconcile.Result) error {
	findings, err := some(c.Limit, func(fn func(reconcile.Finding) error) error {
		return reconcile.ListRun(ctx, d, res.Run, func(f reconcile.Finding) error {
			if f.Status == reconcile.Accepted {
				return nil
			}
			return fn(f)
		})
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, struct {
			reconcile.Result
			Findings []reconcile.Finding `json:"findings"`
		}{res, findings})
	}
	summarize(out, res)
	if err := printFindings(out, findings, false); err != nil {
		return err
	}
	total := res.Healed
	for _, n := range res.Breaks {
		total += n
	}
	if rest := total - int64(len(findings)); rest > 0 {
		fmt.Fprintf(out, "and %d more; --limit 0 prints all\n", rest)
	}
	return nil
}

// summarize prints the counts.
func summarize(out io.Writer, res reconcile.Result) {
	fmt.Fprintf(out, "run %d: %s, sha256 %s\n", res.Run, res.File, res.SHA256)
	fmt.Fprintf(out, "%d rows", res.Rows)
	if res.Oldest != nil {
		fmt.Fprintf(out, " from %s to %s", res.Oldest.Format(time.RFC3339), res.Newest.Format(time.RFC3339))
	}
	fmt.Fprintf(out, "; matched %s\n", counts(res.Matched))
	if len(res.Skipped) > 0 {
		fmt.Fprintf(out, "skipped %s\n", counts(res.Skipped))
	}
	var breaks []string
	for _, kind := range reconcile.Kinds() {
		if n := res.Breaks[kind]; n > 0 {
			breaks = append(breaks, fmt.Sprintf("%d %s", n, kind))
		}
	}
	if len(breaks) == 0 {
		breaks = []string{"nothing"}
	}
	fmt.Fprintf(out, "found %s; healed %d, resolved %d, accepted before %d, in progress %d\n",
		strings.Join(breaks, ", "), res.Healed, res.Resolved, res.Accepted, res.InProgress)
	if res.OpenBefore > 0 {
		fmt.Fprintf(out, "%d older findings are open that this report says nothing about\n", res.OpenBefore)
	}
	if res.Others > 0 {
		fmt.Fprintf(out, "%d keys are in doubt over another provider\n", res.Others)
	}
	for _, note := range res.Notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
}

// counts is "2 charge, 1 refund".
func counts(n map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%d %s", n[name], name))
	}
	return strings.Join(parts, ", ")
}

// printFindings is a table; with their age if they are not of just now.
func printFindings(out io.Writer, findings []reconcile.Finding, aged bool) error {
	if len(findings) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "ID\tSTATUS\tKIND\tTYPE\tPROVIDER ID\tOPERATION\tOURS\tTHEIRS")
	if aged {
		fmt.Fprint(w, "\tFIRST SEEN\tLAST SEEN\tRUNS")
	}
	fmt.Fprintln(w)
	for _, f := range findings {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s", f.ID, f.Status, f.Kind, dash(f.Type), dash(f.ProviderID), dash(f.Operation), dash(f.Ours), dash(f.Theirs))
		if aged {
			fmt.Fprintf(w, "\t%s\t%s\t%d", f.First.Format(time.RFC3339), f.Last.Format(time.RFC3339), f.Runs)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	for _, f := range findings {
		fmt.Fprintf(out, "%d: %s\n", f.ID, f.Detail)
	}
	return nil
}

// dash stands for nothing.
func dash(text string) string { return orDefault(text, "-") }
