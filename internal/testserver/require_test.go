package testserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// verdictTB records how a helper ended its test.
type verdictTB struct {
	testing.TB
	verdict, message string
}

func (v *verdictTB) Helper() {}

func (v *verdictTB) Skip(args ...any) { v.end("skip", args) }

func (v *verdictTB) Fatal(args ...any) { v.end("fatal", args) }

func (v *verdictTB) end(verdict string, args []any) {
	v.verdict, v.message = verdict, fmt.Sprint(args...)
	runtime.Goexit()
}

// verdictOf runs f as a test would be run, on a goroutine that may be ended.
func verdictOf(t *testing.T, f func(testing.TB)) *verdictTB {
	t.Helper()
	v := &verdictTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(v)
	}()
	<-done
	return v
}

func wantContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not contain %q", text, part)
		}
	}
}

func TestUnavailable(t *testing.T) {
	missing := &missingError{what: "postgres not found", hint: "install it"}
	old := &missingError{what: "pgbouncer 1.18", hint: "install 1.21", old: true}
	tests := []struct {
		name, require string
		err           error
		want          string
	}{
		{"missing_skips", "", missing, "skip"},
		{"missing_fails_where_all_are_required", "1", missing, "fatal"},
		{"wrapped_missing_skips", "", fmt.Errorf("start: %w", missing), "skip"},
		{"old_skips_even_then", "1", old, "skip"},
		{"broken_always_fails", "", errors.New("initdb: disk full"), "fatal"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(envRequire, tt.require)
			v := verdictOf(t, func(tb testing.TB) { unavailable(tb, tt.err) })
			if v.verdict != tt.want {
				t.Errorf("ended by %s (%s), want %s", v.verdict, v.message, tt.want)
			}
		})
	}
}

// Without any installation the message says what to do.
func TestFindPostgresNowhere(t *testing.T) {
	t.Parallel()
	_, err := findPostgresIn(t.TempDir(), filepath.Join(t.TempDir(), "*", "bin"))
	if err == nil {
		t.Fatal("found postgres in an empty folder")
	}
	wantContains(t, err.Error(), "postgres not found: install postgresql or set ONLYONCE_TEST_POSTGRES")
}

// The highest version of the packaged ones is taken, compared as numbers, and only
// whole installations count.
func TestFindPostgresTakesTheHighestVersion(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for version, programs := range map[string][]string{
		"9": postgresPrograms, "15": postgresPrograms, "17": {"psql"},
	} {
		bin := filepath.Join(root, version, "bin")
		if err := os.MkdirAll(bin, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range programs {
			if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := findPostgresIn("", filepath.Join(root, "*", "bin"))
	if want := filepath.Join(root, "15", "bin"); err != nil || got != want {
		t.Errorf("found %s, %v; want %s", got, err, want)
	}
}

func TestOwnerRefusesWithoutRun(t *testing.T) {
	t.Parallel()
	var o owner
	_, err := start(&o, "postgres", func() (*Cluster, error) { return startCluster(nil) })
	if err == nil {
		t.Fatal("started a cluster that nobody would stop")
	}
	wantContains(t, err.Error(), "TestMain", "testserver.Run(m)", "of the test's own")
}

func TestMajorVersion(t *testing.T) {
	t.Parallel()
	for bin, want := range map[string]int{
		"/usr/lib/postgresql/9.6/bin": 0,
		"/usr/lib/postgresql/17/bin":  17,
		"/usr/pgsql-18/bin":           18,
		"/opt/other/bin":              0,
	} {
		if got := majorVersion(bin); got != want {
			t.Errorf("majorVersion(%s) = %d, want %d", bin, got, want)
		}
	}
}
