// Package pgerr makes of what the PostgreSQL driver reports one of the errors of
// the store contract: a conflict, an unknown outcome, or that nothing happened.
package pgerr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/reach"
)

// SQLSTATEs that decide something.
const (
	Serialization       = "40001"
	Unknown             = "40003" // statement_completion_unknown
	Deadlock            = "40P01"
	LockTimeout         = "55P03"
	Aborted             = "25P02" // a statement before failed
	Idle                = "25P03" // idle_in_transaction_session_timeout
	Unique              = "23505"
	Division            = "22012"
	NoTable             = "42P01"
	NoColumn            = "42703"
	NoSchema            = "3F000"
	Permission          = "42501"
	BadPassword         = "28P01"
	NoEntry             = "28000" // no such role, or pg_hba.conf has no line for it
	NoDatabase          = "3D000"
	TooMany             = "53300"
	ShuttingDown        = "57P01"
	Crashed             = "57P02"
	NotYet              = "57P03" // starting up, shutting down, recovering
	classConnection     = "08"
	classOperatorAction = "57P" // shut down, terminated, crashed
)

// Fate is what an error may have left behind.
type Fate int

// The fates.
const (
	// Undone: reads, and statements of a transaction whose COMMIT has not been
	// sent: whatever became of them, nothing is left.
	Undone Fate = iota
	// Committing: the statement commits by itself, or COMMIT was sent with it.
	Committing
)

// Classify makes a driver's error one of the store contract's three: nothing
// happened and it may be repeated (ErrConflict), it may have happened
// (ErrUncertain), or it did not happen, and of that the case that the server
// could not be reached at all (ErrUnreachable). It goes by what the server said
// (SQLSTATE) and by whether anything was sent, never by text. rows are the indexes
// of the store's own rows: whoever finds one of them taken has met a conflict.
func Classify(op string, err error, f Fate, rows ...string) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*onlyonce.Error](err); ok && e.Op == op {
		return err
	}
	if e, ok := errors.AsType[*NotSentError](err); ok && e.Unreachable {
		return &onlyonce.Error{
			Code: onlyonce.CodeUnreachable, Op: op, Err: e.Err,
			Hint: "no connection could be made, nothing was sent: look at the address, the server and its log",
		}
	}
	if Conflict(err, rows...) {
		return &onlyonce.Error{Code: onlyonce.CodeConflict, Op: op, Err: err}
	}
	if f == Committing && uncertain(err) {
		return &onlyonce.Error{
			Code: onlyonce.CodeUncertain, Op: op, Err: err,
			Hint: "the server's reply was lost; repeat it with the same attempt token",
		}
	}
	if hint := hintFor(err); hint != "" {
		return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Hint: hint, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}

// Conflict tells whether a concurrent transaction stood in the way. rows are those
// of Classify.
func Conflict(err error, rows ...string) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch e.Code {
	case Serialization, Deadlock, LockTimeout, Aborted:
		return true
	case Unique:
		return slices.Contains(rows, e.ConstraintName)
	default:
		return false
	}
}

// uncertain tells whether a statement that was to commit may have done so. An
// ordinary error is the server's word that it did not. A fatal one may come
// behind the commit, and silence says nothing.
func uncertain(err error) bool {
	if _, ok := errors.AsType[*NotSentError](err); ok {
		return false
	}
	// A connection that turns out to be closed calls itself safe to retry, even
	// when it was closed by reading the reply. Whether it was closed before
	// is therefore looked at before sending (usable).
	if !errors.Is(err, pgconn.ErrConnClosed) && pgconn.SafeToRetry(err) {
		return false
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true
	}
	fatal := e.SeverityUnlocalized != "ERROR" && (e.SeverityUnlocalized != "" || e.Severity != "ERROR")
	switch {
	case e.Code == Idle:
		return false // it ended before the COMMIT came
	case e.Code == Unknown, strings.HasPrefix(e.Code, classConnection), strings.HasPrefix(e.Code, classOperatorAction):
		return true
	default:
		return fatal
	}
}

// hintFor tells people what to do about errors they are likely to meet.
func hintFor(err error) string {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return ""
	}
	switch e.Code {
	case BadPassword, NoEntry:
		return "the server lets nobody in under this name: look at user and password, at the role's LOGIN and at pg_hba.conf"
	case TooMany:
		return "the server has too many connections: make pools smaller, or raise max_connections"
	case NoDatabase:
		return "the server has no such database: look at the URL, or create it"
	case NoTable, NoSchema:
		return "the tables are not there: run Migrate as a role that may create them, or set Schema"
	case NoColumn:
		return "the tables are older than this program: run Migrate as a role that may change them"
	case Permission:
		return "the role needs SELECT, INSERT, UPDATE and DELETE on the onlyonce tables"
	default:
		return ""
	}
}

// NotSentError marks that no statement was sent, for errors that do not say so
// themselves: no free connection, or one that was closed already.
type NotSentError struct {
	Err error
	// Unreachable: a connection was to be made, and could not be.
	Unreachable bool
}

// Error is the reason's text.
func (e *NotSentError) Error() string { return e.Err.Error() }

// Unwrap is the reason.
func (e *NotSentError) Unwrap() error { return e.Err }

// NoConnection is the error of taking a connection out of the pool. The server is out
// of reach when making one has failed because of the network, or because the server
// says that it starts or shuts down. It is not when the caller would not wait, and not
// when somebody was there and refused: a wrong password, no such database, no TLS, a
// server that has too much to do.
func NoConnection(ctx context.Context, err error) error {
	return &NotSentError{Err: err, Unreachable: ctx.Err() == nil && outOfReach(err)}
}

// outOfReach tells whether no connection could be made because nobody was there. A
// server may be tried at several addresses, and with and without TLS: what any of them
// has said counts, and only silence of all of them is silence.
func outOfReach(err error) bool {
	failed, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return false
	}
	silent, down := true, false
	for _, one := range reach.Each(failed) {
		if e, said := errors.AsType[*pgconn.PgError](one); said {
			down = e.Code == NotYet || e.Code == ShuttingDown || e.Code == Crashed
			if !down {
				return false
			}
		}
		// The time to connect is over before a caller's that would have waited longer.
		silent = silent && (reach.Failed(one) || errors.Is(one, context.DeadlineExceeded))
	}
	return silent || down
}

// NotUnique tells whether the server refused a row because of this index.
func NotUnique(err error, index string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == Unique && e.ConstraintName == index
}

// HasState tells whether the server answered with this SQLSTATE.
func HasState(err error, state string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == state
}
