package cli

import (
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// keysCmd is the operators' view of keys.
type keysCmd struct {
	List   keysListCmd   `cmd:"" help:"List keys."`
	Show   keysShowCmd   `cmd:"" help:"Show one key with its steps and audit."`
	Settle keysSettleCmd `cmd:"" help:"Settle a key in doubt: as applied, with this answer, or as proved not applied."`
}

// keyView is a key as it is printed.
type keyView struct {
	Scope       string      `json:"scope"`
	Key         string      `json:"key"`
	Operation   string      `json:"operation"`
	Name        string      `json:"name"`
	State       string      `json:"state"`
	Reason      string      `json:"reason,omitempty"`
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
		State: string(r.State), Reason: r.Reason, Attempts: r.Attempts, Fence: r.Fence, CreatedAt: r.CreatedAt.UTC(),
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
