package portable_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// texts are calls with a text that no column takes, by what the error is to name. The
// last ones name a key that no claim can have made.
func texts(ctx context.Context, s *portable.Store, owner onlyonce.Owner, bad string) map[string]func() error {
	claim := func(change func(*onlyonce.ClaimRequest)) func() error {
		return func() error {
			req := request("text")
			change(&req)
			_, err := s.Claim(ctx, req)
			return err
		}
	}
	begin := func(change func(*onlyonce.Intent)) func() error {
		return func() error {
			in := intent
			change(&in)
			_, err := s.BeginStep(ctx, owner, in)
			return err
		}
	}
	key := onlyonce.Key{Scope: "acct_1", Value: bad}
	return map[string]func() error{
		"ClaimRequest.Operation":                  claim(func(r *onlyonce.ClaimRequest) { r.Operation = bad }),
		"ClaimRequest.Fingerprint.Version.Secret": claim(func(r *onlyonce.ClaimRequest) { r.Fingerprint.Version.Secret = bad }),
		"ClaimRequest.Fingerprint.Version.Policy": func() error {
			req := request("text")
			req.Fingerprint.Version.Policy = bad
			_, _, err := s.Atomic(ctx, req, answers)
			return err
		},
		"Intent.Name":       begin(func(in *onlyonce.Intent) { in.Name = bad }),
		"Intent.Provider":   begin(func(in *onlyonce.Intent) { in.Provider = bad }),
		"Intent.DerivedKey": begin(func(in *onlyonce.Intent) { in.DerivedKey = bad }),
		"Intent.Reference":  begin(func(in *onlyonce.Intent) { in.Reference = bad }),
		"StepEnd.Name": func() error {
			_, err := s.EndStep(ctx, owner, onlyonce.StepEnd{Name: bad, State: onlyonce.StepDone})
			return err
		},
		"TxStep.Name": func() error {
			_, _, err := s.StepTx(ctx, owner, onlyonce.TxStep{Name: bad}, func(context.Context, pgx.Tx) ([]byte, error) { return nil, nil })
			return err
		},
		"kind of a setting": func() error { _, _, err := s.Setting(ctx, bad, "id"); return err },
		"its id":            func() error { _, err := s.AddSetting(ctx, "kind", bad, nil); return err },
		"ListFilter.Scope":  func() error { _, err := s.List(ctx, onlyonce.ListFilter{Scope: bad}); return err },
		"DueRequest.Operations": func() error {
			due := dueNow
			due.Operations = []string{"POST /charges", bad}
			_, err := s.Due(ctx, due)
			return err
		},
		"key": func() error { _, _, err := s.Get(ctx, key); return err },
		"the key": func() error {
			return s.AddAudit(ctx, onlyonce.AuditEntry{Key: key})
		},
		"value of the key": func() error {
			_, err := s.Complete(ctx, onlyonce.Owner{Key: key}, created())
			return err
		},
	}
}

// A text that no column takes is refused by the name of its field, in every way
// that statements are sent, and changes nothing.
func TestTextsThatAreNone(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	for _, mode := range []string{"cache_statement", "simple_protocol"} {
		s := migrated(t, with(t, dsn, "default_query_exec_mode", mode), portable.Config{})
		owner := want(t, s, request(mode), onlyonce.Won).Record.Owner()
		for _, bad := range []string{"a\x00b", "a\xffb"} {
			for name, call := range texts(t.Context(), s, owner, bad) {
				if err := call(); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), name) {
					t.Errorf("%s, %q as %s: %v", mode, bad, name, err)
				}
			}
		}
		complete(t, s, owner)
	}
	pool := admin(t, dsn)
	if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_portable_keys`); n != 2 {
		t.Errorf("%d keys, want the two that were owned", n)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_portable_steps`); n != 0 {
		t.Errorf("%d steps", n)
	}
}
