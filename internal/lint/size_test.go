package lint

import (
	"fmt"
	"strings"
	"testing"
)

// function returns a function of n lines.
func function(name string, n int) string {
	return "func " + name + "() {\n" + strings.Repeat("\tprintln()\n", n-2) + "}\n"
}

func TestCheckFunctionSizes(t *testing.T) {
	t.Parallel()
	short := strings.Repeat(function("_", 3), 100)
	tests := []struct {
		name, path, source string
		want               []string
	}{
		{"80_lines_pass", "a.go", short + function("long", 80), nil},
		{"81_lines_do_not", "a.go", short + function("long", 81), []string{"a.go:302: long has 81 lines"}},
		{"tests_may_be_long", "a_test.go", function("long", 200), nil},
		{"suites_may_be_long", "storetest/a.go", function("long", 200), nil},
		{"methods_count", "a.go", short + strings.Replace(function("x", 81), "func", "func (T)", 1), []string{"x has 81"}},
		{"p95", "a.go", function("a", 46) + function("b", 46), []string{"one function in twenty"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree := parse(t, map[string]string{tt.path: "package a\n" + tt.source})
			wantFaults(t, CheckFunctionSizes(tree), tt.want...)
		})
	}
}

// Data is not counted, a list of functions is.
func TestTablesAreNotCounted(t *testing.T) {
	t.Parallel()
	table := "func f() {\n\tx := []int{\n" + strings.Repeat("\t\t1,\n", 100) + "\t}\n}\n"
	code := strings.ReplaceAll(strings.Replace(table, "[]int", "[]func()", 1), "1,", "func() {},")
	for name, want := range map[string]int{table: 4, code: 104} {
		sizes := parse(t, map[string]string{"a.go": "package a\n" + name}).FunctionSizes()
		if sizes[0].Lines != want {
			t.Errorf("function has %d lines, want %d", sizes[0].Lines, want)
		}
	}
}

func TestCheckFileSizes(t *testing.T) {
	t.Parallel()
	file := func(lines int) string { return "package a\n" + strings.Repeat("\n", lines-1) }
	tests := []struct {
		name  string
		sizes []int
		want  []string
	}{
		{"600_lines_pass", []int{600, 10, 10}, nil},
		{"601_lines_do_not", []int{601, 10, 10}, []string{"file has 601 lines"}},
		{"median", []int{151, 151, 10}, []string{"half of the files"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sources := map[string]string{"long_test.go": file(2000)}
			for i, n := range tt.sizes {
				sources[fmt.Sprintf("f%d.go", i)] = file(n)
			}
			wantFaults(t, CheckFileSizes(parse(t, sources)), tt.want...)
		})
	}
}

func TestCheckParameters(t *testing.T) {
	t.Parallel()
	tree := parse(t, map[string]string{
		"a.go":      "package a\nfunc four(a, b, c, d int) {}\nfunc five(a, b, c int, d string, e ...int) {}\n",
		"a_test.go": "package a\nfunc six(a, b, c, d, e, f int) {}\n",
		"b.go":      "package a\nfunc (r T) method(a, b, c, d int) {}\n",
		"c.go":      "package a\nfunc (r T) Invoke(a, b, c, d int, e ...grpc.CallOption) {}\n",
		"d.go":      "package a\nfunc (r T) Invoke(a, b, c, d int, e ...int) {}\n",
	})
	wantFaults(t, CheckParameters(tree), "a.go:3: five has 5 parameters", "d.go:2: Invoke has 5 parameters")
}

func TestCheckTestShare(t *testing.T) {
	t.Parallel()
	code := "package a\n\n\n"
	wantFaults(t, CheckTestShare(parse(t, map[string]string{"a.go": code, "a_test.go": "package a\n"})),
		"1 lines of tests for 3 lines of code")
	wantFaults(t, CheckTestShare(parse(t, map[string]string{"a.go": code, "storetest/a.go": code})))
	wantFaults(t, CheckTestShare(parse(t, map[string]string{"internal/testserver/a.go": code})))
}

func TestWorst(t *testing.T) {
	t.Parallel()
	tree := parse(t, map[string]string{"a.go": "package a\n" + function("short", 3) + function("long", 9)})
	if got, want := Worst(tree.FunctionSizes(), 1), "    9  a.go:5: long\n"; got != want {
		t.Errorf("Worst = %q, want %q", got, want)
	}
}
