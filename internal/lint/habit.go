package lint

import (
	"go/ast"
	"regexp"
	"strings"
)

// CheckSleep finds tests that wait for a time instead of for an event. In a bubble
// of testing/synctest the clock is a fake one and sleeping is how it advances;
// a helper that only runs in a bubble says so on the line, with the word synctest.
func CheckSleep(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.goFiles((*File).Test) {
		lines := strings.Split(f.Text, "\n")
		ast.Inspect(f.Go, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if isCall(call, "synctest", "Test") {
				return false
			}
			line := f.line(call.Pos())
			if isCall(call, "time", "Sleep") && !strings.Contains(lines[line-1], "synctest") {
				faults = append(faults, f.fault(line, "a test sleeps: wait for a signal, or use synctest"))
			}
			return true
		})
	}
	return faults
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg
}

// CheckInit finds init functions: what runs at import cannot be configured, ordered
// or left out.
func CheckInit(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.goFiles(anyFile) {
		for _, decl := range f.Go.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				faults = append(faults, f.fault(f.line(fn.Pos()), "init function: let a constructor do this"))
			}
		}
	}
	return faults
}

// The words that stay out are put together here, so that this file stays in.
var (
	unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)
	elsewhere  = regexp.MustCompile(`(^|[^\w./-])/wo` + `rk/|\.\./sha` + `red\b`)
	// A comment may break the phrase over two lines.
	promise = regexp.MustCompile(`(?i)exactly[\s\-/*#>]+on` + `ce\b`)
	denial  = regexp.MustCompile(`(?i)\b(not|never|cannot|nobody)\b|n't\b`)
)

// CheckUnfinished finds notes about work that was put off.
func CheckUnfinished(t *Tree) []Fault {
	return t.grep(unfinished, "unfinished work: do it, or write it down outside of the code")
}

// CheckElsewhere finds paths that exist on one machine only.
func CheckElsewhere(t *Tree) []Fault {
	return t.grep(elsewhere, "a path that only one machine has: name nothing outside of the checkout")
}

// CheckPromise finds the promise that nobody can keep. A text may deny it: a line
// that denies something passes.
func CheckPromise(t *Tree) []Fault {
	faults := t.grep(promise, `a promise that nobody can keep: say "at most one effect per key, the answer replayable"`)
	var kept []Fault
	for _, fault := range faults {
		if !t.denies(fault) {
			kept = append(kept, fault)
		}
	}
	return kept
}

// denies reports whether the lines that the phrase can stand on deny it.
func (t *Tree) denies(fault Fault) bool {
	for _, f := range t.Files {
		if f.Path != fault.Path {
			continue
		}
		lines := strings.Split(f.Text, "\n")
		text := lines[fault.Line-1]
		if !promise.MatchString(text) && fault.Line < len(lines) {
			text += " " + lines[fault.Line]
		}
		return denial.MatchString(text)
	}
	return false
}

func (t *Tree) grep(pattern *regexp.Regexp, text string) []Fault {
	var faults []Fault
	for _, f := range t.Files {
		for _, at := range pattern.FindAllStringIndex(f.Text, -1) {
			line := strings.Count(f.Text[:at[0]], "\n") + 1
			faults = append(faults, f.fault(line, "%s", text))
		}
	}
	return faults
}
