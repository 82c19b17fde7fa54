package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// sabotaged is a store with one fault, and the rule that must notice it.
type sabotaged struct {
	*memstore.Store
	claim    func(s *memstore.Store, req onlyonce.ClaimRequest) (onlyonce.Claim, error)
	complete func(s *memstore.Store, o onlyonce.Owner, a onlyonce.Answer) (onlyonce.Settled, error)
	park     func(s *memstore.Store, p onlyonce.ParkRequest) (bool, error)
	renew    func(s *memstore.Store, o onlyonce.Owner, lease time.Duration) (bool, error)
}

func (s *sabotaged) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	if s.claim != nil {
		return s.claim(s.Store, req)
	}
	return s.Store.Claim(ctx, req)
}

func (s *sabotaged) Complete(ctx context.Context, o onlyonce.Owner, a onlyonce.Answer) (onlyonce.Settled, error) {
	if s.complete != nil {
		return s.complete(s.Store, o, a)
	}
	return s.Store.Complete(ctx, o, a)
}

func (s *sabotaged) Park(ctx context.Context, p onlyonce.ParkRequest) (bool, error) {
	if s.park != nil {
		return s.park(s.Store, p)
	}
	return s.Store.Park(ctx, p)
}

func (s *sabotaged) Renew(ctx context.Context, o onlyonce.Owner, lease time.Duration) (bool, error) {
	if s.renew != nil {
		return s.renew(s.Store, o, lease)
	}
	return s.Store.Renew(ctx, o, lease)
}

// present makes an owner of whoever holds the key now: a store that ignores
// fence and token.
func present(s *memstore.Store, o onlyonce.Owner) onlyonce.Owner {
	rec, _, _ := s.Get(context.Background(), o.Key)
	return rec.Owner()
}

// sabotages maps a fault to the rule that must fail.
func sabotages() map[string]struct {
	rule string
	sabotaged
} {
	ctx := context.Background()
	type fault = struct {
		rule string
		sabotaged
	}
	return map[string]fault{
		"ignores the fence": {"C6_a_fenced_owner_changes_nothing", sabotaged{
			complete: func(s *memstore.Store, o onlyonce.Owner, a onlyonce.Answer) (onlyonce.Settled, error) {
				return s.Complete(ctx, present(s, o), a)
			},
		}},
		"renews for anybody": {"C6_fence_and_token_both_count", sabotaged{
			renew: func(s *memstore.Store, o onlyonce.Owner, lease time.Duration) (bool, error) {
				return s.Renew(ctx, present(s, o), lease)
			},
		}},
		"folds case": {"K3_keys_are_compared_byte_by_byte", sabotaged{
			claim: func(s *memstore.Store, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
				req.Key.Value = strings.ToLower(req.Key.Value)
				return s.Claim(ctx, req)
			},
		}},
		"shares keys between scopes": {"S1_scopes_do_not_meet", sabotaged{
			claim: func(s *memstore.Store, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
				req.Key.Scope = "all"
				return s.Claim(ctx, req)
			},
		}},
		"takes every request for the same": {"F6_a_mismatch_changes_nothing", sabotaged{
			claim: func(s *memstore.Store, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
				if rec, found, _ := s.Get(ctx, req.Key); found {
					req.Fingerprint = rec.Fingerprint
				}
				return s.Claim(ctx, req)
			},
		}},
		"reruns what must be held": {"C7_only_a_repeatable_attempt_is_taken_over", sabotaged{
			claim: func(s *memstore.Store, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
				req.Abandon = onlyonce.AbandonRerun
				return s.Claim(ctx, req)
			},
		}},
		"resolves whatever doubt there is": {"C1_only_the_doubt_that_was_seen_is_resolved", sabotaged{
			claim: func(s *memstore.Store, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
				req.Doubt = 0
				return s.Claim(ctx, req)
			},
		}},
		"keeps what a life begins with only": {"D6_a_resumed_life_takes_what_is_to_be_kept", sabotaged{
			claim: func(s *memstore.Store, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
				if _, found, _ := s.Get(ctx, req.Key); found {
					req.Keep = nil
				}
				return s.Claim(ctx, req)
			},
		}},
		"runs finished steps again": {"C7_what_steps_have_done_is_continued_by_steps_only", sabotaged{
			claim: func(s *memstore.Store, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
				if rec, found, _ := s.Get(ctx, req.Key); found && rec.State == onlyonce.FailedRetryable {
					req.Abandon = rec.Abandon
				}
				return s.Claim(ctx, req)
			},
		}},
		"keeps what it is given": {"O8_readers_share_nothing_with_the_store", sabotaged{
			complete: func(s *memstore.Store, o onlyonce.Owner, a onlyonce.Answer) (onlyonce.Settled, error) {
				a.Header["Link"][0] = "changed" // as its caller could, later
				return s.Complete(ctx, o, a)
			},
		}},
		"parks a live attempt": {"O_parking_waits_for_the_lease", sabotaged{
			park: func(s *memstore.Store, p onlyonce.ParkRequest) (bool, error) {
				p.LeaseOver = false
				return s.Park(ctx, p)
			},
		}},
		"drops a header": {"O8_an_answer_comes_back_as_it_was", sabotaged{
			complete: func(s *memstore.Store, o onlyonce.Owner, a onlyonce.Answer) (onlyonce.Settled, error) {
				a.Header = nil
				return s.Complete(ctx, o, a)
			},
		}},
		"grants a lease without end": {"C4_a_claim_without_a_lease_is_refused", sabotaged{
			claim: func(s *memstore.Store, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
				req.Lease = max(req.Lease, time.Second)
				return s.Claim(ctx, req)
			},
		}},
	}
}

const sabotageEnv = "ONLYONCE_TEST_SABOTAGE"

// TestSabotagedStore is run by TestSuiteCatches in a process of its own.
func TestSabotagedStore(t *testing.T) {
	fault, ok := sabotages()[os.Getenv(sabotageEnv)]
	if !ok {
		t.Skip("runs only as the victim of TestSuiteCatches")
	}
	storetest.Run(t, storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		s, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		broken := fault.sabotaged
		broken.Store = s
		return storetest.Instance{Store: &broken}
	}})
}

// The suite must fail on a store that breaks a rule, and name the rule.
func TestSuiteCatches(t *testing.T) {
	t.Parallel()
	for name, fault := range sabotages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSabotagedStore$/^"+fault.rule+"$", "-test.v")
			cmd.Env = append(os.Environ(), sabotageEnv+"="+name, "ONLYONCE_STORETEST_REPORT=") // a store that is to fail is no report of ours
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passed a store that %s", name)
			}
			if want := "--- FAIL: TestSabotagedStore/" + fault.rule; !strings.Contains(string(out), want) || !strings.Contains(string(out), "BROKEN RULE") {
				t.Errorf("the suite failed without naming %s:\n%s", fault.rule, out)
			}
		})
	}
}
