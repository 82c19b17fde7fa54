package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// programs are stores of another program than the payments service: of kinds that this
// one does not use, and of those that it does.
func programs() map[string]func(t *testing.T) string {
	return map[string]func(t *testing.T) string{
		"mysql":    func(t *testing.T) string { t.Helper(); return testserver.MySQL(t) },
		"redis":    func(t *testing.T) string { t.Helper(); return testserver.Redis(t) },
		"sqlite":   apptest.SQLite,
		"dynamodb": dynamo,
		"postgres+portable": func(t *testing.T) string {
			t.Helper()
			return strings.Replace(testserver.Postgres(t), "postgres", "postgres+portable", 1)
		},
		"postgres": func(t *testing.T) string { t.Helper(); return testserver.Postgres(t) },
		"schema":   func(t *testing.T) string { t.Helper(); return testserver.Postgres(t) + "&schema=mine" },
	}
}

// dynamo is a table of the test's own.
func dynamo(t *testing.T) string {
	t.Helper()
	return "dynamodb://" + strings.ToLower(strings.NewReplacer("/", "-").Replace(t.Name())) + "?region=eu-central-1&sweep=expired&endpoint=" + testserver.Dynalite(t)
}

// filled is how many completed keys a store of these tests has: more than a page.
const filled = listPage + 3

// program is the store of another program, with keys in all states.
type program struct {
	url, dir string
	features onlyonce.Features
}

func newProgram(t *testing.T, url string) program {
	t.Helper()
	if err := keystore.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	p := program{url: url, dir: t.TempDir()}
	answered(t, url, "k", filled, time.Hour)
	onStore(t, url, func(s *keystore.Store) {
		p.features = s.Features()
		for _, key := range []string{"sent", "unsent"} {
			p.doubt(t, s, key, true)
		}
		p.doubt(t, s, "plain", false)
	})
	return p
}

// ask is the claim of a key that is put in doubt, and of its retry.
func (p program) ask(key string, steps bool) onlyonce.ClaimRequest {
	req := claimOf(key, time.Minute, time.Hour)
	if steps {
		req.Abandon = onlyonce.AbandonResume
	}
	if p.features.Recovery {
		req.Keep = []byte("what it takes")
	}
	return req
}

// doubt puts a key in doubt, behind a step that has begun.
func (p program) doubt(t *testing.T, s *keystore.Store, key string, step bool) {
	t.Helper()
	c, err := s.Claim(t.Context(), p.ask(key, step))
	if err != nil || c.Verdict != onlyonce.Won {
		t.Fatalf("%s, %v", c.Verdict, err)
	}
	if step {
		store, _ := onlyonce.StepsOf(s.Store)
		begun, err := store.BeginStep(t.Context(), c.Record.Owner(), onlyonce.Intent{
			Name: "pay", Provider: "acme", DerivedKey: "dk", Reference: "oo_" + key, Request: []byte(`{"amount":1500,"currency":"ARS","card":"tok_hidden"}`), SendWithin: time.Second,
		})
		if err != nil || !begun {
			t.Fatalf("%t, %v", begun, err)
		}
	}
	if parked, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: c.Record.Owner(), Reason: "nobody knows"}); err != nil || !parked {
		t.Fatalf("%t, %v", parked, err)
	}
}

// keys runs a command about a key of the program's.
func (p program) keys(t *testing.T, command, key string, more ...string) (out, errs string, code int) {
	t.Helper()
	return run(t, append([]string{"keys", command, key, "--scope", "acct", "--store", p.url}, more...)...)
}

func (p program) show(t *testing.T, key string) (v detailView) {
	t.Helper()
	out, errs, code := p.keys(t, "show", key, "--json")
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitDone {
		t.Fatalf("show %s: %d %s, %v", key, code, errs, err)
	}
	if strings.Contains(out, "tok_hidden") {
		t.Errorf("the request is shown: %s", out)
	}
	return v
}

// settle settles a key by a file of this text; "": as not applied.
func (p program) settle(t *testing.T, key, text string, more ...string) (out, errs string, code int) {
	t.Helper()
	outcome := []string{"--not-applied"}
	if text != "" {
		file := filepath.Join(p.dir, key+".json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		outcome = []string{"--applied", file}
	}
	return p.keys(t, "settle", key, append(append(outcome, "--actor", "ana", "--reason", "asked acme"), more...)...)
}

// X3, O6: operators see and settle the keys of any program, in any store of the
// library's.
func TestKeysOnAnyStore(t *testing.T) {
	t.Parallel()
	for kind, store := range programs() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t, store(t))
			p.listed(t)
			p.shown(t)
			p.settled(t)
			p.refused(t)
		})
	}
}

// C4: what nobody has watched is not known to be dead, where leases are judged so.
func TestSettleWatched(t *testing.T) {
	t.Parallel()
	p := program{url: dynamo(t), dir: t.TempDir()}
	if err := keystore.Migrate(t.Context(), p.url); err != nil {
		t.Fatal(err)
	}
	onStore(t, p.url, func(s *keystore.Store) {
		if _, err := s.Claim(t.Context(), claimOf("dead", time.Microsecond, time.Hour)); err != nil {
			t.Fatal(err)
		}
	})
	if out, errs, code := p.settle(t, "dead", ""); code != exitWrong || out != "" || !strings.Contains(errs, "judges leases by watching them") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// list reads what keys list prints.
func (p program) list(t *testing.T, flags ...string) (keys []keyView, more bool) {
	t.Helper()
	out, errs, code := run(t, append([]string{"keys", "list", "--json", "--store", p.url}, flags...)...)
	var v struct {
		Keys []keyView `json:"keys"`
		More bool      `json:"more"`
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitDone || errs != "" {
		t.Fatalf("list %v: %d %s, %v", flags, code, errs, err)
	}
	return v.Keys, v.More
}

// listed lists over pages, a state, a scope, and no more than is asked for.
func (p program) listed(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		flags string
		want  int
		more  bool
	}{
		{"", filled + 3, false},
		{"--limit 0 --scope acct", filled + 3, false},
		{"--state completed", filled, false},
		{"--state completed --limit 2", 2, true},
		{fmt.Sprint("--state completed --limit ", filled), filled, false},
		{fmt.Sprint("--state completed --limit ", filled-1), filled - 1, true},
		{"--state in_doubt", 3, false},
		{"--state in_doubt --limit 3", 3, false},
		{"--state in_progress", 0, false},
		{"--scope other", 0, false},
	} {
		keys, more := p.list(t, strings.Fields(c.flags)...)
		seen := map[string]bool{}
		for _, k := range keys {
			seen[k.Key] = true
			if k.Answer != nil || k.Scope != "acct" || k.Name != "POST /charges" {
				t.Errorf("%s: %+v", c.flags, k)
			}
		}
		if len(keys) != c.want || len(seen) != c.want || more != c.more {
			t.Errorf("%s: %d keys, %d of them different, more %t; want %d, %t", c.flags, len(keys), len(seen), more, c.want, c.more)
		}
	}
	out, errs, code := run(t, "keys", "list", "--state", "in_doubt", "--store", p.url)
	if code != exitDone || errs != "" || !strings.HasPrefix(out, "SCOPE ") || strings.Count(out, " in_doubt ") != 3 || strings.Count(out, "nobody knows") != 3 {
		t.Errorf("%d %s\n%s", code, errs, out)
	}
}

// shown shows a key with its steps, and what a command can do about it here.
func (p program) shown(t *testing.T) {
	t.Helper()
	v := p.show(t, "sent")
	next := strings.Join(v.Next, "\n")
	if v.State != "in_doubt" || v.Reason != "nobody knows" || v.RequestKept != p.features.Recovery || len(v.Steps) != 1 || len(v.Audit) != 0 ||
		!strings.Contains(next, `{"step": "pay", "result": …}`) || !strings.Contains(next, "ask acme for oo_sent") || strings.Contains(next, "keys recover") || strings.Contains(next, "ledger") {
		t.Errorf("%+v", v)
	}
	if s := v.Steps[0]; s.State != "begun" || s.Provider != "acme" || s.DerivedKey != "dk" || s.Sends != 1 || len(s.RequestSHA256) != 64 {
		t.Errorf("%+v", s)
	}
	if v := p.show(t, "k0"); v.State != "completed" || v.Answer == nil || v.Answer.Status != 201 || len(v.Answer.Body) != 500 || len(v.Next) != 0 {
		t.Errorf("%+v", v)
	}
	out, _, code := p.keys(t, "show", "plain")
	if code != exitDone || !strings.Contains(out, "what can be done:") || !strings.Contains(out, "--not-applied") {
		t.Errorf("%d %s", code, out)
	}
	if _, errs, code := p.keys(t, "show", "none"); code != exitWrong || !strings.Contains(errs, `there is no key "none" of scope "acct"`) {
		t.Errorf("%d %s", code, errs)
	}
}

// settled settles a key in each of the three ways, all of which are in the audit.
func (p program) settled(t *testing.T) {
	t.Helper()
	for _, c := range []struct{ key, text, want, action string }{
		{"unsent", "", " is failed_retryable", "settle not applied"},
		{"plain", `{"status":201,"headers":{"X-By":"hand"},"body":"done"}`, " is completed with status 201", "settle applied"},
		{"sent", `{"step":"pay","result":{"receipt": [1.50]}}`, "no tables of the payments service", "settle step result"},
	} {
		if out, errs, code := p.settle(t, c.key, c.text); code != exitDone || errs != "" || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d %s %s", c.key, code, out, errs)
		}
		v := p.show(t, c.key)
		if len(v.Audit) != 1 || v.Audit[0].Action != c.action || v.Audit[0].Actor != "ana" || v.Audit[0].Reason != "asked acme" || time.Since(v.Audit[0].At).Abs() > time.Hour {
			t.Errorf("%s: %+v", c.key, v.Audit)
		}
		if _, errs, code := p.settle(t, c.key, ""); code == exitDone {
			t.Errorf("%s was settled twice: %s", c.key, errs)
		}
	}
	if s := p.show(t, "unsent").Steps[0]; s.State != "not_applied" {
		t.Errorf("%+v", s)
	}
	if s := p.show(t, "sent").Steps[0]; s.State != "done" || s.Result != `{"receipt": [1.50]}` {
		t.Errorf("%+v", s)
	}
	onStore(t, p.url, func(s *keystore.Store) {
		for key, want := range map[string]onlyonce.Verdict{"sent": onlyonce.Resumed, "unsent": onlyonce.Resumed, "plain": onlyonce.Replay} {
			c, err := s.Claim(t.Context(), p.ask(key, key != "plain"))
			if err != nil || c.Verdict != want {
				t.Errorf("the retry of %s: %s, %v; want %s", key, c.Verdict, err, want)
			}
			if key == "plain" && (string(c.Record.Answer.Body) != "done" || c.Record.Answer.Header["X-By"][0] != "hand") {
				t.Errorf("%+v", c.Record.Answer)
			}
		}
	})
}

// refused is what the commands do not do there, and say so.
func (p program) refused(t *testing.T) {
	t.Helper()
	onStore(t, p.url, func(s *keystore.Store) { p.doubt(t, s, "more", true) })
	for text, want := range map[string]string{
		`{"status":201}`:               "step pay may have had its effect",
		`{"step":"pay"}`:               "has no result",
		`{"step":"refund","result":1}`: `step "refund", which the key has not begun`,
		`{"step":"pay","result":{"amount":1400,"currency":"ARS"}}`: "the step asked for 1500 ARS, the result says 1400 ARS",
	} {
		if _, errs, code := p.settle(t, "more", text); code != exitUsage || !strings.Contains(errs, want) || strings.Contains(errs, "succeeded") != strings.Contains(want, "no result") {
			t.Errorf("%s: %d %s", text, code, errs)
		}
	}
	if v := p.show(t, "more"); v.State != "in_doubt" || len(v.Audit) != 0 {
		t.Errorf("%+v", v)
	}
	if _, errs, code := p.settle(t, "none", ""); code != exitWrong || !strings.Contains(errs, "no record") {
		t.Errorf("%d %s", code, errs)
	}
	report := filepath.Join(p.dir, "report.csv")
	if err := os.WriteFile(report, []byte("type,id,reference,charge,amount,currency,created_at\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "payments service's own databases"
	if servable(p.url) {
		want = "the payments service has no tables there"
	}
	for _, command := range []string{"keys recover more --scope acct --processor http://127.0.0.1:1 --processor-memory 23h --processor-lookup", "reconcile --actor ana --report " + report, "reconcile list"} {
		if strings.HasPrefix(command, "keys recover") && servable(p.url) {
			continue // it says that another provider was asked
		}
		if out, errs, code := run(t, append(strings.Fields(command), "--store", p.url)...); code != exitUsage || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s %s", command, code, out, errs)
		}
	}
	if servable(p.url) {
		return
	}
	if _, errs, code := run(t, "serve", "--listen", "127.0.0.1:0", "--store", p.url); code != exitUsage || !strings.Contains(errs, "payments service needs sqlite:PATH or postgres://") {
		t.Errorf("serve: %d %s", code, errs)
	}
}
