package filejournal_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/filejournal"
)

// refused makes sure that nobody gets to see the entry, and that people learn where it is.
func refused(t *testing.T, j *filejournal.Journal, path, intent string) {
	t.Helper()
	_, made, err := j.Begin(t.Context(), entryOf(intent))
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	if made || err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("begin: made %v, %v", made, err)
	}
	l, _, err := j.Lock(t.Context(), intent)
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("lock: %v, %v", l, err)
	}
}

// resealed replaces what a head says, pair by pair, and makes its sum fit, as nobody does
// by accident.
func resealed(b []byte, pairs ...string) []byte {
	lines := bytes.SplitN(b, []byte("\n"), 3)
	if len(lines) != 3 {
		return b
	}
	head := strings.NewReplacer(pairs...).Replace(string(lines[1])) + "\n"
	first := fmt.Appendf(nil, "onlyonce-journal 1 %d %x\n", len(head), sha256.Sum256([]byte(head)))
	return slices.Concat(first, []byte(head), lines[2])
}

// L1: what was edited or torn is an error, never another request.
func TestDamagedEntries(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(b []byte) []byte{
		"another amount":  func(b []byte) []byte { return bytes.Replace(b, []byte(`"amount":1999`), []byte(`"amount":9999`), 1) },
		"another key":     func(b []byte) []byte { return bytes.Replace(b, []byte("key of i"), []byte("key of j"), 1) },
		"another answer":  func(b []byte) []byte { return bytes.Replace(b, []byte("answer of i"), []byte("answer of j"), 1) },
		"a longer key":    func(b []byte) []byte { return bytes.Replace(b, []byte("key of i"), []byte("a key of i"), 1) },
		"torn":            func(b []byte) []byte { return b[:len(b)-1] },
		"torn in head":    func(b []byte) []byte { return b[:200] },
		"torn at start":   func(b []byte) []byte { return b[:10] },
		"empty":           func([]byte) []byte { return nil },
		"something added": func(b []byte) []byte { return append(b, '\n') },
		"zeros":           func(b []byte) []byte { return make([]byte, len(b)) },
		"another program": func([]byte) []byte { return []byte("{\"intent\":\"i\"}\n") },
		"a later version": func(b []byte) []byte { return bytes.Replace(b, []byte("journal 1 "), []byte("journal 2 "), 1) },
		"a huge head": func(b []byte) []byte {
			return bytes.Replace(b, []byte("journal 1 "), []byte("journal 1 9999999999"), 1)
		},
		"negative lengths": func(b []byte) []byte {
			return resealed(b, `"body":{"length":15,`, `"body":{"length":-5,`, `"body":{"length":11,`, `"body":{"length":31,`)
		},
		"a negative head": func(b []byte) []byte { return bytes.Replace(b, []byte("journal 1 "), []byte("journal 1 -"), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			j := open(t, dir)
			begin(t, j, "i")
			l, _ := lock(t, j, "i")
			if err := errors.Join(l.Save(t.Context(), answered(entryOf("i"))), l.Unlock()); err != nil {
				t.Fatal(err)
			}
			path := only(t, dir)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			broken := damage(bytes.Clone(whole))
			if bytes.Equal(broken, whole) {
				t.Fatal("nothing was damaged")
			}
			if err := os.WriteFile(path, broken, 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, j, path, "i")
			if n, err := j.Prune(t.Context(), moment().Add(time.Hour), 10); n != 0 || err == nil {
				t.Errorf("pruned %d, %v", n, err)
			}
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, e := lock(t, j, "i"); string(e.Answer.Body) != "answer of i" {
				t.Errorf("restored: %+v", e)
			}
		})
	}
}

// A copy under another name would be sent as well.
func TestCopiedEntry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	begin(t, j, "copied")
	original := only(t, dir)
	begin(t, j, "i")
	b, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files(t, dir, "entries") {
		if path := filepath.Join(dir, "entries", name); path != original {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, j, path, "i")
		}
	}
	intents, err := j.Pending(t.Context(), "", 10)
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	if len(intents) != 1 || intents[0] != "copied" {
		t.Errorf("pending: %q", intents)
	}
}

// One damaged file is reported, and keeps nobody from going on with the others.
func TestPendingBesideDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	begin(t, j, "damaged")
	path := only(t, dir)
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	begin(t, j, "i")
	begin(t, j, "ended")
	l, _ := lock(t, j, "ended")
	if err := errors.Join(l.Save(t.Context(), answered(entryOf("ended"))), l.Unlock()); err != nil {
		t.Fatal(err)
	}
	intents, err := j.Pending(t.Context(), "", 10)
	if len(intents) != 1 || intents[0] != "i" || err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("pending: %q, %v", intents, err)
	}
	n, err := j.Prune(t.Context(), moment().Add(time.Hour), 10)
	if n != 1 || err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("pruned %d, %v", n, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the damaged file: %v", err)
	}
}

// People delete files. Who had the lock then has it no more.
func TestDeletedUnderTheLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	begin(t, j, "i")
	l, _ := lock(t, j, "i")
	if err := os.Remove(filepath.Join(dir, "locks", files(t, dir, "locks")[0])); err != nil {
		t.Fatal(err)
	}
	if err := l.Save(t.Context(), answered(entryOf("i"))); !errors.Is(err, onceclient.ErrLockLost) {
		t.Errorf("save without a lock file: %v", err)
	}
	next, e := lock(t, j, "i")
	if e.State != onceclient.Open {
		t.Errorf("it was changed: %+v", e)
	}
	if err := l.Unlock(); err != nil {
		t.Errorf("unlock: %v", err)
	}
	if _, _, err := j.Lock(t.Context(), "i"); !errors.Is(err, onceclient.ErrLocked) {
		t.Errorf("the old lock let go of the new one: %v", err)
	}
	if err := os.Remove(only(t, dir)); err != nil {
		t.Fatal(err)
	}
	if err := next.Save(t.Context(), answered(entryOf("i"))); err == nil {
		t.Error("a deleted entry was saved")
	}
	if got := files(t, dir, "entries"); len(got) != 0 {
		t.Errorf("entries: %q", got)
	}
}
