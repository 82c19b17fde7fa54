package oncehttp

import (
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// E: every code of the engine has its status and advice.
func TestKinds(t *testing.T) {
	t.Parallel()
	for code, want := range map[onlyonce.Code]struct {
		status int
		with   RetryWith
		later  bool
	}{
		onlyonce.CodeKeyRequired:      {400, NewKey, false},
		onlyonce.CodeKeyInvalid:       {400, NewKey, false},
		onlyonce.CodeInvalidRequest:   {400, NoRetry, false},
		onlyonce.CodeUnauthenticated:  {401, NoRetry, false},
		onlyonce.CodeInProgress:       {409, SameKey, true},
		onlyonce.CodeOutcomeUnknown:   {409, SameKey, true},
		onlyonce.CodeResourceBusy:     {409, SameKey, true},
		onlyonce.CodeLeaseLost:        {409, SameKey, true},
		onlyonce.CodeKeyExpired:       {410, NoRetry, false},
		onlyonce.CodeBodyTooLarge:     {413, NoRetry, false},
		onlyonce.CodeMisdirected:      {421, SameKey, true},
		onlyonce.CodeKeyReused:        {422, NewKey, false},
		onlyonce.CodeHandlerFailed:    {500, SameKey, false},
		onlyonce.CodeConfig:           {500, NoRetry, false},
		onlyonce.CodeStoreUnavailable: {503, SameKey, true},
		onlyonce.CodeConflict:         {503, SameKey, true},
		onlyonce.CodeUncertain:        {503, SameKey, true},
		"something else":              {500, NoRetry, false},
	} {
		k := kindOf(code)
		if k.status != want.status || k.with != want.with || (k.later > 0) != want.later {
			t.Errorf("%s: %+v", code, k)
		}
		retryable := onlyonce.SafeToRetry(&onlyonce.Error{Code: code})
		if retryable != (k.with == SameKey) {
			t.Errorf("%s: the engine says retryable %v, we say %s", code, retryable, k.with)
		}
	}
	for _, k := range kinds() {
		if k.title == "" || k.text == "" {
			t.Errorf("%s is not documented", k.code)
		}
	}
	if got := wholeSeconds(time.Millisecond); got != "1" {
		t.Errorf("a millisecond is rounded to %s s", got)
	}
}
