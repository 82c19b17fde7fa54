package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/reach"
)

// Error numbers that decide something here. SQLSTATE does not tell them apart.
const (
	numAccessDenied   = 1044
	numBadPassword    = 1045
	numSyntax         = 1064
	numUnknownVar     = 1193
	numWrongValue     = 1231
	numWrongType      = 1232
	numReadOnlyVar    = 1238
	numUnknownCommand = 1047 // Galera: the node is not in the primary component
	numBadDatabase    = 1049
	numShutdown       = 1053
	numDuplicate      = 1062
	numNoColumn       = 1054
	numTooMany        = 1040
	numCommandDenied  = 1142
	numNoTable        = 1146
	numPacketTooLarge = 1153
	numCommitFailed   = 1180
	numTooManyForUser = 1203
	numLockTimeout    = 1205
	numDeadlock       = 1213
	numReadOnly       = 1290 // super_read_only, read_only
	numNoSavepoint    = 1305
	numInterrupted    = 1317
	numTooLong        = 1406
	numChangedSince   = 1020 // MariaDB: innodb_snapshot_isolation
	numTooManyTrx     = 1637
	numReadOnlyTrx    = 1792
	numReadOnlyMode   = 1836
	numKilled         = 1927 // MariaDB: KILL CONNECTION
	numTimeout        = 1969 // MariaDB: max_statement_time
	numGroupHook      = 3100 // group replication: the group could not be asked, or not waited for
	numGroupConflict  = 3101 // group replication rolled the transaction back
)

// fate is what an error may have left behind.
type fate int

const (
	// undone: reads, and statements of a transaction whose COMMIT has not been sent:
	// whatever became of them, nothing is left.
	undone fate = iota
	// committing: a COMMIT, or a statement that commits by itself.
	committing
)

// number is the server's error number in err's chain; 0: there is none.
func number(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// classify makes a driver's error one of the store contract's three: nothing
// happened and it may be repeated (ErrConflict), it may have happened
// (ErrUncertain), or it did not happen, and of that the case that the server could
// not be reached at all (ErrUnreachable). It goes by what the server said and by
// whether anything was sent, never by text.
func classify(op string, err error, f fate) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*onlyonce.Error](err); ok {
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
			Hint: "the server's word on it is missing; repeat it with the same attempt token",
		}
	}
	if isContext(err) {
		return fmt.Errorf("%s: %w", op, err)
	}
	return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Hint: hintFor(err), Err: err}
}

// conflict tells whether a concurrent transaction stood in the way, and nothing is
// left. After 1213 the whole transaction is rolled back, after 1205 the statement;
// we end the transaction either way.
func conflict(err error) bool {
	switch number(err) {
	case numDeadlock, numLockTimeout, numGroupConflict, numChangedSince, numTooManyTrx:
		return true
	default:
		return false
	}
}

// rolledBack tells whether the error is the server's word that it has rolled back the
// whole transaction.
func rolledBack(err error) bool {
	switch number(err) {
	case numDeadlock, numGroupConflict, numChangedSince:
		return true
	default:
		return false
	}
}

// uncertain tells whether what was to commit may have done so. The server's error is
// its word that it did not, but for those that may come while a commit is under way.
// Silence says nothing.
func uncertain(err error) bool {
	if _, ok := errors.AsType[*notSentError](err); ok {
		return false
	}
	switch number(err) {
	case 0:
		return !errors.Is(err, driver.ErrBadConn) && !errors.Is(err, mysql.ErrPktTooLarge) &&
			!errors.Is(err, sql.ErrTxDone) && !errors.Is(err, sql.ErrNoRows)
	case numCommitFailed, numUnknownCommand, numShutdown, numInterrupted, numKilled, numPacketTooLarge,
		numTimeout, numGroupHook:
		return true
	default:
		return false
	}
}

// hintFor tells people what to do about errors they are likely to meet.
func hintFor(err error) string {
	if errors.Is(err, mysql.ErrPktTooLarge) {
		return "the answer does not fit into one packet: raise the server's max_allowed_packet, or keep answers smaller"
	}
	switch number(err) {
	case numNoTable, numNoColumn:
		return "the tables are not there or older than this program: run Migrate as a user that may create them"
	case numCommandDenied:
		return "the user needs SELECT, INSERT, UPDATE and DELETE on the onlyonce tables"
	case numBadPassword:
		return "the server lets nobody in under this name: look at user and password, and from where the user may come"
	case numAccessDenied, numBadDatabase:
		return "the server has no such database, or not for this user: look at the URL, at grants, or create it"
	case numTooMany, numTooManyForUser:
		return "the server has too many connections: make pools smaller, or raise max_connections"
	case numReadOnly, numReadOnlyTrx, numReadOnlyMode:
		return "the server is read-only: it is a replica, or has become one; connect to the primary"
	case numUnknownCommand:
		return "the node is not part of its Galera cluster at the moment: use another one"
	case numTooLong:
		return "a value is longer than its column: nothing was cut off, nothing was stored"
	default:
		return ""
	}
}

// refusesSettings tells whether a session could not be set up as the URL says.
func refusesSettings(err error) bool {
	switch number(err) {
	case numSyntax, numUnknownVar, numWrongValue, numWrongType, numReadOnlyVar:
		return true
	default:
		return false
	}
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// lockTimeout tells whether a transaction that is still open kept a row for as long
// as we were ready to wait.
func lockTimeout(err error) bool { return number(err) == numLockTimeout }

// duplicate tells whether a row was refused because its key is there already.
func duplicate(err error) bool { return number(err) == numDuplicate }

// notSentError marks that no statement was sent: no free connection, or one that was
// closed already.
type notSentError struct {
	err error
	// unreachable: a connection was to be made, and could not be.
	unreachable bool
}

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

// noConnection is the error of taking a connection out of the pool. The server is out
// of reach when making one has failed because of the network, or because the server is
// shutting down. It is not when the caller would not wait, and not when somebody was
// there and refused: a wrong password, no such database, no TLS, a server that has too
// much to do.
func noConnection(ctx context.Context, err error) error {
	return &notSentError{err: err, unreachable: ctx.Err() == nil && outOfReach(err)}
}

// outOfReach tells whether no connection could be made because nobody was there. The
// driver does not say why a connection broke on which it was about to sign in.
func outOfReach(err error) bool {
	return reach.Failed(err) || number(err) == numShutdown ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn)
}
