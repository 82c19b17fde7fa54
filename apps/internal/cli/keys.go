package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// keysCmd is the operators' view of keys, in any store of the library's; only recover is
// for the payments service's own.
type keysCmd struct {
	List    keysListCmd    `cmd:"" help:"List keys."`
	Show    keysShowCmd    `cmd:"" help:"Show one key with its steps and audit, and what can be done."`
	Recover keysRecoverCmd `cmd:"" help:"Give one operation of the payments service a turn now, as its client's retry would."`
	Settle  keysSettleCmd  `cmd:"" help:"Settle a key in doubt: as applied, with the result of its step or with an answer, or as proved not applied."`
}

// keyView is a key as it is printed.
type keyView struct {
	Scope       string      `json:"scope"`
	Key         string      `json:"key"`
	Operation   string      `json:"operation"`
	Name        string      `json:"name"`
	State       string      `json:"state"`
	Reason      string      `json:"reason,omitempty"`
	Resource    string      `json:"resource,omitempty"`
	Holds       bool        `json:"holds_resource"`
	Attempts    int         `json:"attempts"`
	Fence       int64       `json:"fence"`
	CreatedAt   time.Time   `json:"created_at"`
	LeaseEnd    *time.Time  `json:"lease_end,omitempty"`
	CompletedAt *time.Time  `json:"completed_at,omitempty"`
	ExpiresAt   *time.Time  `json:"expires_at,omitempty"`
	Answer      *answerView `json:"answer,omitempty"`
}

// answerView is a stored answer as it is printed.
type answerView struct {
	Status  int                 `json:"status"`
	Headers map[string][]string `json:"headers"`
	Body    string              `json:"body"`
}

func viewOf(r onlyonce.Record) keyView {
	v := keyView{
		Scope: r.Key.Scope, Key: r.Key.Value, Operation: r.Key.Operation(), Name: r.Operation,
		State: string(r.State), Reason: r.Reason, Resource: r.Resource, Holds: r.Holds, Attempts: r.Attempts, Fence: r.Fence, CreatedAt: r.CreatedAt.UTC(),
		CompletedAt: set(r.CompletedAt), ExpiresAt: set(r.ExpiresAt),
	}
	if r.State == onlyonce.InProgress {
		v.LeaseEnd = set(r.LeaseEnd)
	}
	if r.Answer != nil {
		v.Answer = &answerView{Status: r.Answer.Status, Headers: r.Answer.Header, Body: string(r.Answer.Body)}
	}
	return v
}

// set is a time that may not be set.
func set(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// findKey reads a key that must be there.
func findKey(ctx context.Context, s onlyonce.Store, key onlyonce.Key) (onlyonce.Record, []onlyonce.StepRecord, error) {
	rec, found, err := s.Get(ctx, key)
	switch {
	case err != nil:
		return rec, nil, fmt.Errorf("read key: %w", err)
	case !found:
		return rec, nil, &onlyonce.Error{
			Code: onlyonce.CodeNotFound, Op: "find key",
			Hint: fmt.Sprintf("there is no key %q of scope %q; onlyonce keys list lists them", key.Value, key.Scope),
		}
	}
	steps, err := stepsOf(ctx, s, key)
	return rec, steps, err
}

// stepsOf reads the steps of a key; of a store that keeps none there are none.
func stepsOf(ctx context.Context, s onlyonce.Store, key onlyonce.Key) ([]onlyonce.StepRecord, error) {
	store, ok := onlyonce.StepsOf(s)
	if !ok {
		return nil, nil
	}
	steps, err := store.Steps(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read steps: %w", err)
	}
	return steps, nil
}

// calls are the steps that have left the store, or may have, and those of them
// whose end is not recorded.
func calls(steps []onlyonce.StepRecord) (all, begun []onlyonce.StepRecord) {
	for _, s := range steps {
		if s.Provider == onlyonce.ProviderStore || s.State == onlyonce.StepNotApplied {
			continue
		}
		all = append(all, s)
		if s.State == onlyonce.StepBegun {
			begun = append(begun, s)
		}
	}
	return all, begun
}
