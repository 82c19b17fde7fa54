package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/onlyonce-go/onlyonce"
)

func configError(field, format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "check configuration", Hint: field + " " + fmt.Sprintf(format, args...)}
}

// resultCode is SQLite's extended result code in err's chain.
func resultCode(err error) (code int, ok bool) {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return 0, false
	}
	return e.Code(), true
}

// primary is the primary result code: the low byte of an extended one.
func primary(code int) int { return code & 0xff }

func isBusy(err error) bool {
	code, ok := resultCode(err)
	return ok && primary(code) == sqlite3.SQLITE_BUSY
}

// isConflict tells whether a concurrent transaction of the same file is the
// cause, so that all of the transaction must be repeated: a read snapshot that
// is too old to be written from, a table locked by another statement.
func isConflict(err error) bool {
	code, ok := resultCode(err)
	return ok && (code == sqlite3.SQLITE_BUSY_SNAPSHOT || primary(code) == sqlite3.SQLITE_LOCKED)
}

// fail classifies an error of anything but a commit: nothing has happened.
// Errors that are classified already, and those of a context, keep their kind.
func (s *Store) fail(op string, err error) error {
	if _, ok := errors.AsType[*onlyonce.Error](err); ok {
		return err
	}
	if isContext(err) {
		return fmt.Errorf("%s: %w", op, err)
	}
	if isConflict(err) {
		return &onlyonce.Error{Code: onlyonce.CodeConflict, Op: op, Err: err}
	}
	return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Hint: s.hint(err), Err: err}
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// hint says what to do about a result code, for people.
func (s *Store) hint(err error) string {
	code, ok := resultCode(err)
	if code == sqlite3.SQLITE_CONSTRAINT_COMMITHOOK || errors.Is(err, sql.ErrTxDone) || errors.Is(err, errEnded) {
		return "return every error of a statement from fn, and leave the transaction's end to the store"
	}
	if !ok {
		return ""
	}
	switch primary(code) {
	case sqlite3.SQLITE_BUSY:
		return fmt.Sprintf("another process has held the database's write lock for %v: look for long transactions, or raise BusyTimeout", s.busy)
	case sqlite3.SQLITE_FULL:
		return "the disk or the database is full: nothing was written; make room, and it goes on"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return "the database cannot be written: give this process write access to the file and to its folder"
	case sqlite3.SQLITE_CANTOPEN:
		return "the database cannot be opened: its folder must exist, and this process must be able to write there"
	case sqlite3.SQLITE_NOTADB:
		return "the file is not a SQLite database: check the path, or restore it from a backup"
	case sqlite3.SQLITE_CORRUPT:
		return "the database is damaged: stop all processes and restore it from a backup"
	case sqlite3.SQLITE_IOERR:
		return "the disk failed to read or write: look at the system's log, at quotas and free space"
	case sqlite3.SQLITE_NOMEM:
		return "SQLite ran out of memory"
	default:
		return ""
	}
}

// failCommit classifies an error of a commit. Where SQLite refused before the
// commit record was complete, nothing has happened. Anything else may have
// left it in the log, to be found by a recovery.
func (s *Store) failCommit(op string, err error) error {
	code, ok := resultCode(err)
	if !ok {
		if errors.Is(err, sql.ErrTxDone) {
			return s.fail(op, err)
		}
		return &onlyonce.Error{Code: onlyonce.CodeUncertain, Op: op, Err: err}
	}
	switch primary(code) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY,
		sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_ERROR:
		return s.fail(op, err)
	default:
		return &onlyonce.Error{Code: onlyonce.CodeUncertain, Op: op, Hint: s.hint(err), Err: err}
	}
}
