package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
)

// shop is a service and its processor, as three commands of one machine.
type shop struct {
	dir, store string
	processor  running
	service    running
	client     *http.Client
}

func newShop(t *testing.T, store string) *shop {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s := &shop{dir: t.TempDir(), store: store, client: &http.Client{Transport: transport}}
	s.processor = launch(t, "processor", "--listen", "127.0.0.1:0", "--journal", filepath.Join(s.dir, "journal.jsonl"))
	s.service = launch(t, "serve", "--listen", "127.0.0.1:0", "--store", store, "--processor", s.processor.url, "--processor-timeout", "200ms", "--log-level", "ERROR")
	return s
}

// charge sends a charge, and checks the status of its answer.
func (s *shop) charge(t *testing.T, key, source string, status int) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.service.url+"/charges", strings.NewReader(`{"amount":1500,"currency":"ARS","source":"`+source+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	resp, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("%s: %s %s %v, want %d", key, resp.Status, body, err, status)
	}
	return string(body)
}

// report writes the processor's report into a file.
func (s *shop) report(t *testing.T) string {
	t.Helper()
	file := filepath.Join(s.dir, "report.csv")
	if out, errs, code := run(t, "processor", "report", "--processor", s.processor.url, "--out", file); code != exitDone || out != "" || errs != "" {
		t.Fatalf("processor report: %d %s %s", code, out, errs)
	}
	return file
}

// reconcile runs the command with an operator's name.
func (s *shop) reconcile(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	args = append(append([]string{"reconcile"}, args...), "--store", s.store)
	if args[1] != "list" {
		args = append(args, "--actor", "ana")
	}
	return run(t, args...)
}

// A processor that timed out after charging, the key in doubt, its report, and the
// key completed with the right answer while the service runs.
func TestReconcileHeals(t *testing.T) { // X2
	t.Parallel()
	s := newShop(t, apptest.SQLite(t))
	s.charge(t, "k1", "tok_visa", 201)
	s.charge(t, "k2", "tok_timeout", 409)
	file := s.report(t)

	out, errs, code := s.reconcile(t, "--report", file)
	if code != exitWrong || !strings.Contains(out, "found 1 healable; healed 0") || !strings.Contains(out, "--heal") || !strings.Contains(errs, "there is a finding") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	out, _, code = s.reconcile(t, "list")
	if code != exitDone || !strings.Contains(out, "FIRST SEEN") || !strings.Contains(out, "healable") {
		t.Errorf("list: %d %s", code, out)
	}
	out, errs, code = s.reconcile(t, "--report", file, "--heal")
	if code != exitDone || errs != "" || !strings.Contains(out, "found nothing; healed 1") || !strings.Contains(out, "the key is completed, with status 201") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	first := s.charge(t, "k2", "tok_timeout", 201)
	if again := s.charge(t, "k2", "tok_timeout", 201); first != again {
		t.Errorf("%s, then %s", first, again)
	}
	out, errs, code = s.reconcile(t, "list")
	if code != exitDone || !strings.Contains(out, "no open findings") || errs != "" {
		t.Errorf("list: %d %s %s", code, out, errs)
	}
	out, _, code = run(t, "keys", "show", "k2", "--scope", "dev", "--store", s.store)
	if code != exitDone || !strings.Contains(out, "settle step result by ana: run 2 of ana: report "+file) {
		t.Errorf("show: %d %s", code, out)
	}
	checkJSON(t, s, file)
}

// checkJSON reads what a run prints for programs.
func checkJSON(t *testing.T, s *shop, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	more := string(text) + "charge,pc_x,oo_x,,100,ARS,2026-01-31T10:00:00Z\nfee,fee_1,,,1,ARS,2026-01-31T10:00:00Z\n"
	var out, errs bytes.Buffer
	code := Run(t.Context(), []string{"reconcile", "--report", "-", "--types", "fee=skip", "--store", s.store, "--actor", "ana", "--json"},
		Streams{In: strings.NewReader(more), Out: &out, Err: &errs})
	var res struct {
		reconcile.Result
		Findings []reconcile.Finding `json:"findings"`
	}
	if err := json.Unmarshal(out.Bytes(), &res); err != nil || code != exitWrong {
		t.Fatalf("%d %s %s, %v", code, &out, &errs, err)
	}
	if res.Rows != 3 || res.Matched["charge"] != 2 || res.Skipped["fee"] != 1 || len(res.Findings) != 1 || res.Findings[0].Kind != reconcile.MissingHere || res.Breaks[reconcile.MissingHere] != 1 {
		t.Errorf("%+v", res)
	}
	id := fmt.Sprint(res.Findings[0].ID)
	if text, _, code := s.reconcile(t, "list", "--json"); code != exitDone || !strings.Contains(text, `"first_seen"`) || !strings.Contains(text, `"pc_x"`) {
		t.Errorf("list: %d %s", code, text)
	}
	if text, _, code := s.reconcile(t, "accept", id, "--reason", "a test of theirs"); code != exitDone || !strings.Contains(text, "is accepted") {
		t.Errorf("accept: %d %s", code, text)
	}
	if text, _, code := s.reconcile(t, "accept", id, "--reason", "again"); code != exitWrong {
		t.Errorf("accept: %d %s", code, text)
	}
	code = Run(t.Context(), []string{"reconcile", "--report", "-", "--types", "fee=skip", "--store", s.store, "--actor", "ana"},
		Streams{In: strings.NewReader(more), Out: io.Discard, Err: &errs})
	if code != exitDone {
		t.Errorf("an accepted finding gives %d", code)
	}
}

// Bad input names the place, imports nothing, and exits with 2.
func TestReconcileUsage(t *testing.T) { // X2
	t.Parallel()
	store := apptest.SQLite(t)
	if _, errs, code := run(t, "migrate", "up", "--store", store); code != exitDone {
		t.Fatal(errs)
	}
	const head = "type,id,reference,charge,amount,currency,created_at\n"
	for name, tt := range map[string]struct {
		report string
		args   []string
		want   string
	}{
		"a broken line":        {head + "charge,pc_1,,,x,ARS,2026-01-31T10:00:00Z\n", nil, "line 2, column 15 (amount): \"x\" is no whole number; nothing was imported"},
		"no such column":       {"type,id\n", nil, "no column for amount (amount), currency (currency), created (created_at); there are \"type\", \"id\""},
		"no such file":         {"", []string{"--report", "none.csv"}, "none.csv"},
		"an unknown field":     {head, []string{"--columns", "typ=type"}, "there is no field \"typ\""},
		"a field is left out":  {head, []string{"--columns", "type=type,id=id"}, "has no column"},
		"an unknown meaning":   {head, []string{"--types", "x=money"}, "cannot mean"},
		"an unknown format":    {head, []string{"--format", "paypal"}, "--format"},
		"no time":              {head, []string{"--complete-until", "yesterday"}, "is no time"},
		"the future":           {head, []string{"--complete-until", "2999-01-01"}, "in the future"},
		"the wrong way round":  {head, []string{"--from", "2026-02-01", "--complete-until", "2026-01-01"}, "is not after --from"},
		"no separator":         {head, []string{"--separator", "ab"}, "not one character"},
		"nobody":               {head, []string{"--actor", ""}, "--actor is required"},
		"a negative limit":     {head, []string{"--limit=-1"}, "must not be negative"},
		"another store":        {head, []string{"--store", "sqlite:" + t.TempDir() + "/none.db"}, "there is no file"},
		"a word too many":      {head, []string{"report.csv"}, "unexpected argument"},
		"an accept of nothing": {"", []string{"accept"}, "accept"},
		"a list of minus two":  {"", []string{"list", "--limit=-2"}, "must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"reconcile", "--report", "-", "--actor", "ana", "--store", store}, tt.args...)
			if len(tt.args) > 0 && (tt.args[0] == "accept" || tt.args[0] == "list") {
				args = append([]string{"reconcile"}, append(tt.args, "--store", store)...)
			}
			var out, errs bytes.Buffer
			code := Run(t.Context(), args, Streams{In: strings.NewReader(tt.report), Out: &out, Err: &errs})
			if code != exitUsage || !strings.Contains(errs.String(), tt.want) || out.Len() > 0 {
				t.Errorf("%d %s %s; want %q", code, &out, &errs, tt.want)
			}
		})
	}
}

// What the columns, their units and their separator are, is said by flags.
func TestReconcileColumns(t *testing.T) {
	t.Parallel()
	store := apptest.SQLite(t)
	if _, errs, code := run(t, "migrate", "up", "--store", store); code != exitDone {
		t.Fatal(errs)
	}
	for name, tt := range map[string]struct {
		report string
		args   []string
		want   string
	}{
		"major units": {"T;I;A;C;W\nSale;x;15.00;ars;2026-01-31\n", []string{"--separator", ";"}, "15.00 ARS"},
		"minor units": {"T;I;A;C;W\nSale;x;15;ars;2026-01-31\n", []string{"--separator", ";", "--amounts", "minor"}, "0.15 ARS"},
		"tabs":        {"T\tI\tA\tC\tW\nSale\tx\t15\tars\t2026-01-31\n", []string{"--separator", `\t`}, "15.00 ARS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{
				"reconcile", "run", "--report", "-", "--actor", "ana", "--store", store, "--types", "Sale=charge",
				"--columns", "type=T,id=I,amount=A,currency=C,created=W", "--provider", name,
			}, tt.args...)
			for busy := true; busy; { // one run at a time on a store
				var out, errs bytes.Buffer
				code := Run(t.Context(), args, Streams{In: strings.NewReader(tt.report), Out: &out, Err: &errs})
				busy = strings.Contains(errs.String(), "another reconciliation")
				if !busy && (code != exitWrong || !strings.Contains(out.String(), tt.want) || !strings.Contains(out.String(), "note: the report has no column with our references")) {
					t.Errorf("%d %s %s", code, &out, &errs)
				}
			}
		})
	}
}

// A store that failed while a key was being settled is an unknown outcome.
func TestReconcileVerdict(t *testing.T) {
	t.Parallel()
	breaks := map[reconcile.Kind]int64{reconcile.StillUnknown: 2}
	for code, res := range map[int]reconcile.Result{
		exitDone: {Healed: 1}, exitWrong: {Breaks: breaks}, exitUnknown: {Breaks: breaks, Uncertain: 1},
	} {
		var errs bytes.Buffer
		if got := (Streams{Err: &errs}).fail(verdictOf(res)); got != code {
			t.Errorf("%+v ends with %d, want %d: %s", res, got, code, &errs)
		}
	}
	if !errors.Is(verdictOf(reconcile.Result{Uncertain: 1}), onlyonce.ErrUncertain) {
		t.Error("an unknown outcome has another code")
	}
}

// A terminal gets a bar, a log a line now and then, and neither more than that.
func TestBar(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	show := func(terminal bool, step time.Duration) string {
		var out bytes.Buffer
		b := newBar(&out, 2_000_000)
		now := at
		b.terminal, b.now, b.begun, b.shown = terminal, func() time.Time { return now }, at, at
		for i := range 4 {
			now = now.Add(step)
			b.show(reconcile.Progress{Phase: reconcile.Reading, Bytes: int64(i) * 500_000, Rows: int64(i) * 1000})
		}
		now = now.Add(step)
		b.show(reconcile.Progress{Phase: reconcile.Comparing, Done: 1, Of: 2})
		b.end()
		return out.String()
	}
	if got := show(false, time.Second); got != "onlyonce: comparing [###############...............]  50%\n" {
		t.Errorf("a log gets %q", got)
	}
	got := show(true, 200*time.Millisecond)
	if !strings.Contains(got, "\rreading [#######.......................]  25% 0.5 MB of 2.0, 1000 rows, 2500 a second") || !strings.HasSuffix(got, "\r") || strings.Contains(got, "\n") {
		t.Errorf("a terminal gets %q", got)
	}
	if got := show(true, time.Millisecond); got != "" {
		t.Errorf("within milliseconds a terminal gets %q", got)
	}
	if isTerminal(&bytes.Buffer{}) {
		t.Error("a buffer is a terminal")
	}
}

// A report is printed, or written as a whole or not at all.
func TestProcessorReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, "processor", "--listen", "127.0.0.1:0", "--journal", filepath.Join(dir, "journal.jsonl"))
	out, errs, code := run(t, "processor", "report", "--processor", p.url)
	if code != exitDone || out != "type,id,reference,charge,amount,currency,created_at\n" {
		t.Errorf("%d %s %s", code, out, errs)
	}
	p.stop()
	file := filepath.Join(dir, "report.csv")
	if _, errs, code = run(t, "processor", "report", "--processor", p.url, "--out", file); code == exitDone || !strings.Contains(errs, "processor report: ") {
		t.Errorf("%d %s", code, errs)
	}
	if left, _ := filepath.Glob(file + "*"); left != nil {
		t.Errorf("%v are left", left)
	}
	if _, errs, code = run(t, "processor", "report", "--processor", p.url, "--out", filepath.Join(dir, "none", "x")); code != exitUsage || !strings.Contains(errs, "hint: ") {
		t.Errorf("%d %s", code, errs)
	}
}

// Every command explains itself.
func TestReconcileHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"reconcile run", "reconcile list", "reconcile accept", "processor run", "processor report"} {
		out, errs, code := run(t, append(strings.Fields(command), "--help")...)
		if code != exitDone || errs != "" || !strings.Contains(out, "Usage: onlyonce "+command) {
			t.Errorf("%s --help: %d %s %s", command, code, out, errs)
		}
	}
	if out, _, _ := run(t, "reconcile", "run", "--help"); !strings.Contains(strings.Join(strings.Fields(out), " "), "Exit codes: 0 everything agrees") {
		t.Errorf("the exit codes are not said: %s", out)
	}
}
