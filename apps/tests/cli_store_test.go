package tests_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
)

// versionOne fills a store as the program of version 1 of the tables has left it: by
// its migration alone, and by statements that are written out, so that they stay as
// they were.
type versionOne struct {
	files  fs.FS
	insert string
}

func oldPostgres() versionOne {
	return versionOne{pgstore.Migrations(), `
		INSERT INTO onlyonce_keys (digest, retention, fp_form, abandon, scope, key, operation, fp_secret, fp_policy, fp_sum, fp_parts,
			attempt, attempts, origin, fence, created_at, lease_end, state, status, header, body, completed_at, expires_at)
		VALUES ($1, 86400000000, 1, 0, $2, $3, 'POST /charges', 's', 'p', $4, '', $5, 1, 1000, 1000, now(), now(), 2, 201, '', $6, now(), now() + interval '1 day')`}
}

func oldSQLite() versionOne {
	return versionOne{sqlitestore.Migrations(), `
		INSERT INTO onlyonce_keys (digest, retention_us, fp_form, abandon, scope, key, operation, fp_secret, fp_policy, fp_sum, fp_parts,
			attempt, attempts, origin, fence, created_us, lease_end_us, state, status, header, body, completed_us, expires_us)
		VALUES (?1, 86400000000, 1, 0, ?2, ?3, 'POST /charges', 's', 'p', ?4, x'', ?5, 1, 1000, 1000, 1, 1, 'completed', 201, x'', ?6, 1, 4000000000000000)`}
}

// oldKeys is how many keys are in a store of version 1.
const oldKeys = 300

// oldClaim is the retry of one of them, and its answer.
func oldClaim(i int) (req onlyonce.ClaimRequest, body string) {
	req = onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct", Value: fmt.Sprint("old-", i)}, Operation: "POST /charges", Attempt: onlyonce.NewToken(),
		Fingerprint: onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s", Policy: "p"}, Sum: [32]byte{byte(i)}},
		Lease:       time.Minute, Retention: time.Hour,
	}
	return req, fmt.Sprintf(`{"id":"ch_%d"}`, i)
}

// fill makes the store. exec runs one statement of a transaction.
func (v versionOne) fill(t *testing.T, exec func(statement string, args ...any) error) {
	t.Helper()
	first, err := fs.ReadFile(v.files, "0001_init.up.sql")
	if err == nil {
		err = exec(string(first))
	}
	for i := 0; i < oldKeys && err == nil; i++ {
		req, body := oldClaim(i)
		digest := req.Key.Digest()
		err = exec(v.insert, digest[:], req.Key.Scope, req.Key.Value, req.Fingerprint.Sum[:], req.Attempt[:], []byte(body))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// oldStore is the URL of a store of version 1.
func oldStore(t *testing.T, url string) {
	t.Helper()
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		pool, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		tx, err := pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		oldSQLite().fill(t, func(statement string, args ...any) error {
			_, err := tx.ExecContext(t.Context(), statement, args...)
			return err
		})
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		return
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	oldPostgres().fill(t, func(statement string, args ...any) error {
		_, err := tx.Exec(t.Context(), statement, args...)
		return err
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// atOnce runs the program several times at once, with the same arguments.
func atOnce(t *testing.T, n int, args ...string) (outs []string) {
	t.Helper()
	program(t)
	outs = make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			out, errs, code := run(t, args...)
			if code != 0 {
				t.Errorf("%v: %d %s", args, code, errs)
			}
			outs[i] = out
		})
	}
	all.Wait()
	return outs
}

// keysOf opens the store of a test.
func keysOf(t *testing.T, url string) *keystore.Store {
	t.Helper()
	s, err := keystore.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func keysIn(t *testing.T, s *keystore.Store) int64 {
	t.Helper()
	size, err := s.Size(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return size.Keys
}

// T2: a filled store of the former version is upgraded by several processes at once;
// every answer that was given is given again.
func TestUpgradeByProcesses(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			oldStore(t, url)
			out, errs, code := run(t, "migrate", "status", "--keys-only", "--store", url)
			if code != 1 || strings.Count(out, "applied 20") != 1 || !strings.Contains(out, "pending") {
				t.Errorf("before: %d %s %s", code, out, errs)
			}
			atOnce(t, 3, "migrate", "up", "--keys-only", "--store", url)
			atOnce(t, 2, "migrate", "up", "--store", url)
			if out, errs, code := run(t, "migrate", "status", "--store", url); code != 0 || strings.Contains(out, "pending") {
				t.Errorf("after: %d %s %s", code, out, errs)
			}
			s := keysOf(t, url)
			for i := range oldKeys {
				req, body := oldClaim(i)
				c, err := s.Claim(t.Context(), req)
				if err != nil || c.Verdict != onlyonce.Replay || string(c.Record.Answer.Body) != body || c.Record.Answer.Status != 201 {
					t.Fatalf("%s: %s %+v, %v", req.Key.Value, c.Verdict, c.Record.Answer, err)
				}
			}
			if n := keysIn(t, s); n != oldKeys {
				t.Errorf("%d keys are there, want %d", n, oldKeys)
			}
		})
	}
}

// Processes that make the tables of an empty store at once all find them made.
func TestMigrateByProcesses(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			atOnce(t, 3, "migrate", "up", "--store", url)
			if out, errs, code := run(t, "migrate", "status", "--store", url); code != 0 {
				t.Errorf("%d %s %s", code, out, errs)
			}
		})
	}
}

// sweepable is a store with keys that have expired and some that have not.
func sweepable(t *testing.T, url string, expired, kept int) *keystore.Store {
	t.Helper()
	if err := keystore.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	s := keysOf(t, url)
	for i := range expired + kept {
		req, body := oldClaim(i)
		if i < expired {
			req.Retention = time.Microsecond
		}
		c, err := s.Claim(t.Context(), req)
		if err == nil {
			_, err = s.Complete(t.Context(), c.Record.Owner(), onlyonce.Answer{Status: 201, Body: []byte(body)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// launched is a program under way.
type launched struct {
	cmd       *exec.Cmd
	out, errs lockedLog
}

func launch(t *testing.T, args ...string) *launched {
	t.Helper()
	l := &launched{cmd: exec.Command(program(t), args...)}
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.errs
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.cmd.Process.Kill() })
	return l
}

// end sends a signal, and waits for the exit code.
func (l *launched) end(t *testing.T, sig syscall.Signal) int {
	t.Helper()
	if err := l.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_ = l.cmd.Wait()
	return l.cmd.ProcessState.ExitCode()
}

// until waits for something that another process does.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !done() {
		if pause(ctx, 10*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("it did not happen: %s", what)
		}
	}
}

// T3: SIGTERM and SIGINT end a sweep between two batches, with all that was done said;
// the next sweep goes on.
func TestSweepIsStopped(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		for sigName, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
			t.Run(name+" "+sigName, func(t *testing.T) {
				t.Parallel()
				url := store(t)
				s := sweepable(t, url, 30, 5)
				l := launch(t, "sweep", "--store", url, "--batch", "10", "--pause", "1h")
				until(t, "a batch", func() bool { return keysIn(t, s) < 35 })
				if code := l.end(t, sig); code != 0 || !strings.HasPrefix(l.out.String(), "stopped by a signal: more may be left; 10 expired keys deleted") || l.errs.String() != "" {
					t.Errorf("%d %s %s", code, l.out.String(), l.errs.String())
				}
				if n := keysIn(t, s); n != 25 {
					t.Errorf("%d keys are left, want 25", n)
				}
				out, errs, code := run(t, "sweep", "--store", url)
				if code != 0 || !strings.HasPrefix(out, "20 expired keys deleted") || keysIn(t, s) != 5 {
					t.Errorf("the next sweep: %d %s %s", code, out, errs)
				}
			})
		}
	}
}

// T3: two sweepers at once delete every row once between them, and nothing that is
// kept; whoever met the other one says so.
func TestTwoSweepers(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			s := sweepable(t, url, 400, 5)
			deleted, done := int64(0), 0
			for _, out := range atOnce(t, 2, "sweep", "--store", url, "--batch", "20", "--pause", "1ms", "--json") {
				var v struct {
					Busy, Done bool
					Deleted    int64
				}
				if err := json.Unmarshal([]byte(out), &v); err != nil || v.Busy == v.Done {
					t.Errorf("%s, %v", out, err)
				}
				deleted += v.Deleted
				if v.Done {
					done++
				}
			}
			if deleted != 400 || done == 0 || keysIn(t, s) != 5 {
				t.Errorf("%d deleted, %d came to the end, %d keys are left", deleted, done, keysIn(t, s))
			}
		})
	}
}

// A sweep that is killed leaves whole batches, and keys that are kept.
func TestSweepIsKilled(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			s := sweepable(t, url, 200, 5)
			l := launch(t, "sweep", "--store", url, "--batch", "7", "--pause", "1ms")
			until(t, "a batch", func() bool { return keysIn(t, s) < 205 })
			l.end(t, syscall.SIGKILL)
			if out, errs, code := run(t, "sweep", "--store", url); code != 0 || keysIn(t, s) != 5 {
				t.Errorf("the next sweep: %d %s %s, %d keys are left", code, out, errs, keysIn(t, s))
			}
			for i := 200; i < 205; i++ {
				req, body := oldClaim(i)
				if c, err := s.Claim(t.Context(), req); err != nil || c.Verdict != onlyonce.Replay || string(c.Record.Answer.Body) != body {
					t.Errorf("%s, %v", c.Verdict, err)
				}
			}
		})
	}
}

// A sample that is called off is removed.
func TestEstimateSampleIsStopped(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			l := launch(t, "estimate", "--per-day", "1000", "--store", url, "--sample", "--keys", "1000000")
			until(t, "a sample", func() bool { return scratches(t, url) > 0 })
			if code := l.end(t, syscall.SIGTERM); code != 1 || !strings.Contains(l.errs.String(), "onlyonce: estimate: stopped by a signal\n") {
				t.Errorf("%d %s %s", code, l.out.String(), l.errs.String())
			}
			if n := scratches(t, url); n != 0 {
				t.Errorf("%d scratch stores are left", n)
			}
		})
	}
}

// scratches counts the schemas or folders that a sample makes.
func scratches(t *testing.T, url string) (n int) {
	t.Helper()
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "onlyonce_scratch*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'onlyonce\_scratch%'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
