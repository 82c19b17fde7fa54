package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	stateNoColumn       = "42703"
	stateNoSchema       = "3F000"
	statePermission     = "42501"
	classConnection     = "08"
	classResources      = "53"  // too many connections, out of memory
	classOperatorAction = "57P" // shut down, terminated, crashed
)

// What makes digests of keys, held resources and steps unique.
const (
	keysIndex  = "onlyonce_keys_pkey"
	holdsIndex = "onlyonce_keys_holds"
	stepsIndex = "onlyonce_steps_pkey"
)

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
// (ErrUncertain), or it did not happen, and of that the case that the server
// could not be reached at all (ErrUnreachable). It goes by what the server said
// (SQLSTATE) and by whether anything was sent, never by text.
func classify(op string, err error, f fate) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*onlyonce.Error](err); ok && e.Op == op {
		return err
	}
	if e, ok := errors.AsType[*notSentError](err); ok && e.unreachable {
		return &onlyonce.Error{
			Code: onlyonce.CodeUnreachable, Op: op, Err: e.err,
			Hint: "no connection could be made, nothing was sent: look at the address, the server and its log",
		}
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
	case e.Code == stateUnknown, strings.HasPrefix(e.Code, classConnection), strings.HasPrefix(e.Code, classOperatorAction):
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
	case stateNoColumn:
		return "the tables are older than this program: run Migrate as a role that may change them"
	case statePermission:
		return "the role needs SELECT, INSERT, UPDATE and DELETE on the onlyonce tables"
	default:
		return ""
	}
}

// notSentError marks that no statement was sent, for errors that do not say so
// themselves: no free connection, or one that was closed already.
type notSentError struct {
	err error
	// unreachable: a connection was to be made, and could not be.
	unreachable bool
}

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

// noConnection is the error of taking a connection out of the pool. The server
// is out of reach when making one has failed: refused, no such name, TLS, no
// entry. It is not when the caller would not wait, or when the server is there
// and says that it has too much to do, which is what a busy pool says.
func noConnection(ctx context.Context, err error) error {
	_, failed := errors.AsType[*pgconn.ConnectError](err)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(e.Code, classResources) {
		failed = false
	}
	return &notSentError{err: err, unreachable: failed && ctx.Err() == nil}
}

// lostResource tells whether another key was faster to take hold of a resource.
func lostResource(err error) bool { return notUnique(err, holdsIndex) }

// notUnique tells whether the server refused a row because of this index.
func notUnique(err error, index string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == stateUnique && e.ConstraintName == index
}

// hasState tells whether the server answered with this SQLSTATE.
func hasState(err error, state string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == state
}
