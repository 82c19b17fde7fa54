package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// fill completes keys with large answers until the disk is full, and gives
// their number.
func fill(t *testing.T, s *sqlitestore.Store) (stored int) {
	t.Helper()
	for stored = range 10_000 {
		key := fmt.Sprint(stored)
		c, err := s.Claim(t.Context(), claimOf(key))
		if err == nil {
			_, err = s.Complete(t.Context(), c.Record.Owner(), onlyonce.Answer{Status: 200, Body: make([]byte, 20_000)})
		}
		if err != nil {
			wantUnavailable(t, err, "full")
			return stored
		}
	}
	t.Fatal("the disk never filled up")
	return 0
}

// checkFilled makes sure that nothing confirmed was lost and nothing refused
// was kept, and that it goes on when there is room.
func checkFilled(t *testing.T, s *sqlitestore.Store, stored int, makeRoom func()) {
	t.Helper()
	_, settled, err := s.Atomic(t.Context(), claimOf("atomic"), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		a := answerOf("x")
		_, err := tx.ExecContext(ctx, "INSERT INTO names (name) VALUES (hex(zeroblob(100000)))")
		return &a, err
	})
	if err == nil || settled.Held {
		t.Errorf("a transaction on a full disk: %+v, %v", settled, err)
	}
	if errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("a full disk leaves no doubt: %v", err)
	}
	for i := range stored {
		mustClaim(t, s, claimOf(fmt.Sprint(i)), onlyonce.Replay)
	}
	if _, found, err := s.Get(t.Context(), keyOf("atomic")); found || err != nil {
		t.Errorf("a refused transaction left a record: %v, %v", found, err)
	}
	makeRoom()
	complete(t, s, claimOf("after"), "answer")
	_, settled, err = s.Atomic(t.Context(), claimOf("atomic"), writes("atomic"))
	if err != nil || !settled.Held {
		t.Errorf("with room again: %+v, %v", settled, err)
	}
	for i := range stored {
		mustClaim(t, s, claimOf(fmt.Sprint(i)), onlyonce.Replay)
	}
	var check string
	if err := s.Reader().QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&check); err != nil || check != "ok" {
		t.Errorf("integrity: %s, %v", check, err)
	}
}

func TestDatabaseFull(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	limit := func(pages int) {
		if _, err := s.Writer().ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(100)
	stored := fill(t, s)
	if stored == 0 {
		t.Fatal("nothing fits in 100 pages")
	}
	limit(100) // a connection that met a full disk may have been replaced
	checkFilled(t, s, stored, func() { limit(1 << 20) })
}

// A real disk of 2 MiB that fills up; needs the right to mount one.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("not allowed to mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, filepath.Join(dir, "once.db"), sqlitestore.Config{})
	businessTable(t, s)
	stored := fill(t, s)
	if stored == 0 {
		t.Fatal("nothing fits on the disk")
	}
	checkFilled(t, s, stored, func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	})
}

// C10: a disk that fails in a commit leaves doubt, which repeating the same
// attempt settles.
func TestDiskFailsInCommit(t *testing.T) {
	t.Parallel()
	_, path := open(t)
	c := start(t, "limited", path)
	c.expect("uncertain")
	c.expect("decided won true")
	s := openAt(t, path, sqlitestore.Config{})
	if n := count(t, s, "k"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	mustClaim(t, s, claimOf("k"), onlyonce.Replay)
}

// C10: the same for a step: its owner repeats it, and it stands at most once.
func TestDiskFailsInStepTxCommit(t *testing.T) {
	t.Parallel()
	_, path := open(t)
	c := start(t, "limited step", path)
	c.expect("uncertain")
	c.expect("decided result of k true")
	s := openAt(t, path, sqlitestore.Config{})
	if n := count(t, s, "k"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	if steps, err := s.Steps(t.Context(), keyOf("k")); len(steps) != 1 || err != nil {
		t.Errorf("recorded: %+v, %v", steps, err)
	}
}

// systemParts are the parts that only Linux can play.
func systemParts() map[string]func(ctx context.Context, path string) error {
	return map[string]func(ctx context.Context, path string) error{
		"limited":      childLimited,
		"limited step": childLimitedStep,
		"unprivileged": childUnprivileged,
	}
}

// childLimited commits an atomic attempt under the limit.
func childLimited(ctx context.Context, path string) error {
	return underLimit(ctx, path, func(ctx context.Context, s *sqlitestore.Store) (func() (string, error), error) {
		req := claimOf("k")
		return func() (string, error) {
			claim, settled, err := s.Atomic(ctx, req, writes("k"))
			return fmt.Sprint(claim.Verdict, " ", settled.Held), err
		}, nil
	})
}

// childLimitedStep commits a step under the limit.
func childLimitedStep(ctx context.Context, path string) error {
	return underLimit(ctx, path, func(ctx context.Context, s *sqlitestore.Store) (func() (string, error), error) {
		c, err := s.Claim(ctx, claimOf("k"))
		return func() (string, error) {
			result, held, err := s.StepTx(ctx, c.Record.Owner(), reserve, reserves("k"))
			return fmt.Sprint(string(result), " ", held), err
		}, err
	})
}

// underLimit makes an attempt under a limit on the size of files, which fails a
// write as a broken disk would, and then repeats it without the limit.
func underLimit(ctx context.Context, path string, prepare func(context.Context, *sqlitestore.Store) (func() (string, error), error)) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	attempt, err := prepare(ctx, s)
	if err != nil {
		return err
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	info, err := os.Stat(path + "-wal")
	if err != nil {
		return err
	}
	limit := syscall.Rlimit{Cur: uint64(info.Size()) + 100, Max: old.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if _, err := attempt(); !errors.Is(err, onlyonce.ErrUncertain) {
		return fmt.Errorf("under the limit: %w", err)
	}
	say("uncertain")
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	decided, err := attempt()
	if err != nil {
		return err
	}
	say("decided", decided)
	return nil
}

// What this process may not write is refused when it is opened, with a hint,
// and nothing is changed.
func TestOpenReadOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, folder os.FileMode
		absent       bool
	}{
		"file and folder": {file: 0o444, folder: 0o555},
		"file":            {file: 0o444, folder: 0o777},
		"folder":          {file: 0o666, folder: 0o555},
		"no file yet":     {absent: true, folder: 0o555},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "once.db")
			if !c.absent {
				s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Config{})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				chmod(t, path, c.file)
			}
			chmod(t, filepath.Dir(dir), 0o755)
			chmod(t, dir, c.folder)
			t.Cleanup(func() { chmod(t, dir, 0o755) })
			other := start(t, "unprivileged", path)
			line := other.line()
			want := fmt.Sprintf("error %s open %s: ", onlyonce.CodeStoreUnavailable, path)
			if !strings.HasPrefix(line, want) || !strings.Contains(line, "write") {
				t.Errorf("the process said %q", line)
			}
		})
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// childUnprivileged opens the store as somebody who is not root.
func childUnprivileged(ctx context.Context, path string) error {
	const nobody = 65534
	if os.Geteuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	}
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	say("opened")
	return nil
}
