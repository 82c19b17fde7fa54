package filejournal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/filejournal"
)

// systemParts are the parts that only Linux can play.
func systemParts() map[string]func(ctx context.Context, dir string) error {
	return map[string]func(ctx context.Context, dir string) error{"limited": childLimited, "unprivileged": childUnprivileged}
}

// A real disk of 1 MiB that fills up; needs the right to mount one.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("not allowed to mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := fillUp(t.Context(), dir); err != nil {
		t.Error(err)
	}
	j := open(t, dir)
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, _, err := j.Begin(t.Context(), entryOf("new"))
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	_, _, err = j.Lock(t.Context(), "i")
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	if intents, err := j.Pending(t.Context(), "", 10); err != nil || len(intents) != 1 || intents[0] != "big" {
		t.Errorf("pending: %q, %v", intents, err)
	}
}

// The same for an unprivileged user: a limit on the size of files.
func TestFileTooBig(t *testing.T) {
	t.Parallel()
	start(t, "limited", t.TempDir()).expect("nothing half-made")
}

// childLimited fails to write under a limit of half a megabyte.
func childLimited(ctx context.Context, dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 512 << 10, Max: 512 << 10}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if err := fillUp(ctx, dir); err != nil {
		return err
	}
	say("nothing half-made")
	return nil
}

// fillUp writes what there is no room for, and looks at what is there then.
func fillUp(ctx context.Context, dir string) error {
	j, err := filejournal.Open(dir)
	if err != nil {
		return err
	}
	if _, _, err := j.Begin(ctx, entryOf("i")); err != nil {
		return err
	}
	l, e, err := j.Lock(ctx, "i")
	if err != nil {
		return err
	}
	defer l.Unlock()
	noRoom := func(what string, err error) error {
		told, ok := errors.AsType[*onlyonce.Error](err)
		if !ok || told.Code != onlyonce.CodeStoreUnavailable || !strings.Contains(told.Hint, "room") {
			return fmt.Errorf("%s without room: %w", what, err)
		}
		return nil
	}
	big := entryOf("big")
	big.Body = make([]byte, 2<<20)
	_, made, err := j.Begin(ctx, big)
	if err := noRoom("begin", err); err != nil || made {
		return errors.Join(err, fmt.Errorf("made: %v", made))
	}
	much := answered(e)
	much.Answer.Body = make([]byte, 2<<20)
	if err := noRoom("save", l.Save(ctx, much)); err != nil {
		return err
	}
	for folder, want := range map[string]int{"entries": 1, "locks": 1, "tmp": 0} {
		if left, err := os.ReadDir(filepath.Join(dir, folder)); err != nil || len(left) != want {
			return fmt.Errorf("%d files in %s, want %d: %w", len(left), folder, want, err)
		}
	}
	if stands, _, err := j.Begin(ctx, e); err != nil || stands.State != onceclient.Open || stands.Answer != nil {
		return fmt.Errorf("a failed save changed %+v: %w", stands, err)
	}
	big.Body = nil
	if _, made, err := j.Begin(ctx, big); err != nil || !made {
		return fmt.Errorf("a small one: made %v, %w", made, err)
	}
	return l.Save(ctx, answered(e))
}

// What this process may not write is refused with a hint when it is opened.
func TestOpenReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o555, 0o111} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		line := start(t, "unprivileged", dir).line()
		if !strings.HasPrefix(line, "error open journal: ") || !strings.Contains(line, "right to write") {
			t.Errorf("the process said %q", line)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A journal whose folder somebody has tidied up fails, and changes nothing.
func TestWithoutTemporaries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	begin(t, j, "i")
	if err := os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if _, made, err := j.Begin(t.Context(), entryOf("new")); made || !errors.Is(err, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable}) {
		t.Errorf("begin: made %v, %v", made, err)
	}
	l, e := lock(t, j, "i")
	if err := l.Save(t.Context(), answered(e)); !errors.Is(err, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable}) {
		t.Errorf("save: %v", err)
	}
	if stands, _, err := j.Begin(t.Context(), entryOf("i")); err != nil || stands.State != onceclient.Open {
		t.Errorf("after that: %+v, %v", stands, err)
	}
}

// childUnprivileged opens the journal as somebody who is not root.
func childUnprivileged(_ context.Context, dir string) error {
	const nobody = 65534
	if os.Geteuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	}
	if _, err := filejournal.Open(dir); err != nil {
		return err
	}
	say("opened")
	return nil
}
