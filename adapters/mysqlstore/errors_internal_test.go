package mysqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce"
)

// Errors are told apart by number and by whether anything was sent.
func TestClassify(t *testing.T) {
	t.Parallel()
	server := func(number uint16) error { return fmt.Errorf("exec: %w", &mysql.MySQLError{Number: number}) }
	for _, tt := range []struct {
		name string
		err  error
		// undone and committing are the codes; empty: a plain error.
		undone, committing onlyonce.Code
	}{
		{"deadlock", server(1213), onlyonce.CodeConflict, onlyonce.CodeConflict},
		{"lock wait timeout", server(1205), onlyonce.CodeConflict, onlyonce.CodeConflict},
		{"group replication", server(3101), onlyonce.CodeConflict, onlyonce.CodeConflict},
		{"changed since the snapshot", server(1020), onlyonce.CodeConflict, onlyonce.CodeConflict},
		{"too many transactions", server(1637), onlyonce.CodeConflict, onlyonce.CodeConflict},
		{"error during commit", server(1180), onlyonce.CodeStoreUnavailable, onlyonce.CodeUncertain},
		{"node not prepared", server(1047), onlyonce.CodeStoreUnavailable, onlyonce.CodeUncertain},
		{"shutdown", server(1053), onlyonce.CodeStoreUnavailable, onlyonce.CodeUncertain},
		{"statement timeout", server(1969), onlyonce.CodeStoreUnavailable, onlyonce.CodeUncertain},
		{"the group could not be asked", server(3100), onlyonce.CodeStoreUnavailable, onlyonce.CodeUncertain},
		{"killed", server(1927), onlyonce.CodeStoreUnavailable, onlyonce.CodeUncertain},
		{"interrupted", server(1317), onlyonce.CodeStoreUnavailable, onlyonce.CodeUncertain},
		{"duplicate", server(1062), onlyonce.CodeStoreUnavailable, onlyonce.CodeStoreUnavailable},
		{"read-only", server(1290), onlyonce.CodeStoreUnavailable, onlyonce.CodeStoreUnavailable},
		{"no table", server(1146), onlyonce.CodeStoreUnavailable, onlyonce.CodeStoreUnavailable},
		{"connection lost", mysql.ErrInvalidConn, onlyonce.CodeStoreUnavailable, onlyonce.CodeUncertain},
		{"nothing was written", driver.ErrBadConn, onlyonce.CodeStoreUnavailable, onlyonce.CodeStoreUnavailable},
		{"packet too large", mysql.ErrPktTooLarge, onlyonce.CodeStoreUnavailable, onlyonce.CodeStoreUnavailable},
		{"context", context.Canceled, "", onlyonce.CodeUncertain},
		{"waited for a connection", &notSentError{err: context.DeadlineExceeded}, "", ""},
		{"no connection", &notSentError{err: errors.New("refused"), unreachable: true}, onlyonce.CodeUnreachable, onlyonce.CodeUnreachable},
		{"classified", &onlyonce.Error{Code: onlyonce.CodeTxEnded}, onlyonce.CodeTxEnded, onlyonce.CodeTxEnded},
	} {
		for f, want := range map[fate]onlyonce.Code{undone: tt.undone, committing: tt.committing} {
			if err := classify("op", tt.err, f); onlyonce.CodeOf(err) != want || (want != onlyonce.CodeUnreachable && !errors.Is(err, tt.err)) {
				t.Errorf("%s (%d): %v, want %q", tt.name, f, err, want)
			}
		}
	}
	if err := classify("op", nil, committing); err != nil {
		t.Errorf("no error: %v", err)
	}
}

// C11: a server that has too much to do is not out of reach, nor is one that lets nobody
// in, nor one that the caller would not wait for.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx  context.Context //nolint:containedctx // a table of a test
		err  error
		code onlyonce.Code
	}{
		{t.Context(), &net.OpError{Op: "dial", Err: errors.New("refused")}, onlyonce.CodeUnreachable},
		{t.Context(), driver.ErrBadConn, onlyonce.CodeUnreachable},
		{t.Context(), mysql.ErrInvalidConn, onlyonce.CodeUnreachable},
		{t.Context(), &mysql.MySQLError{Number: 1053}, onlyonce.CodeUnreachable},
		{t.Context(), &mysql.MySQLError{Number: 1040}, onlyonce.CodeStoreUnavailable},
		{t.Context(), &mysql.MySQLError{Number: 1044}, onlyonce.CodeStoreUnavailable},
		{t.Context(), &mysql.MySQLError{Number: 1045}, onlyonce.CodeStoreUnavailable},
		{t.Context(), &mysql.MySQLError{Number: 1049}, onlyonce.CodeStoreUnavailable},
		{t.Context(), mysql.ErrNoTLS, onlyonce.CodeStoreUnavailable},
		{over, driver.ErrBadConn, onlyonce.CodeStoreUnavailable},
		{over, context.Canceled, ""},
	} {
		if err := classify("op", noConnection(tt.ctx, tt.err), committing); onlyonce.CodeOf(err) != tt.code {
			t.Errorf("%v: %v, want %q", tt.err, err, tt.code)
		}
	}
}
