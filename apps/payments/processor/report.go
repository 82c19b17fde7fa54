package processor

import (
	"encoding/csv"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// ReportColumns returns the names of the report's columns, its first line. The type
// is "charge" or "refund"; charge is the id of the charge that a refund belongs to,
// and empty for charges; amount is in minor units; created_at is in RFC 3339, UTC.
func ReportColumns() []string {
	return []string{"type", "id", "reference", "charge", "amount", "currency", "created_at"}
}

// getReport answers with everything that moved money until now. Like lists and
// statistics it shows at once what look-ups find later.
func (s *Server) getReport(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
	lines := csv.NewWriter(w)
	// An error of Write means that the client is gone, and stays the writer's.
	if lines.Write(ReportColumns()) != nil {
		return
	}
	for line := range s.ledger.report() {
		if lines.Write(line) != nil {
			return
		}
	}
	lines.Flush()
}

// report returns the report's lines as they are at the time of the call. Nothing is
// copied: what is recorded is never changed, so it is read without a lock.
func (l *ledger) report() iter.Seq[[]string] {
	l.mu.Lock()
	defer l.mu.Unlock()
	history, charges, refunds := l.history, l.charges.all, l.refunds.all
	return func(yield func([]string) bool) {
		charge, refund := 0, 0
		for _, k := range history {
			var line []string
			if k == kindRefund {
				line = refunds[refund].reportLine()
				refund++
			} else {
				line = charges[charge].reportLine()
				charge++
			}
			if line != nil && !yield(line) {
				return
			}
		}
	}
}

// reportLine is nil where no money moved.
func (c *Charge) reportLine() []string {
	if !c.Succeeded() {
		return nil
	}
	return []string{"charge", c.ID, c.Reference, "", minor(c.Amount), string(c.Currency), reportTime(c.CreatedAt)}
}

func (r *Refund) reportLine() []string {
	return []string{"refund", r.ID, r.Reference, r.Charge, minor(r.Amount), string(r.Currency), reportTime(r.CreatedAt)}
}

func minor(amount int64) string { return strconv.FormatInt(amount, 10) }

func reportTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
