package report

import (
	"errors"
	"fmt"
	"strings"
)

// Error is a report that cannot be read: where, what is wrong there, and what to
// do. Nothing of such a report is used.
type Error struct {
	// Line and Column count from 1, columns in bytes; 0 where there is none.
	Line, Column int
	// Name is the column's name in the report.
	Name string
	// Text says what is wrong, Hint what to do.
	Text, Hint string
	// Err is the cause, if there is more to say.
	Err error
}

// Error is the place and what is wrong there.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d", e.Line)
		if e.Column > 0 {
			fmt.Fprintf(&b, ", column %d", e.Column)
		}
		if e.Name != "" {
			fmt.Fprintf(&b, " (%s)", e.Name)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Text)
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// fault is what is wrong with a value; the reader knows where it stands.
type fault struct{ text, hint string }

func (f *fault) Error() string { return f.text }

func faulty(hint, format string, args ...any) error {
	return &fault{text: fmt.Sprintf(format, args...), hint: hint}
}

// hintOf is the fault's hint, if it is one.
func hintOf(err error) string {
	if f, ok := errors.AsType[*fault](err); ok {
		return f.hint
	}
	return ""
}
