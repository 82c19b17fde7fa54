package pgerr

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onlyonce-go/onlyonce"
)

// A server, or what stands between, may send any SQLSTATE, or none: it decides
// what a commit has left behind, and must not end the process.
func TestClassifyAnySQLSTATE(t *testing.T) {
	t.Parallel()
	tests := []struct {
		code, severity string
		want           onlyonce.Code
	}{
		{"", "ERROR", ""},
		{"", "FATAL", onlyonce.CodeUncertain},
		{"", "", onlyonce.CodeUncertain},
		{"0", "ERROR", ""},
		{"08", "ERROR", onlyonce.CodeUncertain},
		{"57", "ERROR", ""},
		{"57P", "ERROR", onlyonce.CodeUncertain},
		{"08006", "ERROR", onlyonce.CodeUncertain},
		{"57P01", "FATAL", onlyonce.CodeUncertain},
		{"57014", "ERROR", ""},
		{Idle, "FATAL", ""},
		{Unknown, "ERROR", onlyonce.CodeUncertain},
		{Serialization, "ERROR", onlyonce.CodeConflict},
		{NoTable, "ERROR", onlyonce.CodeStoreUnavailable},
		{NoColumn, "ERROR", onlyonce.CodeStoreUnavailable},
	}
	for _, tt := range tests {
		e := &pgconn.PgError{Code: tt.code, Severity: tt.severity, SeverityUnlocalized: tt.severity}
		err := Classify("complete key", e, Committing)
		if onlyonce.CodeOf(err) != tt.want || !errors.Is(err, e) {
			t.Errorf("SQLSTATE %q, %s: %v, want %q", tt.code, tt.severity, err, tt.want)
		}
	}
}

// Only a connection that could not be made says that the server is out of
// reach, and only to a caller that has waited for it.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	failed := &pgconn.ConnectError{Config: &pgconn.Config{}}
	tests := map[string]struct {
		ctx  context.Context //nolint:containedctx // an argument
		err  error
		want onlyonce.Code
	}{
		"connect":           {t.Context(), fmt.Errorf("acquire: %w", mutedError{failed}), onlyonce.CodeUnreachable},
		"cancelled":         {over, mutedError{failed}, ""},
		"busy pool":         {t.Context(), context.DeadlineExceeded, ""},
		"busy server":       {t.Context(), errors.Join(mutedError{failed}, &pgconn.PgError{Code: "53300"}), ""},
		"server starts up":  {t.Context(), errors.Join(mutedError{failed}, &pgconn.PgError{Code: "57P03"}), onlyonce.CodeUnreachable},
		"connection closed": {t.Context(), pgconn.ErrConnClosed, ""},
	}
	for name, tt := range tests {
		for _, f := range []Fate{Undone, Committing} {
			err := Classify("claim key", NoConnection(tt.ctx, tt.err), f)
			if onlyonce.CodeOf(err) != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%s: %v, want %q", name, err, tt.want)
			}
		}
	}
	if err := Classify("claim key", mutedError{failed}, Committing); errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("an error of a statement: %v", err)
	}
}

// mutedError keeps a ConnectError made here, which has no cause, from being printed.
type mutedError struct{ err error }

func (mutedError) Error() string   { return "no connection" }
func (e mutedError) Unwrap() error { return e.err }
