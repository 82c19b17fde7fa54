package storetest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
)

// identityRules are about which keys and bytes are the same.
func identityRules() []rule {
	return []rule{
		{"K3_keys_are_compared_byte_by_byte", "two keys that differ in case, blanks or accents were taken for one (cases B33, B34)", checkBytes},
		{"S1_scopes_do_not_meet", "two tenants with the same key saw each other (cases B26, B29)", checkScopes},
		{"S1_joining_is_unambiguous", "scope and key were joined so that two pairs became one", checkJoin},
		{"O8_an_answer_comes_back_as_it_was", "an answer lost or changed something in the store (cases B62, B65, B67)", checkAnswers},
		{"O8_readers_share_nothing_with_the_store", "a caller that changed what it was given, or had given, changed what others are told", checkUnshared},
		{"F7_every_field_survives_every_transition", "a field was dropped on the way (case B45)", checkRoundTrip},
	}
}

func checkBytes(t *testing.T, b *bench) {
	values := []string{
		"Request-A", "request-a", "REQUEST-A", "k1", "k1 ", " k1", "k1  ", "k", "%", "_", "'", `"`, `\`, "k\\'1", "0", "00", "1e2", "100",
		"null", "NULL", strings.Repeat("x", 254), strings.Repeat("x", 255), strings.Repeat("x", 254) + "y", "~", "{}", "k1;a=1",
	}
	for _, v := range values {
		req := request(v)
		b.want(t, req, onlyonce.Won)
		if rec := b.get(t, req.Key); rec.Key != req.Key {
			t.Errorf("key %q came back as %q", v, rec.Key.Value)
		}
	}
}

func checkScopes(t *testing.T, b *bench) {
	for _, scope := range []string{"acct", "ACCT", "acct ", "acct/live", "ácct", "账户", strings.Repeat("s", 255)} {
		req := request("same")
		req.Key.Scope = scope
		owner := b.want(t, req, onlyonce.Won).Record.Owner()
		b.complete(t, owner, onlyonce.Answer{Status: 200, Body: []byte(scope)})
	}
	for _, scope := range []string{"acct", "ACCT", "acct ", "ácct"} {
		req := request("same")
		req.Key.Scope = scope
		if c := b.want(t, req, onlyonce.Replay); string(c.Record.Answer.Body) != scope {
			t.Errorf("scope %q was answered with the answer of %q", scope, c.Record.Answer.Body)
		}
	}
}

func checkJoin(t *testing.T, b *bench) {
	pairs := []onlyonce.Key{
		{Scope: "a:b", Value: "c"},
		{Scope: "a", Value: "b:c"},
		{Scope: "ab", Value: "c"},
		{Scope: "a", Value: "bc"},
		{Scope: "a/b", Value: "c"},
		{Scope: "a", Value: "b/c"},
		{Scope: "a ", Value: "b"},
		{Scope: "a", Value: " b"},
	}
	for _, key := range pairs {
		req := request("")
		req.Key = key
		b.want(t, req, onlyonce.Won)
	}
}

func checkAnswers(t *testing.T, b *bench) {
	big := make([]byte, 300_000)
	for i := range big {
		big[i] = byte(i * 7)
	}
	answers := map[string]onlyonce.Answer{
		"json":      created(),
		"empty":     {Status: 204, Body: []byte{}},
		"binary":    {Status: 200, Body: []byte{0x00, 0xff, 0xfe, 0x80}},
		"big":       {Status: 200, Body: big},
		"tombstone": {Status: 200, NotRetained: true, Header: map[string][]string{"Location": {"/charges/1"}}},
		"headers":   {Status: 302, Body: []byte{}, Header: map[string][]string{"Location": {"/a: b"}, "X-Obs": {"caf\xe9", ""}}},
	}
	for name, answer := range answers {
		req := request(name)
		b.complete(t, b.want(t, req, onlyonce.Won).Record.Owner(), answer)
		c := b.want(t, again(req), onlyonce.Replay)
		if len(answer.Body) > 1000 && bytes.Equal(answer.Body, c.Record.Answer.Body) {
			continue // a diff of so much takes seconds
		}
		if diff := cmp.Diff(&answer, c.Record.Answer); diff != "" {
			t.Errorf("%s: the replay differs (-stored +replayed):\n%s", name, diff)
		}
	}
}

// scribble changes everything in a record that a reader can write to.
func scribble(rec onlyonce.Record) {
	for i := range rec.Fingerprint.Parts {
		rec.Fingerprint.Parts[i] ^= 0xff
	}
	if rec.Answer == nil {
		return
	}
	for i := range rec.Answer.Body {
		rec.Answer.Body[i] ^= 0xff
	}
	for name, values := range rec.Answer.Header {
		for i := range values {
			values[i] = "scribbled"
		}
		delete(rec.Answer.Header, name)
	}
	rec.Answer.Status = 599
}

// checkUnshared scribbles over all that goes in and comes out.
func checkUnshared(t *testing.T, b *bench) {
	req, answer := request("k"), created()
	first := b.want(t, req, onlyonce.Won)
	want := b.get(t, req.Key)
	want.Fingerprint = fingerprintOf("a")
	scribble(first.Record)
	scribble(onlyonce.Record{Fingerprint: req.Fingerprint})
	scribble(b.want(t, again(request("k")), onlyonce.Busy).Record)
	if diff := cmp.Diff(want, b.get(t, req.Key)); diff != "" {
		t.Fatalf("the record in progress (-want +got):\n%s", diff)
	}
	settled := b.complete(t, first.Record.Owner(), answer)
	scribble(onlyonce.Record{Answer: &answer})
	stored := created()
	want.State, want.Answer, want.CompletedAt, want.ExpiresAt = onlyonce.Completed, &stored, b.clock.Now(), settled.ExpiresAt
	reads := map[string]func() onlyonce.Record{
		"replay": func() onlyonce.Record { return b.want(t, again(request("k")), onlyonce.Replay).Record },
		"get":    func() onlyonce.Record { return b.get(t, req.Key) },
	}
	if ops, ok := onlyonce.OperatorsOf(b.store); ok {
		reads["list"] = func() onlyonce.Record {
			page, err := ops.List(b.ctx, onlyonce.ListFilter{})
			if err != nil || len(page.Records) != 1 {
				t.Fatalf("list: %d records, %v", len(page.Records), err)
			}
			return page.Records[0]
		}
	}
	for range 2 {
		for name, read := range reads {
			rec := read()
			if diff := cmp.Diff(want, rec); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", name, diff)
			}
			scribble(rec)
		}
	}
	b.unsharedSteps(t)
}

// unsharedSteps does the same to steps and settings.
func (b *bench) unsharedSteps(t *testing.T) {
	t.Helper()
	if b.store.Features().Steps {
		req, in, end := stepRequest("steps"), intent("s", 0), done("s", "result")
		owner := b.want(t, req, onlyonce.Won).Record.Owner()
		b.begin(t, owner, in)
		b.end(t, owner, end)
		in.Request[0], end.Result[0] = 'X', 'X'
		for range 2 {
			s := b.steps(t, req.Key)
			if len(s) != 1 || !bytes.Equal(s[0].Request, intent("s", 0).Request) || string(s[0].Result) != "result" {
				t.Fatalf("steps: %+v", s)
			}
			s[0].Request[0], s[0].Result[0] = 'Y', 'Y'
		}
	}
	if s, ok := onlyonce.SettingsOf(b.store); ok {
		value := []byte("value")
		for range 2 {
			got, err := s.AddSetting(b.ctx, "kind", "id", value)
			if err != nil || string(got) != "value" {
				t.Fatalf("add setting: %q, %v", got, err)
			}
			got[0], value = 'X', []byte("another")
			got, _, err = s.Setting(b.ctx, "kind", "id")
			if err != nil || string(got) != "value" {
				t.Fatalf("setting: %q, %v", got, err)
			}
			got[0] = 'Y'
		}
	}
}

func checkRoundTrip(t *testing.T, b *bench) {
	req := request("k")
	req.Fingerprint.Parts = []byte{0, 1, 2, 0xff}
	req.Abandon = onlyonce.AbandonResume
	req.Operation = "POST /v1/{id}/pay — naïve"
	c := b.want(t, req, onlyonce.Won)
	now := b.clock.Now()
	want := onlyonce.Record{
		Key: req.Key, Operation: req.Operation, Fingerprint: req.Fingerprint, State: onlyonce.InProgress,
		Fence: c.Record.Fence, Origin: c.Record.Fence, Attempt: req.Attempt, Attempts: 1, Abandon: req.Abandon,
		Retention: retention, CreatedAt: now, LeaseEnd: now.Add(lease),
	}
	compare := func(step string, got onlyonce.Record) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	compare("claimed", c.Record)
	compare("read", b.get(t, req.Key))
	b.park(t, c.Record.Owner(), false)
	want.State, want.Reason = onlyonce.InDoubt, "test"
	compare("parked", b.get(t, req.Key))
	answer := created()
	s := b.complete(t, c.Record.Owner(), answer)
	want.State, want.Reason, want.Answer = onlyonce.Completed, "", &answer
	want.CompletedAt, want.ExpiresAt = now, s.ExpiresAt
	compare("completed", b.get(t, req.Key))
	compare("replayed", b.want(t, again(req), onlyonce.Replay).Record)
}
