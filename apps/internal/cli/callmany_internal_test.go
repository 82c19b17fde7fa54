package cli

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/onceclient/filejournal"
)

// What is open is listed with how to go on, and goes on together; credentials go to
// the host they are for, and what is another's stays. (L1)
func TestCallResume(t *testing.T) {
	t.Parallel()
	d, other, p := newDesk(t, status(500, "oops")), newDesk(t, status(500, "oops")), newPhone(t)
	for _, at := range []struct{ intent, url string }{{"a", d.url + "/a"}, {"b", other.url + "/b"}, {"c c", d.url + "/c"}} {
		if _, errs, code := p.call(t, "-d", `{"a":1}`, at.url, "--intent", at.intent, "--attempts", "1", "-u", "ann:password"); code != exitUnknown {
			t.Fatalf("%d %s", code, errs)
		}
	}
	var views []openView
	out, _, code := p.call(t, "--list", "--json")
	if err := json.Unmarshal([]byte(out), &views); err != nil || code != 0 || len(views) != 3 {
		t.Fatalf("%d %v %s", code, err, out)
	}
	for _, v := range views {
		if v.Key == "" || v.Method != http.MethodPost || v.URL == "" || v.Created.IsZero() || v.Attempts != 1 || v.Note == "" || v.Busy {
			t.Errorf("%+v", v)
		}
	}
	if want := "onlyonce call --intent 'c c' --journal " + p.journal; views[2].Again != want {
		t.Errorf("go on with %q, want %q", views[2].Again, want)
	}
	out, _, code = p.call(t, "--list", other.url)
	if lines := strings.Split(out, "\n"); code != 0 || len(lines) != 3 || !strings.HasPrefix(lines[0], "INTENT") || !strings.Contains(lines[1], "POST "+other.url+"/b") {
		t.Errorf("%d %s", code, out)
	}
	d.answer = nil
	out, errs, code := p.call(t, "--resume", d.url, "-u", "ann:password")
	if code != 0 || sortedLines(out) != "a: answered 201 Created\nc c: answered 201 Created\n" {
		t.Errorf("%d %s%s", code, out, errs)
	}
	for _, got := range d.seen() {
		if user, password, _ := (&http.Request{Header: got.header}).BasicAuth(); user+password != "annpassword" {
			t.Errorf("%s: the user is %q", got.path, user)
		}
	}
	if got := other.seen(); len(got) != 1 {
		t.Errorf("the other host has %d requests", len(got))
	}
	wantNotKept(t, p, "password", "YW5u")
}

// sortedLines is a text whose lines may come in any order.
func sortedLines(text string) string { return strings.Join(slices.Sorted(strings.Lines(text)), "") }

// The exit code of --resume is that of the worst.
func TestCallResumeWorst(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, status(500, "oops")), newPhone(t)
	for _, intent := range []string{"fine", "refused", "unknown"} {
		p.call(t, "-X", "POST", d.url+"/"+intent, "--intent", intent, "--attempts", "1")
	}
	d.answer = func(w http.ResponseWriter, r *http.Request) {
		code := map[string]int{"/fine": 200, "/refused": 422, "/unknown": 500}[r.URL.Path]
		status(code, "")(w, r)
	}
	out, errs, code := p.call(t, "--resume", "--attempts", "1", "--json")
	var views []callView
	if err := json.Unmarshal([]byte(out), &views); err != nil || code != exitUnknown || len(views) != 3 {
		t.Fatalf("%d %v %s", code, err, out)
	}
	wants := map[string]string{"fine": outcomeAnswered, "refused": outcomeRefused, "unknown": outcomeUnknown}
	for _, v := range views {
		if v.Outcome != wants[v.Intent] {
			t.Errorf("%+v, want %s", v, wants[v.Intent])
		}
	}
	if !strings.Contains(errs, "1 answered, 1 refused, 0 not sent, 1 unknown\nhint: ask again later: onlyonce call --resume --journal "+p.journal) {
		t.Errorf("it says %s", errs)
	}
	d.answer = status(200, "")
	if out, errs, code := p.call(t, "--resume"); code != 0 || out != "unknown: answered 200 OK\n" || !strings.Contains(errs, "1 answered, nothing is open") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if out, errs, code := p.call(t, "--list"); code != 0 || out != "" || errs != "onlyonce: nothing is open\n" {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

// What another process works on is waited for, no longer than an operation may take,
// and is left alone by --resume. (L1)
func TestCallBusy(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, status(500, "")), newPhone(t)
	p.call(t, "-X", "POST", d.url, "--intent", "o", "--attempts", "1")
	journal, err := filejournal.Open(p.journal)
	if err != nil {
		t.Fatal(err)
	}
	lock, _, err := journal.Lock(t.Context(), "o")
	if err != nil {
		t.Fatal(err)
	}
	const busy = "another process is working on o, or was just killed"
	for name, args := range map[string][]string{
		"by its name": {"--intent", "o"}, "whole": {"-X", "POST", d.url, "--intent", "o"}, "resume": {"--resume"},
	} {
		out, errs, code := p.call(t, append(args, "--timeout", "3s")...)
		if code != exitUnknown || out != "" || !strings.Contains(errs, busy) || !strings.Contains(errs, "hint: ask again") {
			t.Errorf("%s: %d %q %s", name, code, out, errs)
		}
	}
	if out, _, code := p.call(t, "--list"); code != 0 || !strings.Contains(out, "o      ") || !strings.Contains(out, "another process is working on it") {
		t.Errorf("list: %d %q", code, out)
	}
	if len(d.seen()) != 1 {
		t.Errorf("%d requests", len(d.seen()))
	}
	d.answer = nil
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := p.call(t, "--intent", "o"); code != 0 || out != "{\"id\": 1}\n" {
		t.Errorf("%d %q %s", code, out, errs)
	}
}

// Pruning forgets old answers and nothing that is open.
func TestCallPrune(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, nil), newPhone(t)
	p.call(t, "-X", "POST", d.url, "--intent", "done")
	d.answer = status(500, "")
	p.call(t, "-X", "POST", d.url, "--intent", "open", "--attempts", "1")
	if out, errs, code := p.call(t, "--prune", "90d"); code != 0 || out != "0 forgotten\n" {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if out, errs, code := p.call(t, "--prune", "1h"); code != exitUsage || out != "" || !strings.Contains(errs, "less than --retention") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if out, errs, code := p.call(t, "--prune", "1ns", "--retention", "1ns", "--json"); code != 0 || out != "{\n  \"forgotten\": 1\n}\n" {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if out, _, _ := p.call(t, "--list", "--json"); !strings.Contains(out, `"intent": "open"`) {
		t.Errorf("open: %s", out)
	}
}

// What is printed for a shell is read by it as it was meant.
func TestQuoted(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"order-42/charge": "order-42/charge", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(rm)": "'$(rm)'", "a;b": "'a;b'", "ä": "'ä'", "~x": "'~x'",
	} {
		if got := quoted(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}
