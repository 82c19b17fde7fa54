package filejournal_test

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/filejournal"
	"github.com/onlyonce-go/onlyonce/onceclient/journaltest"
)

func TestMain(m *testing.M) {
	runChild()
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, dir string) *filejournal.Journal {
	t.Helper()
	j, err := filejournal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestContract(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(t *testing.T) onceclient.Journal {
		t.Helper()
		return open(t, t.TempDir())
	})
}

// The same with a handle for every actor, as other processes have.
func TestContractOfHandles(t *testing.T) {
	t.Parallel()
	journaltest.RunShared(t, func(t *testing.T) func() onceclient.Journal {
		t.Helper()
		dir := t.TempDir()
		return func() onceclient.Journal { return open(t, dir) }
	})
}

func moment() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func entryOf(intent string) onceclient.Entry {
	return onceclient.Entry{
		Intent: intent, Key: "key of " + intent, Method: http.MethodPost, Target: "https://api.example.com/charges",
		Header: map[string][]string{"Content-Type": {"application/json"}}, Body: []byte(`{"amount":1999}`), CreatedAt: moment(),
	}
}

func answered(e onceclient.Entry) onceclient.Entry {
	e.State, e.EndedAt, e.Attempts = onceclient.Answered, moment(), 1
	e.Answer = &onceclient.Answer{Status: http.StatusCreated, Body: []byte("answer of " + e.Intent)}
	return e
}

func begin(t *testing.T, j *filejournal.Journal, intent string) {
	t.Helper()
	if _, made, err := j.Begin(t.Context(), entryOf(intent)); err != nil || !made {
		t.Fatalf("begin %q: made %v, %v", intent, made, err)
	}
}

func lock(t *testing.T, j *filejournal.Journal, intent string) (onceclient.Lock, onceclient.Entry) {
	t.Helper()
	l, e, err := j.Lock(t.Context(), intent)
	if err != nil {
		t.Fatalf("lock %q: %v", intent, err)
	}
	t.Cleanup(func() { l.Unlock() })
	return l, e
}

// files are the names in one of the journal's folders.
func files(t *testing.T, dir, folder string) []string {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(dir, folder))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}

// only is the path of the one entry.
func only(t *testing.T, dir string) string {
	t.Helper()
	names := files(t, dir, "entries")
	if len(names) != 1 {
		t.Fatalf("entries: %q", names)
	}
	return filepath.Join(dir, "entries", names[0])
}

// wantCode checks an error's code, and that it says what to do.
func wantCode(t *testing.T, err error, code onlyonce.Code) {
	t.Helper()
	e, ok := errors.AsType[*onlyonce.Error](err)
	if !ok || e.Code != code || e.Hint == "" {
		t.Errorf("error %v, want %s with a hint", err, code)
	}
}

// What is journaled is for its owner only, and nothing lies about when it is done.
func TestFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "journal")
	j := open(t, dir)
	begin(t, j, "../i")
	l, _ := lock(t, j, "../i")
	modes := map[string]fs.FileMode{}
	err := filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		modes[filepath.Base(filepath.Dir(path))+"/"] |= info.Mode().Perm()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, mode := range modes {
		if mode&0o077 != 0 {
			t.Errorf("others may look at what is in %s: %v", folder, mode)
		}
	}
	if modes["entries/"] != 0o600 || modes["locks/"] != 0o600 {
		t.Errorf("modes: %v", modes)
	}
	if err := l.Save(t.Context(), answered(entryOf("../i"))); err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if n := len(files(t, dir, "locks")) + len(files(t, dir, "tmp")); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	_, err := filejournal.Open("")
	wantCode(t, err, onlyonce.CodeConfig)
	dir := t.TempDir()
	open(t, dir)
	if err := os.Chmod(filepath.Join(dir, "entries"), 0o750); err != nil {
		t.Fatal(err)
	}
	_, err = filejournal.Open(dir)
	wantCode(t, err, onlyonce.CodeConfig)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := filejournal.Open(file); !errors.Is(err, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable}) {
		t.Errorf("a journal in a file: %v", err)
	}
}

// A path that is relative stays the same folder when the process goes elsewhere.
func TestOpenRelative(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	j := open(t, "journal")
	t.Chdir(t.TempDir())
	begin(t, j, "i")
	if got := files(t, filepath.Join(dir, "journal"), "entries"); len(got) != 1 {
		t.Errorf("entries: %q", got)
	}
}
