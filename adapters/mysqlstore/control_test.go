package mysqlstore_test

import (
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// envControl is the URL of the negative control's database.
const envControl = "ONLYONCE_TEST_CONTROL"

// C1: what passes a suite proves nothing unless something fails it. Here the digest of
// a key is not unique any more, which only claims at once can notice: the suite finds
// that, and nothing wrong with what is done one after the other.
func TestControl(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := osexec.CommandContext(ctx, os.Args[0], "-test.run=^TestUnderControl$/^(C1_one_of_many_claims|C2_losing|C6_a_fenced|T1_)", "-test.v")
	child.Env = append(os.Environ(), envControl+"="+dsn, "ONLYONCE_STORETEST_REPORT=") // it is no report of ours
	out, err := child.CombinedOutput()
	if err == nil {
		t.Fatalf("the suite passed:\n%s", out)
	}
	for _, line := range []string{"FAIL: TestUnderControl/C1_one_of_many_claims", "PASS: TestUnderControl/C6_a_fenced", "PASS: TestUnderControl/T1_"} {
		if !strings.Contains(string(out), line) {
			t.Errorf("no %q in:\n%s", line, out)
		}
	}
}

// TestUnderControl is what TestControl runs in a process of its own.
func TestUnderControl(t *testing.T) {
	t.Parallel()
	dsn := os.Getenv(envControl)
	if dsn == "" {
		t.Skip("TestControl runs it")
	}
	main := admin(t, dsn)
	var databases atomic.Int32
	storetest.Run(t, storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		of := fmt.Sprint(dsn, "_", databases.Add(1))
		name := of[strings.LastIndex(of, "/")+1:]
		exec(t, main, `CREATE DATABASE `+name)
		t.Cleanup(func() { _, _ = main.ExecContext(context.WithoutCancel(t.Context()), `DROP DATABASE `+name) })
		s := open(t, of, mysqlstore.Config{})
		exec(t, s.DB(), `ALTER TABLE onlyonce_keys DROP PRIMARY KEY, ADD KEY (digest)`)
		return storetest.Instance{Store: ready(t, s.DB(), mysqlstore.Config{Now: now})}
	}})
}
