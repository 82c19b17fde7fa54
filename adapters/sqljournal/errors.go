package sqljournal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce"
)

// What decides something here about an error. Drivers for PostgreSQL and SQLite have
// methods to ask it; MySQL's has a type.
type (
	withState interface{ SQLState() string }
	withCode  interface{ Code() int }
)

// Result codes of SQLite.
const (
	sqliteLocked       = 6
	sqliteIOErr        = 10
	sqliteBusySnapshot = 517
)

// Error numbers of MySQL.
const (
	mysqlLockTimeout = 1205
	mysqlDeadlock    = 1213
)

// conflict tells whether a concurrent transaction is the cause, and nothing has
// happened: a deadlock, a serialisation failure, two that make one table at a time.
func conflict(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == mysqlDeadlock || e.Number == mysqlLockTimeout
	}
	var state withState
	if errors.As(err, &state) {
		return slices.Contains([]string{"40001", "40P01", "42P07", "42710", "23505"}, state.SQLState())
	}
	var code withCode
	return errors.As(err, &code) && (code.Code() == sqliteBusySnapshot || code.Code()&0xff == sqliteLocked)
}

// refused tells whether the database itself has said that it did not do it.
func refused(err error) bool {
	if _, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return true
	}
	var state withState
	if errors.As(err, &state) {
		return true
	}
	var code withCode
	return errors.As(err, &code) && code.Code()&0xff != sqliteIOErr
}

// failRead is an error of a statement that changes nothing.
func failRead(op string, err error) error {
	if isContext(err) {
		return fmt.Errorf("%s: %w", op, err)
	}
	return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Err: err}
}

// failWrite is one of a statement that may have been done.
func failWrite(op string, err error) error {
	if isContext(err) || refused(err) {
		return failRead(op, err)
	}
	return &onlyonce.Error{Code: onlyonce.CodeUncertain, Op: op, Hint: "the database may have done it: ask again, and it says", Err: err}
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func configError(hint string) error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: opOpen, Hint: hint}
}

// exec runs a statement by itself, again after a conflict, and says how many rows it
// changed.
func (j *Journal) exec(ctx context.Context, op, statement string, args ...any) (int64, error) {
	const tries = 10
	for try := 1; ; try++ {
		result, err := j.db.ExecContext(ctx, statement, args...)
		if err == nil {
			n, err := result.RowsAffected()
			if err != nil {
				return 0, failWrite(op, err)
			}
			return n, nil
		}
		if try == tries || !conflict(err) || !pause(ctx, try) {
			return 0, failWrite(op, err)
		}
	}
}

// pause waits a random while, longer after each try. It returns false when ctx ended
// first.
func pause(ctx context.Context, try int) bool {
	timer := time.NewTimer(rand.N(time.Duration(try) * 10 * time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
