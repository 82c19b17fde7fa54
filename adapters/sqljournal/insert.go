package sqljournal

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// Execer runs a statement; *sql.Tx and *sql.Conn do.
type Execer interface {
	// ExecContext runs a statement that gives no rows.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Insert is the statement that records an entry, for a transaction of the caller's own:
// of any driver, a pgx.Tx too. What the caller writes there and the entry commit
// together. If it rolls back there is no entry, and nothing is ever sent; when it has
// committed, the client's Do with the entry's intent sends it, and Resume does if this
// process dies before. Nothing must be sent before the commit, and the entry counts no
// attempt: so a refusal of the first, or that it could not leave, is proved. A Do that
// proves that nothing has left ends the entry (onceclient.NotSentError), and the caller
// says what becomes of what it has committed: another Do, or its undoing. Resume leaves
// such an entry open for the next one.
//
// The statement fails, and with it the transaction, if there is an entry of the intent.
// An entry that no journal takes is CodeInvalidRequest.
func (j *Journal) Insert(e onceclient.Entry) (statement string, args []any, err error) {
	e, err = checked("insert entry", e)
	if err != nil {
		return "", nil, err
	}
	return j.sql.insert, columns(e, onlyonce.NewToken()), nil
}

// InsertTx runs the statement of [Journal.Insert] in a transaction of database/sql. The
// caller commits it, or rolls it back after an error.
func (j *Journal) InsertTx(ctx context.Context, tx Execer, e onceclient.Entry) error {
	statement, args, err := j.Insert(e)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
		return fmt.Errorf("insert entry: %w", err)
	}
	return nil
}
