package processor_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// reported is the report, read as CSV.
func reported(t *testing.T, c *processor.Client) [][]string {
	t.Helper()
	var report bytes.Buffer
	if err := c.Report(t.Context(), &report); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&report).ReadAll()
	if err != nil {
		t.Fatalf("%v in\n%s", err, report.String())
	}
	return lines
}

// X2: the report has all money that moved, oldest first, whatever is in a
// reference, visible to look-ups or not, before and after a restart.
func TestReport(t *testing.T) {
	t.Parallel()
	now := newClock()
	config := processor.Config{
		Path: filepath.Join(t.TempDir(), "journal"), Now: now.Now,
		NoLookup: true, VisibleAfter: time.Hour,
	}
	b := setup(t, config)
	if diff := cmp.Diff([][]string{processor.ReportColumns()}, reported(t, b.client)); diff != "" {
		t.Errorf("empty report (-want +got):\n%s", diff)
	}
	first := mustCharge(t, b, "key-1", charge("tok_visa", `order "1", the
first; é`))
	mustCharge(t, b, "key-2", charge("tok_chargeDeclined", "order-2"))
	now.advance(1500 * time.Millisecond)
	given, err := b.client.Refund(t.Context(), "key-3", processor.RefundRequest{Charge: first.ID, Amount: 500, Reference: "refund-1"}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	now.advance(-time.Minute) // a clock that was put back changes no order
	euros := charge("tok_error_after", "")
	euros.Currency = "EUR"
	if _, err := b.client.Charge(t.Context(), "key-4", euros.Encode()); err == nil {
		t.Error("error_after did not fail")
	}
	last := mustCharge(t, b, "key-4", euros)
	want := [][]string{
		{"type", "id", "reference", "charge", "amount", "currency", "created_at"},
		{"charge", first.ID, "order \"1\", the\nfirst; é", "", "1500", "ARS", "2026-03-01T12:00:00Z"},
		{"refund", given.ID, "refund-1", first.ID, "500", "ARS", "2026-03-01T12:00:01.5Z"},
		{"charge", last.ID, "", "", "1500", "EUR", "2026-03-01T11:59:01.5Z"},
	}
	if diff := cmp.Diff(want, reported(t, b.client)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if err := b.server.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, reported(t, setup(t, config).client)); diff != "" {
		t.Errorf("report after a restart (-want +got):\n%s", diff)
	}
}

// A report that is read while money moves is whole: nobody waits for it, and a
// refund comes after its charge.
func TestReportWhileMoneyMoves(t *testing.T) {
	t.Parallel()
	b := setup(t, processor.Config{KeysOptional: true})
	var movers sync.WaitGroup
	for i := range 8 {
		movers.Go(func() {
			for range 10 {
				c := mustCharge(t, b, "", charge("tok_visa", fmt.Sprintf("order-%d", i)))
				if _, err := b.client.Refund(t.Context(), "", processor.RefundRequest{Charge: c.ID, Amount: 1500}.Encode()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	check := func() (lines int) {
		seen := map[string]bool{"": true}
		for _, line := range reported(t, b.client)[1:] {
			if !seen[line[3]] || seen[line[1]] {
				t.Errorf("out of order, or twice: %v", line)
			}
			seen[line[1]] = true
			lines++
		}
		return lines
	}
	for range 5 {
		check()
	}
	movers.Wait()
	if got := check(); got != 160 {
		t.Errorf("%d lines in the end, want 160", got)
	}
}

type failingWriter struct{ after int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.after--; w.after < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

// A report that is not whole is an error.
func TestReportFails(t *testing.T) {
	t.Parallel()
	b := setup(t, processor.Config{})
	if err := b.client.Report(t.Context(), &failingWriter{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a writer that fails: %v", err)
	}
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter)
		status int
		code   string
	}{
		"refused": {status: 403, code: "forbidden", answer: func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"code":"forbidden","message":"not for you"}`)
		}},
		"refused, cut off": {status: 500, answer: func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"code":`)
		}},
		"cut off": {status: 200, answer: func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, strings.Repeat("charge,pc_1,order-1,,1500,ARS,2026-03-01T12:00:00Z\n", 1000))
			panic(http.ErrAbortHandler)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/report.csv" || r.Header.Get("Accept") != "text/csv" {
					t.Errorf("asked for %s as %s", r.URL, r.Header.Get("Accept"))
				}
				tt.answer(w)
			}))
			t.Cleanup(server.Close)
			err := newClient(t, server.URL).Report(t.Context(), io.Discard)
			e, ok := errors.AsType[*processor.Error](err)
			if !ok || e.Status != tt.status || e.Code != tt.code {
				t.Errorf("Report: %v; want status %d %s", err, tt.status, tt.code)
			}
		})
	}
	gone := newClient(t, unusedAddress(t))
	if err := gone.Report(t.Context(), io.Discard); processor.FateOf(err) != processor.NotSent {
		t.Errorf("nobody there: %v", err)
	}
}

// The server gives up when its reader has gone.
func TestReportToNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, processor.Config{KeysOptional: true})
	for range 100 {
		mustCharge(t, b, "", charge("tok_visa", strings.Repeat("r", 200)))
	}
	for _, after := range []int{0, 1} {
		w := &deafWriter{failingWriter: failingWriter{after}, header: http.Header{}}
		b.server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/report.csv", nil))
		if !slices.Contains(w.header["Content-Type"], "text/csv; charset=utf-8; header=present") || w.after != -1 {
			t.Errorf("type %v, %d writes after the first that failed", w.header, -w.after-1)
		}
	}
}

// deafWriter is a response whose reader has gone.
type deafWriter struct {
	failingWriter

	header http.Header
}

func (w *deafWriter) Header() http.Header { return w.header }
func (w *deafWriter) WriteHeader(int)     {}
