package pgstore_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// B20: processes whose clocks differ judge a lease alike, because only the
// server's clock makes and judges it. In a bubble the process's clock begins in
// the year 2000; two handles on one database live in two bubbles that are two
// minutes apart, more than any lease here.
func TestClocksOfProcesses(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	truth := migrated(t, dsn, pgstore.Config{})
	pool := admin(t, dsn)
	lead := 2 * time.Minute
	req := request("k")
	req.Lease = 30 * time.Second
	var owner onlyonce.Owner
	process := func(fast bool, fn func(t *testing.T, s *pgstore.Store)) {
		synctest.Test(t, func(t *testing.T) {
			if fast {
				<-time.After(lead) // of the bubble's clock
			}
			s, err := pgstore.Open(t.Context(), dsn, pgstore.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			fn(t, s)
		})
	}
	process(false, func(t *testing.T, s *pgstore.Store) {
		t.Helper()
		owner = want(t, s, req, onlyonce.Won).Record.Owner()
	})
	process(true, func(t *testing.T, s *pgstore.Store) {
		t.Helper()
		c := want(t, s, again(req), onlyonce.Busy)
		if c.Remaining <= 0 || c.Remaining > req.Lease {
			t.Errorf("a process that is ahead: %v of %v left", c.Remaining, req.Lease)
		}
		if held, err := s.Renew(t.Context(), owner, req.Lease); !held || err != nil {
			t.Errorf("renew: %v, %v", held, err)
		}
	})
	rec, _, err := truth.Get(t.Context(), req.Key)
	if off := time.Since(rec.LeaseEnd.Add(-req.Lease)); err != nil || off.Abs() > time.Minute {
		t.Errorf("the lease was written by a clock that is %v off (%v)", off, err)
	}
	exec(t, pool, `UPDATE onlyonce_keys SET lease_end = clock_timestamp()`) // it is over
	process(false, func(t *testing.T, s *pgstore.Store) {
		t.Helper()
		owner = want(t, s, again(req), onlyonce.Resumed).Record.Owner()
		complete(t, s, owner)
	})
	process(true, func(t *testing.T, s *pgstore.Store) {
		t.Helper()
		want(t, s, again(req), onlyonce.Replay)
		if r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10, StepRetention: time.Hour}); err != nil || r.Deleted != 0 {
			t.Errorf("sweep: %+v, %v", r, err)
		}
	})
}

// B20: nothing in this package asks the process for the time.
func TestNoClockOfTheProcess(t *testing.T) {
	t.Parallel()
	asks := map[string]bool{"Now": true, "Since": true, "Until": true}
	files, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !asks[sel.Sel.Name] {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
				t.Errorf("%s: time.%s is the process's clock", set.Position(n.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
}
