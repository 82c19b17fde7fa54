package storetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// reportFile names a file that every suite adds one line to: what was examined,
// and how many rules it passed, failed and does not promise.
const reportFile = "ONLYONCE_STORETEST_REPORT"

// report counts what became of a suite's rules.
type report struct {
	mu                      sync.Mutex
	passed, failed, skipped int
}

// newReport writes its line when the test and all below it have ended.
func newReport(t *testing.T, suite string) *report {
	t.Helper()
	r := &report{}
	path := os.Getenv(reportFile)
	if path == "" {
		return r
	}
	pkg := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
	name := pkg + " " + strings.TrimPrefix(t.Name(), "Test")
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := addLine(path, fmt.Sprintf("%s\t%s\t%d\t%d\t%d\n", suite, name, r.passed, r.skipped, r.failed)); err != nil {
			t.Errorf("report of what ran: %v", err)
		}
	})
	return r
}

// addLine adds one line in one write, so that packages that run side by side do
// not mix theirs.
func addLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// count notes what becomes of a rule's test.
func (r *report) count(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case t.Failed():
			r.failed++
		case t.Skipped():
			r.skipped++
		default:
			r.passed++
		}
	})
}
