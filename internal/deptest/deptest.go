// Package deptest keeps the arrows between the project's packages: who may import
// whom, and why. Its test lists the packages of every module and fails with the
// reason when an import goes the wrong way.
package deptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// Root is the path of the root module, which the paths of all others begin with.
const Root = "github.com/onlyonce-go/onlyonce"

// Package is what "go list -json" says about a package, as far as it matters here.
type Package struct {
	ImportPath   string   // path of the package
	Imports      []string // what its own files import
	TestImports  []string // what its tests import
	XTestImports []string // what its tests in package x_test import
}

// List returns the packages of the module in dir.
func List(ctx context.Context, dir string) ([]Package, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-e",
		"-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages in %s: %w\n%s", dir, err, stderr.String())
	}
	var packages []Package
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p Package
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read list of packages in %s: %w", dir, err)
		}
		packages = append(packages, p)
	}
}

// rule judges one import. It returns why the import is wrong, or "".
type rule struct {
	judge func(from, to string) string
	tests bool // holds for the imports of tests, too
}

// rules are the arrows.
func rules() []rule {
	return []rule{
		{rootStandsAlone, false},
		{rootModuleIsLight, false},
		{adaptersAreStrangers, true},
		{onlyAppsKnowsAdapters, true},
		{nothingImportsBench, true},
		{testLibrariesStayInTests, false},
	}
}

// Check returns one line for every import that goes the wrong way.
func Check(packages []Package) []string {
	var faults []string
	for _, p := range packages {
		from := strings.TrimSuffix(p.ImportPath, "_test")
		for _, r := range rules() {
			imports := p.Imports
			if r.tests {
				imports = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
			}
			slices.Sort(imports)
			for _, to := range slices.Compact(slices.Clone(imports)) {
				if why := r.judge(from, to); why != "" {
					faults = append(faults, fmt.Sprintf("%s imports %s: %s", from, to, why))
				}
			}
		}
	}
	return faults
}

// within reports whether path is the package base or one below it.
func within(path, base string) bool { return path == base || strings.HasPrefix(path, base+"/") }

func withinAny(path string, bases ...string) bool {
	return slices.ContainsFunc(bases, func(base string) bool { return within(path, base) })
}

// standard reports whether path is of the standard library: those have no dot in
// their first element.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
