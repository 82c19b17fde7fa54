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
