package onlyonce_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// F7: a keyring that is only half there is a fault, also where the store could
// make a secret: a key without an ID would be ignored silently, an old secret
// without one never found, two secrets of one ID make retries look different.
func TestHalfAKeyringIsRefused(t *testing.T) {
	t.Parallel()
	mem, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, keyring := range map[string]onlyonce.Keyring{
		"key without ID":    {Current: onlyonce.Secret{Key: secret("a").Key}},
		"old without ID":    {Old: []onlyonce.Secret{{Key: secret("a").Key}}},
		"old too short":     {Old: []onlyonce.Secret{{ID: "a", Key: []byte("short")}}},
		"one ID, two keys":  {Current: secret("a"), Old: []onlyonce.Secret{{ID: "a", Key: secret("b").Key}}},
		"one ID among olds": {Current: secret("a"), Old: []onlyonce.Secret{secret("b"), {ID: "b", Key: secret("c").Key}}},
	} {
		if _, err := onlyonce.New(mem, onlyonce.Config{Secrets: keyring}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// F7: the caller's own list of old secrets is not written to.
func TestKeyringIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), responds(201, "done"))
	wantResult(t, res, err, onlyonce.Executed, "done")
	all := []onlyonce.Secret{secret("a"), secret("b")}
	other := worldOn(t, w.mem, noFaults, onlyonce.Config{Secrets: onlyonce.Keyring{Current: secret("c"), Old: all[:1]}})
	res, err = other.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
	wantResult(t, res, err, onlyonce.Replayed, "done")
	if all[1].ID != "b" {
		t.Errorf("the caller's second secret is now %s", all[1])
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

// A name that a database cannot hold would fail every request.
func TestOpNameIsUTF8(t *testing.T) {
	t.Parallel()
	wantCode(t, onlyonce.Op{Name: "POST /ch\xffrges"}.Validate(), onlyonce.CodeConfig)
}
