package storetest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
)

// optionalRules are about the powers found by type assertion.
func optionalRules() []rule {
	return []rule{
		{"F7_a_setting_is_made_by_whoever_is_first", "two processes ended with different secrets: their fingerprints would never match", checkSettings},
		{"X_listing_shows_every_key_in_pages", "an operator would not see a key, or see it twice", checkList},
		{"X3_an_audit_entry_is_kept", "what an operator did was not kept", checkAudit},
	}
}

func checkSettings(t *testing.T, b *bench) {
	s, ok := onlyonce.SettingsOf(b.store)
	if !ok {
		t.Skip("not promised: settings")
	}
	if _, found, err := s.Setting(b.ctx, "kind", "id"); found || err != nil {
		t.Fatalf("an unknown setting: found %v, %v", found, err)
	}
	for _, value := range []string{"first\x00\xff", "second"} {
		got, err := s.AddSetting(b.ctx, "kind", "id", []byte(value))
		if err != nil || string(got) != "first\x00\xff" {
			t.Errorf("add %q: %q stands, %v", value, got, err)
		}
	}
	if got, err := s.AddSetting(b.ctx, "kind", "other", nil); err != nil || len(got) != 0 {
		t.Errorf("an empty setting: %q, %v", got, err)
	}
	if got, found, err := s.Setting(b.ctx, "kind", "id"); !found || err != nil || string(got) != "first\x00\xff" {
		t.Errorf("setting: %q, found %v, %v", got, found, err)
	}
}

func (b *bench) operators(t *testing.T) onlyonce.OperatorStore {
	t.Helper()
	s, ok := onlyonce.OperatorsOf(b.store)
	if !ok {
		t.Skip("not promised: listing and audit")
	}
	return s
}

func checkList(t *testing.T, b *bench) {
	ops := b.operators(t)
	want := map[onlyonce.Key]onlyonce.State{}
	for i := range 9 {
		req := request(fmt.Sprint(i))
		req.Key.Scope = []string{"x", "y"}[i%2]
		owner := b.want(t, req, onlyonce.Won).Record.Owner()
		want[req.Key] = onlyonce.InProgress
		if i%3 == 0 {
			b.park(t, owner, false)
			want[req.Key] = onlyonce.InDoubt
		}
	}
	for _, f := range []onlyonce.ListFilter{{}, {State: onlyonce.InDoubt}, {Scope: "y"}, {Scope: "x", State: onlyonce.InProgress}} {
		expected := map[onlyonce.Key]onlyonce.State{}
		for k, s := range want {
			if (f.State == "" || f.State == s) && (f.Scope == "" || f.Scope == k.Scope) {
				expected[k] = s
			}
		}
		got, seen := map[onlyonce.Key]onlyonce.State{}, 0
		f.Limit = 2
		for range 20 {
			p, err := ops.List(b.ctx, f)
			if err != nil {
				t.Fatalf("list: %v", err)
			}
			for _, rec := range p.Records {
				got[rec.Key] = rec.State
				seen++
			}
			if f.After = p.Next; p.Next == "" {
				break
			}
		}
		if diff := cmp.Diff(expected, got); diff != "" || seen != len(expected) {
			t.Errorf("list %+v: %d rows (-want +got):\n%s", f, seen, diff)
		}
	}
	if _, err := ops.List(b.ctx, onlyonce.ListFilter{After: "not a cursor"}); err == nil {
		t.Error("a cursor that nobody gave out was accepted")
	}
}

func checkAudit(t *testing.T, b *bench) {
	ops := b.operators(t)
	key := request("k").Key
	var want []onlyonce.AuditEntry
	for i := range 2 {
		e := onlyonce.AuditEntry{Key: key, Action: fmt.Sprint("act ", i), Actor: "op", Reason: "because", Fence: int64(i)}
		if err := ops.AddAudit(b.ctx, e); err != nil {
			t.Fatalf("add audit: %v", err)
		}
		e.At = b.clock.Now()
		want = append(want, e)
	}
	other := onlyonce.AuditEntry{Key: request("other").Key, Action: "x", Actor: "y", Reason: "z"}
	if err := ops.AddAudit(b.ctx, other); err != nil {
		t.Fatalf("add audit: %v", err)
	}
	got, err := ops.Audit(b.ctx, key)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("audit: %v (-want +got):\n%s", err, diff)
	}
}
