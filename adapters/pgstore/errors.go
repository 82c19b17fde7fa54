package pgstore

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onlyonce-go/onlyonce"
)

// SQLSTATEs that decide something here.
const (
	stateSerialization  = "40001"
	stateUnknown        = "40003" // statement_completion_unknown
	stateDeadlock       = "40P01"
	stateLockTimeout    = "55P03"
	stateAborted        = "25P02" // a statement before failed
	stateIdle           = "25P03" // idle_in_transaction_session_timeout
	stateUnique         = "23505"
	stateDivision       = "22012"
	stateNoTable        = "42P01"
	stateNoSchema       = "3F000"
	statePermission     = "42501"
	classConnection     = "08"
	classOperatorAction = "57P" // shut down, terminated, crashed
)

// keysIndex is the constraint that makes digests unique.
const keysIndex = "onlyonce_keys_pkey"

// fate is what an error may have left behind.
type fate int

const (
	// undone: reads, and statements of a transaction whose COMMIT has not been
	// sent: whatever became of them, nothing is left.
	undone fate = iota
	// committing: the statement commits by itself, or COMMIT was sent with it.
	committing
)

// classify makes a driver's error one of the store contract's three: nothing
// happened and it may be repeated (ErrConflict), it may have happened
// (ErrUncertain), or it did not happen. It goes by what the server said
// (SQLSTATE) and by whether anything was sent, never by text.
func classify(op string, err error, f fate) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*onlyonce.Error](err); ok && e.Op == op {
		return err
	}
	if conflict(err) {
		return &onlyonce.Error{Code: onlyonce.CodeConflict, Op: op, Err: err}
	}
	if f == committing && uncertain(err) {
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

// conflict tells whether a concurrent transaction stood in the way.
func conflict(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch e.Code {
	case stateSerialization, stateDeadlock, stateLockTimeout, stateAborted:
		return true
	case stateUnique:
		return e.ConstraintName == keysIndex // somebody made the key's row without its lock
	default:
		return false
	}
}

// uncertain tells whether a statement that was to commit may have done so. An
// ordinary error is the server's word that it did not. A fatal one may come
// behind the commit, and silence says nothing.
func uncertain(err error) bool {
	if _, ok := errors.AsType[*notSentError](err); ok {
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
	case e.Code == stateIdle:
		return false // it ended before the COMMIT came
	case e.Code == stateUnknown, e.Code[:2] == classConnection, e.Code[:3] == classOperatorAction:
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
	case stateNoTable, stateNoSchema:
		return "the tables are not there: run Migrate as a role that may create them, or set Schema"
	case statePermission:
		return "the role needs SELECT, INSERT, UPDATE and DELETE on the onlyonce tables"
	default:
		return ""
	}
}

// notSentError marks that no statement was sent, for errors that do not say so
// themselves: no free connection, or one that was closed already.
type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

// hasState tells whether the server answered with this SQLSTATE.
func hasState(err error, state string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == state
}
