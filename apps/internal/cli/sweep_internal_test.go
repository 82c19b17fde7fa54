package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// sweepJSON sweeps a store and reads what it says.
func sweepJSON(t *testing.T, url string, more ...string) (v sweepView) {
	t.Helper()
	out, errs, code := run(t, append([]string{"sweep", "--store", url, "--json"}, more...)...)
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitDone {
		t.Fatalf("%d %s, %v", code, errs, err)
	}
	return v
}

// T3: what has expired goes in batches, what has been abandoned is decided, and
// nothing else is touched.
func TestSweep(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, url string) {
		t.Helper()
		expired(t, url, 25)
		answered(t, url, "kept", 3, time.Hour)
		onStore(t, url, func(s *keystore.Store) {
			for value, abandon := range map[string]onlyonce.Abandon{"hold": onlyonce.AbandonHold, "rerun": onlyonce.AbandonRerun} {
				req := claimOf(value, time.Microsecond, time.Hour)
				req.Abandon = abandon
				if _, err := s.Claim(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
		})
		if v := sweepJSON(t, url, "--batch", "10", "--pause", "0s"); !v.Done || v.Busy || v.Batches < 3 || v.Deleted != 25 || v.Freed+v.Parked != 0 {
			t.Errorf("the first sweep: %+v", v)
		}
		if v := sweepJSON(t, url, "--grace", "0s"); v.Freed != 1 || v.Parked != 1 || !v.Done {
			t.Errorf("without grace: %+v", v)
		}
		out, errs, code := run(t, "sweep", "--store", url)
		if want := "0 expired keys deleted, 0 abandoned attempts freed, 0 put in doubt, 0 old steps deleted\n"; out != want || errs != "" || code != exitDone {
			t.Errorf("%d %q %q", code, out, errs)
		}
		if n := left(t, url); n != 5 {
			t.Errorf("%d keys are left, want 5", n)
		}
	})
}

// T3: one sweeper at a time; the other one says so.
func TestSweepBusy(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t)
	if err := keystore.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	expired(t, url, 3)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	h := fnv.New64a() // the lock that the store's sweepers take
	_, _ = h.Write([]byte("onlyonce\x00"))
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock($1)", int64(h.Sum64())); err != nil {
		t.Fatal(err)
	}
	out, errs, code := run(t, "sweep", "--store", url)
	if out != "another sweeper is at work\n" || errs != "" || code != exitDone {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if v := sweepJSON(t, url); !v.Busy || v.Done || v.Deleted != 0 {
		t.Errorf("%+v", v)
	}
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock($1)", int64(h.Sum64())); err != nil {
		t.Fatal(err)
	}
	if v := sweepJSON(t, url); v.Busy || !v.Done || v.Deleted != 3 {
		t.Errorf("%+v", v)
	}
}

// defaultSweep is the command without flags.
func defaultSweep() *sweepCmd {
	return &sweepCmd{Batch: 10, Timeout: span(time.Minute)}
}

// A signal ends a sweep after the batch that is under way, which is carried out; what
// was done is said, and it is no failure.
func TestSweepStopped(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	store := &scripted{sweep: func(ctx context.Context, call int) (onlyonce.SweepResult, error) {
		if call == 2 {
			stop()
		}
		return onlyonce.SweepResult{Deleted: 10, More: true}, ctx.Err()
	}}
	v, err := defaultSweep().sweep(ctx, &keystore.Store{Store: store}, io.Discard)
	if err != nil || v.Stopped != "signal" || v.Deleted != 20 || v.Done || store.calls != 2 {
		t.Errorf("%d calls: %+v, %v", store.calls, v, err)
	}
	var out bytes.Buffer
	v.print(&out)
	if !strings.HasPrefix(out.String(), "stopped by a signal: more may be left; 20 expired keys deleted") {
		t.Errorf("it says %q", &out)
	}
}

// --for bounds a sweep of what never ends.
func TestSweepFor(t *testing.T) {
	t.Parallel()
	store := &scripted{sweep: func(context.Context, int) (onlyonce.SweepResult, error) {
		return onlyonce.SweepResult{Deleted: 10, More: true}, nil
	}}
	c := defaultSweep()
	c.For, c.Pause = span(30*time.Millisecond), span(time.Millisecond)
	v, err := c.sweep(t.Context(), &keystore.Store{Store: store}, io.Discard)
	if err != nil || v.Stopped != "time" || v.Deleted != 10*v.Batches || v.Batches < 1 || v.Done {
		t.Errorf("%+v, %v", v, err)
	}
	var out bytes.Buffer
	v.print(&out)
	if !strings.HasPrefix(out.String(), "the time is over: more may be left; ") {
		t.Errorf("it says %q", &out)
	}
}

// A store that hangs is given up, and what was done before is said.
func TestSweepOfAHangingStore(t *testing.T) {
	t.Parallel()
	c := defaultSweep()
	c.Timeout = span(10 * time.Millisecond)
	v, err := c.sweep(t.Context(), &keystore.Store{Store: &scripted{sweep: func(ctx context.Context, call int) (onlyonce.SweepResult, error) {
		if call == 1 {
			return onlyonce.SweepResult{Deleted: 10, More: true}, nil
		}
		<-ctx.Done()
		return onlyonce.SweepResult{}, ctx.Err()
	}}}, io.Discard)
	if !errors.Is(err, context.DeadlineExceeded) || onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || v.Deleted != 10 || v.Done {
		t.Errorf("%+v, %v", v, err)
	}
}

// Somebody who looks sees how far it is.
func TestSweepProgress(t *testing.T) {
	t.Parallel()
	totals := onlyonce.SweepTotals{Batches: 1200, Deleted: 5_000_000, Steps: 1_000_000}
	if got := sweepLine(totals, 100*time.Second); got != "sweeping: 6,000,000 rows in 1,200 batches, 60,000 a second" {
		t.Errorf("it says %q", got)
	}
	if got := sweepLine(onlyonce.SweepTotals{}, 0); got != "sweeping: 0 rows in 0 batches" {
		t.Errorf("it says %q", got)
	}
	var out bytes.Buffer
	p := newProgress(&out)
	p.terminal, p.shown = true, p.begun.Add(-time.Hour)
	p.say(func(time.Duration) string { return "far" })
	p.say(func(time.Duration) string { return "too soon" })
	p.end()
	p.end()
	if got := out.String(); got != "\rfar\r   \r" {
		t.Errorf("a terminal gets %q", got)
	}
}

// What makes no sense is refused before anything is opened.
func TestSweepRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flags, want string }{
		{"--batch 0", "--batch must be at least 1"},
		{"--batch=-1", "--batch must be at least 1"},
		{"--batch many", "--batch"},
		{"--pause=-1s", "must not be negative"},
		{"--grace=-1s", "must not be negative"},
		{"--step-retention=-1d", "not a duration"},
		{"--for=-1m", "must not be negative"},
		{"--for tomorrow", "not a duration"},
		{"--timeout 0s", "--timeout must be positive"},
		{"--store memory:", "in the process that has it"},
		{"--store oracle:x", "no kind of store"},
		{"--store sqlite:none.db", "there is no file none.db"},
	} {
		out, errs, code := run(t, append([]string{"sweep"}, strings.Fields(c.flags)...)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %d %s %s", c.flags, code, out, errs)
		}
	}
	if _, errs, code := run(t, "sweep", "--store", "postgres://u@127.0.0.1:1/d?connect_timeout=2"); code != exitWrong || !strings.Contains(errs, "does not answer") {
		t.Errorf("%d %s", code, errs)
	}
}
