package cli

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// Migrations go from pending to applied: those of keys alone, and with the payments
// service's.
func TestMigrate(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			list, err := keystore.Status(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			all := len(list)
			own, err := db.Status(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			look := func(wantCode, pending int, flags ...string) (v statusView, errs string) {
				t.Helper()
				out, errs, code := run(t, append([]string{"migrate", "status", "--store", url, "--json"}, flags...)...)
				if err := json.Unmarshal([]byte(out), &v); err != nil || code != wantCode || v.Pending != pending {
					t.Errorf("status %v: %d, %+v, %s, %v", flags, code, v, errs, err)
				}
				return v, errs
			}
			v, errs := look(exitWrong, all, "--keys-only")
			if name == "postgres" { // of an empty database too, the keys are what is missing
				if _, errs, code := run(t, "keys", "list", "--store", url); code != exitUsage || !strings.Contains(errs, "`onlyonce migrate up --keys-only`") {
					t.Errorf("%d %s", code, errs)
				}
			}
			if v.Payments != nil || v.Keys[0].Applied || v.Keys[0].AppliedAt != nil || !strings.Contains(errs, fmt.Sprint(all)+" pending") {
				t.Errorf("%+v, %s", v, errs)
			}
			if _, errs = look(exitWrong, all); !strings.Contains(errs, "`onlyonce migrate up --keys-only`") {
				t.Errorf("it says %s", errs)
			}
			for range 2 {
				if out, errs, code := run(t, "migrate", "up", "--keys-only", "--store", url); code != exitDone || out != "the tables of keys are up to date\n" {
					t.Errorf("%d %s %s", code, out, errs)
				}
			}
			v, _ = look(exitDone, 0, "--keys-only")
			if v.Keys[0].Name != "init" || !v.Keys[0].Applied || v.Keys[0].AppliedAt == nil {
				t.Errorf("%+v", v)
			}
			v, _ = look(exitDone, 0) // the payments service's are nobody's wish yet
			if len(v.Payments) < 2 || v.Payments[0].Applied || v.Payments[0].Name != "init" {
				t.Errorf("%+v", v)
			}
			if out, errs, code := run(t, "migrate", "up", "--store", url); code != exitDone || !strings.Contains(out, "and of the payments service are up to date\nthe tables of the payments service were made; --keys-only leaves them out\n") {
				t.Errorf("%d %s %s", code, out, errs)
			}
			if out, _, code := run(t, "migrate", "up", "--store", url); code != exitDone || strings.Contains(out, "were made") {
				t.Errorf("again: %d %s", code, out)
			}
			if v, _ = look(exitDone, 0); v.Payments[0].AppliedAt == nil || len(v.Payments) != len(own) {
				t.Errorf("%+v", v)
			}
			out, errs, code := run(t, "migrate", "status", "--store", url)
			if code != exitDone || !strings.Contains(out, "\nkeys ") || strings.Count(out, " applied 20") != all+len(own) {
				t.Errorf("%d %s %s", code, out, errs)
			}
		})
	}
}

// Printing opens nothing, and prints what is meant.
func TestMigratePrint(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"sqlite:none/x.db", "postgres://none.invalid/x"} {
		all, _, code := run(t, "migrate", "print", "--store", url)
		if code != exitDone || !strings.Contains(all, "onlyonce_keys") || !strings.Contains(all, "payments_charges") {
			t.Errorf("%s: %d %.100s", url, code, all)
		}
		keys, _, code := run(t, "migrate", "print", "--store", url, "--keys-only")
		if code != exitDone || !strings.Contains(keys, "onlyonce_keys") || strings.Contains(keys, "payments_") {
			t.Errorf("%s: %d %.100s", url, code, keys)
		}
	}
	for _, command := range []string{"up", "status", "print"} {
		if _, errs, code := run(t, "migrate", command, "--store", "oracle:x"); code != exitUsage || !strings.Contains(errs, "sqlite:PATH, postgres://") {
			t.Errorf("%s: %d %s", command, code, errs)
		}
	}
	if _, errs, code := run(t, "migrate", "print", "--store", "memory:"); code != exitUsage || !strings.Contains(errs, "kind memory has none") {
		t.Errorf("%d %s", code, errs)
	}
	for command, want := range map[string]string{"up": "a store of the kind memory needs no tables; checked", "status": "kind memory has no migrations"} {
		if out, errs, code := run(t, "migrate", command, "--store", "memory:"); code != exitDone || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s %s", command, code, out, errs)
		}
	}
}

// Tables in use are switched over to partitions, which status shows; they stay as they
// are without the flag, and other periods are refused.
func TestMigratePartitions(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t)
	answered(t, migrated(t, url), "kept", 1, time.Hour)
	const line = "answers and kept requests are in partitions of 1d, 3 ahead\n"
	up := []string{"migrate", "up", "--keys-only", "--store", url, "--partition-every", "24h", "--partition-ahead", "3"}
	for range 2 {
		if out, errs, code := run(t, up...); code != exitDone || !strings.HasSuffix(out, line) {
			t.Fatalf("%d %s %s", code, out, errs)
		}
	}
	if out, errs, code := run(t, up[:5]...); code != exitDone || strings.Contains(out, "partitions") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if out, errs, code := run(t, "migrate", "status", "--store", url); code != exitDone || !strings.HasSuffix(out, line) {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if out, _, _ := run(t, "migrate", "status", "--store", url, "--json"); !strings.Contains(out, `"every_seconds": 86400`) || !strings.Contains(out, `"ahead": 3`) {
		t.Error(out)
	}
	onStore(t, url, func(s *keystore.Store) {
		c, err := s.Claim(t.Context(), claimOf("kept0", time.Minute, time.Hour))
		if err != nil || c.Verdict != onlyonce.Replay || len(c.Record.Answer.Body) != 500 {
			t.Errorf("%+v, %v", c, err)
		}
	})
	up[6] = "1h"
	if _, errs, code := run(t, up...); code != exitUsage || !strings.Contains(errs, "3 ahead") {
		t.Errorf("%d %s", code, errs)
	}
}

// migrated makes the tables of keys of a store.
func migrated(t *testing.T, url string) string {
	t.Helper()
	if err := keystore.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	return url
}

// Periods that make no sense, and other stores, are refused before anything is opened.
func TestMigratePartitionsRefused(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--store sqlite:none.db --partition-every 24h":                               "is for postgres:// alone",
		"--store postgres://none.invalid/x --partition-every=-1h":                    "must not be negative",
		"--store postgres://none.invalid/x --partition-every 1h --partition-ahead 0": "from 1 to 100",
	} {
		if _, errs, code := run(t, append([]string{"migrate", "up"}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s", args, code, errs)
		}
	}
}

// heard passes on what is written, as it is written.
type heard chan string

func (h heard) Write(p []byte) (int, error) {
	h <- string(p)
	return len(p), nil
}

// A file that another process has locked is waited for, and that is said.
func TestMigrateWaits(t *testing.T) {
	t.Parallel()
	url := apptest.SQLite(t)
	pool, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	for _, statement := range []string{"PRAGMA journal_mode = WAL", "CREATE TABLE mine (n INTEGER)", "BEGIN IMMEDIATE", "INSERT INTO mine VALUES (1)"} {
		if _, err := pool.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	said := make(heard, 1)
	var out bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- Run(t.Context(), []string{"migrate", "up", "--keys-only", "--store", url}, Streams{In: strings.NewReader(""), Out: &out, Err: said})
	}()
	if text := <-said; text != "onlyonce: another process has the store locked; waiting for it\n" {
		t.Errorf("it says %q", text)
	}
	if _, err := pool.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != exitDone || out.String() != "the tables of keys are up to date\n" {
		t.Errorf("%d %s", code, &out)
	}
	if _, errs, code := run(t, "migrate", "up", "--wait=-1s", "--store", url); code != exitUsage || !strings.Contains(errs, "--wait must not be negative") {
		t.Errorf("%d %s", code, errs)
	}
}
