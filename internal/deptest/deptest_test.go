package deptest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/lint"
)

// modules returns the folders with a go.mod that belong to the product.
func modules(t *testing.T) []string {
	t.Helper()
	root, err := lint.Root()
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, name := range []string{".", "adapters", "apps", "bench"} {
		dir := filepath.Join(root, name)
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			t.Fatalf("find module %s: %v", name, err)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

func TestArrows(t *testing.T) {
	t.Parallel()
	for _, dir := range modules(t) {
		packages, err := List(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(packages) == 0 {
			t.Errorf("no packages in %s", dir)
		}
		for _, fault := range Check(packages) {
			t.Error(fault)
		}
	}
}

// Each row is one import; a check that finds nothing in the bad ones is worthless.
func TestCheck(t *testing.T) {
	t.Parallel()
	const (
		fine = ""
		pg   = adapters + "/pgstore"
	)
	tests := []struct{ from, to, want string }{
		{Root, "net/http", fine},
		{Root, Root + "/canon", "the root package is the domain"},
		{Root, Root + "/internal/wire", "the root package is the domain"},
		{Root + "/oncehttp", Root, fine},
		{Root + "/oncehttp", "github.com/dunglas/httpsfv", fine},
		{Root + "/canon", "github.com/go-json-experiment/json/jsontext", fine},
		{Root + "/oncehttp", "github.com/go-chi/chi/v5", "gets all that it imports"},
		{Root + "/memstore", pg, "only apps, and bench"},
		{Root + "/storetest", "pgregory.net/rapid", fine},
		{Root + "/storetest", "github.com/jackc/pgx/v5", "gets all that it imports"},
		{Root + "/memstore", "testing", "does not belong into what users run"},
		{Root + "/memstore", "testing/synctest", "does not belong into what users run"},
		{Root + "/internal/testserver", "testing", fine},
		{pg, "github.com/jackc/pgx/v5", fine},
		{pg, pg + "/migrations", fine},
		{pg, adapters + "/mysqlstore", "adapters never import each other"},
		{pg, adapters + "/internal/sqlname", fine},
		{pg, "github.com/google/go-cmp/cmp", "does not belong into what users run"},
		{adapters + "/pgstorex", pg, "adapters never import each other"},
		{apps + "/internal/cli", pg, fine},
		{apps + "/tests/crash", "testing", fine},
		{apps + "/verify", "testing", "does not belong into what users run"},
		{apps + "/internal/cli", bench + "/load", "bench measures the others"},
		{bench, pg, fine},
		{bench + "/load", bench, fine},
	}
	for _, tt := range tests {
		got := strings.Join(Check([]Package{{ImportPath: tt.from, Imports: []string{tt.to}}}), "\n")
		if (tt.want == fine) != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s imports %s: %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
}

// The arrows between our own packages hold for tests too; the libraries do not.
func TestCheckJudgesTests(t *testing.T) {
	t.Parallel()
	const from = adapters + "/pgstore"
	tests := []struct {
		name string
		pkg  Package
		want string
	}{
		{"library", Package{ImportPath: from, TestImports: []string{"testing", "pgregory.net/rapid"}}, ""},
		{"arrow", Package{ImportPath: from, TestImports: []string{adapters + "/mysqlstore"}}, "adapters never"},
		{"arrow_of_x_test", Package{ImportPath: from, XTestImports: []string{bench}}, "bench measures"},
		{"x_test_imports_itself", Package{ImportPath: from + "_test", XTestImports: []string{from}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(Check([]Package{tt.pkg}), "\n")
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("faults %q, want %q", got, tt.want)
			}
		})
	}
}

func TestListFailsOutsideOfModules(t *testing.T) {
	t.Parallel()
	if _, err := List(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("listed the packages of a folder that is not there")
	}
}
