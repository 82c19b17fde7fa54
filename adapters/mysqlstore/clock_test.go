package mysqlstore_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// B20: leases are made and judged by the server's clock, and sessions in other time
// zones, whose local hours come twice in autumn, mean the same moment.
func TestServersClock(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	east, west := open(t, with(t, dsn, "time_zone", "'+13:00'"), mysqlstore.Config{}), open(t, with(t, dsn, "time_zone", "'-11:00'"), mysqlstore.Config{})
	req := request("k")
	rec := want(t, east, req, onlyonce.Won).Record
	c := want(t, west, again(req), onlyonce.Busy)
	if c.Remaining <= 0 || c.Remaining > req.Lease || !c.Record.LeaseEnd.Equal(rec.LeaseEnd) {
		t.Errorf("%v of %v left, until %v", c.Remaining, req.Lease, c.Record.LeaseEnd)
	}
	us := one[int64](t, admin(t, dsn), `SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)`)
	if off := time.UnixMicro(us).Sub(rec.CreatedAt); off < 0 || off > time.Minute {
		t.Errorf("the claim was made %v before now by the server's clock", off)
	}
	exec(t, admin(t, dsn), `UPDATE onlyonce_keys SET lease_end_us = created_us`) // it is over
	complete(t, west, want(t, west, again(req), onlyonce.Resumed).Record.Owner())
	want(t, east, again(req), onlyonce.Replay)
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
