package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// The limits on size. Functions and files of tests are not measured, tables within
// functions are not counted.
const (
	maxFunctionP95  = 45
	maxFunction     = 80
	maxFileMedian   = 150
	maxFile         = 600
	maxParameters   = 4
	minTestsPerCode = 1.0
)

// Size is the length of one function or file.
type Size struct {
	Fault     // where it is; the text is its name
	Lines int // without tables
}

// FunctionSizes measures every function outside tests, the longest first. A
// function runs from "func" to its closing brace.
func (t *Tree) FunctionSizes() []Size {
	var sizes []Size
	for _, f := range t.goFiles(product) {
		for _, decl := range f.Go.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			lines := f.line(fn.End()) - f.line(fn.Pos()) + 1 - f.tableLines(fn.Body)
			sizes = append(sizes, Size{f.fault(f.line(fn.Pos()), "%s", fn.Name.Name), lines})
		}
	}
	return longestFirst(sizes)
}

// tableLines counts the lines inside lists and maps that hold values only: data is
// as easy to read long as short. One that holds functions is code.
func (f *File) tableLines(body ast.Node) int {
	lines := 0
	ast.Inspect(body, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || !isTable(lit) {
			return true
		}
		lines += max(0, f.line(lit.End())-f.line(lit.Pos())-1)
		return false
	})
	return lines
}

func isTable(lit *ast.CompositeLit) bool {
	switch lit.Type.(type) {
	case *ast.ArrayType, *ast.MapType:
	default:
		return false
	}
	values := true
	ast.Inspect(lit, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			values = false
		}
		return values
	})
	return values
}

// FileSizes measures every Go file outside tests, the longest first.
func (t *Tree) FileSizes() []Size {
	var sizes []Size
	for _, f := range t.goFiles(product) {
		sizes = append(sizes, Size{f.fault(1, "file"), f.Lines()})
	}
	return longestFirst(sizes)
}

func longestFirst(sizes []Size) []Size {
	slices.SortStableFunc(sizes, func(a, b Size) int { return cmp.Compare(b.Lines, a.Lines) })
	return sizes
}

// quantile returns the length that the share q of sizes does not exceed.
func quantile(sizes []Size, q float64) int {
	if len(sizes) == 0 {
		return 0
	}
	i := int(float64(len(sizes)) * (1 - q))
	return sizes[min(i, len(sizes)-1)].Lines
}

// CheckFunctionSizes keeps functions short.
func CheckFunctionSizes(t *Tree) []Fault {
	sizes := t.FunctionSizes()
	faults := over(sizes, maxFunction)
	if p := quantile(sizes, 0.95); p > maxFunctionP95 {
		faults = append(faults, Fault{"tree", 1, fmt.Sprintf(
			"one function in twenty is longer than %d lines (now %d): split the longest", maxFunctionP95, p)})
	}
	return faults
}

// CheckFileSizes keeps files short.
func CheckFileSizes(t *Tree) []Fault {
	sizes := t.FileSizes()
	faults := over(sizes, maxFile)
	if p := quantile(sizes, 0.5); p > maxFileMedian {
		faults = append(faults, Fault{"tree", 1, fmt.Sprintf(
			"half of the files are longer than %d lines (now %d): split the longest", maxFileMedian, p)})
	}
	return faults
}

func over(sizes []Size, limit int) []Fault {
	var faults []Fault
	for _, s := range sizes {
		if s.Lines > limit {
			s.Text += fmt.Sprintf(" has %d lines, at most %d: split it", s.Lines, limit)
			faults = append(faults, s.Fault)
		}
	}
	return faults
}

// prescribed tells whether grpc.ClientConnInterface fixes a method's parameters: its
// Invoke, which ends with call options.
func prescribed(fn *ast.FuncDecl) bool {
	params := fn.Type.Params.List
	if fn.Recv == nil || fn.Name.Name != "Invoke" || len(params) == 0 {
		return false
	}
	rest, ok := params[len(params)-1].Type.(*ast.Ellipsis)
	if !ok {
		return false
	}
	option, ok := rest.Elt.(*ast.SelectorExpr)
	return ok && option.Sel.Name == "CallOption"
}

// CheckParameters keeps parameter lists short; the context counts, the receiver
// does not.
func CheckParameters(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.goFiles(product) {
		for _, decl := range f.Go.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := fn.Type.Params.NumFields(); n > maxParameters && !prescribed(fn) {
				faults = append(faults, f.fault(f.line(fn.Pos()),
					"%s has %d parameters, at most %d: take a struct", fn.Name.Name, n, maxParameters))
			}
		}
	}
	return faults
}

// TestShare returns the lines of tests and of code below the folder prefix; the
// prefix "" is the whole tree.
func (t *Tree) TestShare(prefix string) (tests, code int) {
	counts := func(f *File) bool { return strings.HasPrefix(f.Path, prefix) && !f.helper() }
	for _, f := range t.goFiles(counts) {
		if f.Test() {
			tests += f.Lines()
		} else {
			code += f.Lines()
		}
	}
	return tests, code
}

// CheckTestShare wants at least as many lines of tests as of code.
func CheckTestShare(t *Tree) []Fault {
	tests, code := t.TestShare("")
	if float64(tests) >= minTestsPerCode*float64(code) {
		return nil
	}
	return []Fault{{"tree", 1, fmt.Sprintf("%d lines of tests for %d lines of code: write tests", tests, code)}}
}

// Worst formats the first n sizes, one a line.
func Worst(sizes []Size, n int) string {
	var b strings.Builder
	for _, s := range sizes[:min(n, len(sizes))] {
		fmt.Fprintf(&b, "%5d  %s\n", s.Lines, s.Fault)
	}
	return b.String()
}
