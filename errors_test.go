package onlyonce_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// An error says what was done, what kind it is, what to do next and why.
func TestErrorText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  *onlyonce.Error
		want string
	}{
		{&onlyonce.Error{Code: onlyonce.CodeConflict}, "store_conflict"},
		{&onlyonce.Error{Code: onlyonce.CodeConflict, Op: "claim key"}, "claim key: store_conflict"},
		{&onlyonce.Error{Code: onlyonce.CodeConflict, Hint: "repeat it"}, "store_conflict: repeat it"},
		{&onlyonce.Error{Code: onlyonce.CodeConflict, Err: io.EOF}, "store_conflict: EOF"},
		{
			&onlyonce.Error{Code: onlyonce.CodeKeyReused, Op: "claim key", Hint: "send a new key", Differs: []string{"/amount", "path"}, Err: io.EOF},
			"claim key: idempotency_key_reused (differs in /amount, path): send a new key: EOF",
		},
		{&onlyonce.Error{Code: onlyonce.CodeMisdirected, Home: "eu", Hint: "send it there"}, "misdirected_request (home eu): send it there"},
		{&onlyonce.Error{Code: onlyonce.CodeMisdirected, Home: "eu", Address: "https://eu.example"}, "misdirected_request (home eu https://eu.example)"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// errors.Is compares codes and nothing else, through every kind of wrapping.
func TestErrorsIs(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	lost := &onlyonce.Error{Code: onlyonce.CodeLeaseLost, Op: "renew lease", Hint: "hint", Operation: "op_1", Err: cause}
	for name, err := range map[string]error{
		"plain":   lost,
		"wrapped": fmt.Errorf("handler: %w", fmt.Errorf("write: %w", lost)),
		"joined":  errors.Join(errors.New("other"), lost),
		"caused":  &onlyonce.Error{Code: onlyonce.CodeHandlerFailed, Err: lost},
	} {
		if !errors.Is(err, onlyonce.ErrLeaseLost) || !errors.Is(err, cause) {
			t.Errorf("%s: %v is not a lost lease with its cause", name, err)
		}
		if errors.Is(err, onlyonce.ErrConflict) || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v is something else", name, err)
		}
	}
	if errors.Is(errors.New("lease_lost"), onlyonce.ErrLeaseLost) {
		t.Error("a text is not a code")
	}
}

// The code is the outermost one: what a caller is told, not what was beneath.
func TestCodeOf(t *testing.T) {
	t.Parallel()
	inner := &onlyonce.Error{Code: onlyonce.CodeLeaseLost}
	for _, c := range []struct {
		err  error
		want onlyonce.Code
	}{
		{nil, ""},
		{io.EOF, ""},
		{inner, onlyonce.CodeLeaseLost},
		{fmt.Errorf("x: %w", inner), onlyonce.CodeLeaseLost},
		{&onlyonce.Error{Code: onlyonce.CodeHandlerFailed, Err: inner}, onlyonce.CodeHandlerFailed},
		{errors.Join(io.EOF, inner), onlyonce.CodeLeaseLost},
	} {
		if got := onlyonce.CodeOf(c.err); got != c.want {
			t.Errorf("%v has code %q, want %q", c.err, got, c.want)
		}
	}
}

// E, L2: whether the same request may be sent again under the same key.
func TestSafeToRetry(t *testing.T) {
	t.Parallel()
	for code, safe := range map[onlyonce.Code]bool{
		onlyonce.CodeKeyRequired:      false,
		onlyonce.CodeKeyInvalid:       false,
		onlyonce.CodeInProgress:       true,
		onlyonce.CodeOutcomeUnknown:   true,
		onlyonce.CodeResourceBusy:     true,
		onlyonce.CodeMisdirected:      true,
		onlyonce.CodeKeyExpired:       false,
		onlyonce.CodeBodyTooLarge:     false,
		onlyonce.CodeKeyReused:        false,
		onlyonce.CodeStoreUnavailable: true,
		onlyonce.CodeHandlerFailed:    true,
		onlyonce.CodeUnauthenticated:  false,
		onlyonce.CodeInvalidRequest:   false,
		onlyonce.CodeLeaseLost:        true,
		onlyonce.CodeConflict:         true,
		onlyonce.CodeUncertain:        true,
		onlyonce.CodeUnreachable:      true,
		onlyonce.CodeConfig:           false,
		onlyonce.CodeInTx:             false,
		onlyonce.CodeStepChanged:      false,
		onlyonce.CodeNotFound:         false,
		"":                            false,
	} {
		err := fmt.Errorf("request: %w", &onlyonce.Error{Code: code})
		if got := onlyonce.SafeToRetry(err); got != safe {
			t.Errorf("%q: safe %v, want %v", code, got, safe)
		}
	}
	if onlyonce.SafeToRetry(nil) || onlyonce.SafeToRetry(io.EOF) {
		t.Error("an error of no known kind proves nothing")
	}
}

// F7: a secret in a log line is its name.
func TestSecretsStayOutOfText(t *testing.T) {
	t.Parallel()
	const hidden = "abcdefghijklmnopqrstuvwxyz"
	secret := onlyonce.Secret{ID: "2026", Key: []byte(hidden)}
	ring := onlyonce.Keyring{Current: secret, Old: []onlyonce.Secret{secret}}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).LogAttrs(context.Background(), slog.LevelInfo, "start", slog.Any("secret", secret), slog.Any("ring", ring)) //nolint:usetesting // no deadline
	for _, text := range []string{
		secret.String(), fmt.Sprint(secret), fmt.Sprintf("%v %+v %s", secret, secret, secret),
		fmt.Sprintf("%v %+v", ring, ring), fmt.Sprintf("%+v", onlyonce.Config{Secrets: ring}), log.String(),
	} {
		for _, form := range []string{hidden, fmt.Sprint([]byte(hidden)), fmt.Sprintf("%x", hidden)} {
			if strings.Contains(text, form) {
				t.Errorf("the secret is in %q", text)
			}
		}
		if !strings.Contains(text, "2026") {
			t.Errorf("the secret's name is not in %q", text)
		}
	}
}

// F7: a secret stays out of logs, whatever their format.
func TestSecretsStayOutOfStructuredLogs(t *testing.T) {
	t.Parallel()
	s := secret("k")
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).LogAttrs(context.Background(), slog.LevelInfo, "start", slog.Any("secret", s), slog.Any("ring", onlyonce.Keyring{Current: s})) //nolint:usetesting // no deadline
	for _, text := range []string{log.String(), fmt.Sprintf("%#v", s)} {
		if strings.Contains(text, base64.StdEncoding.EncodeToString(s.Key)) || strings.Contains(text, "0x6b, 0x6b") {
			t.Errorf("the secret is in %s", text)
		}
	}
}

// The panic of a handler that panics with an error can be found behind it.
func TestPanicError(t *testing.T) {
	t.Parallel()
	p := &onlyonce.PanicError{Value: fmt.Errorf("read: %w", io.EOF), Stack: []byte("goroutine 1")}
	if !errors.Is(p, io.EOF) {
		t.Error("the error was lost")
	}
	if p.Error() != "handler panicked: read: EOF" {
		t.Errorf("text %q", p.Error())
	}
	text := &onlyonce.PanicError{Value: "broken"}
	if text.Unwrap() != nil || text.Error() != "handler panicked: broken" {
		t.Errorf("%v wraps %v", text, text.Unwrap())
	}
}

// O10: a panic reaches the caller as it was, through a run of the engine.
func TestPanicThroughTheEngine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	op := charge()
	op.On5xx = onlyonce.ReleaseKey
	_, err := w.Wrap(t.Context(), op, keyed("k", "x"), func(context.Context) (onlyonce.Answer, error) { panic(io.EOF) })
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	p, ok := errors.AsType[*onlyonce.PanicError](err)
	if !ok || p.Value != io.EOF || !errors.Is(err, io.EOF) || !strings.Contains(string(p.Stack), "TestPanicThroughTheEngine") { //nolint:errorlint // the very value
		t.Errorf("panic: %v", err)
	}
}
