package portable

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// asynchronous is what a connection is marked by whose commits are confirmed before
// they are durable; without the mark nobody has looked yet.
const asynchronous = "github.com/onlyonce-go/onlyonce/adapters/pgstore/portable.asynchronous"

// beginOn is what a transaction begins with on a connection: one whose session does
// without synchronous commits does not do without them in our transactions. Each
// connection is asked once, in a round trip more.
func (s *Store) beginOn(ctx context.Context, conn *pgxpool.Conn) (string, error) {
	marks := conn.Conn().PgConn().CustomData()
	off, asked := marks[asynchronous].(bool)
	if !asked {
		var err error
		if off, err = isAsynchronous(ctx, conn.Conn().PgConn()); err != nil {
			return "", err
		}
		marks[asynchronous] = off
	}
	if off {
		return s.beginSQL + "; SET LOCAL synchronous_commit = on", nil
	}
	return s.beginSQL, nil
}

// classIntervention is of errors that say nothing of a statement: it was cancelled, or the
// server is going down.
const classIntervention = "57"

// isAsynchronous asks a session. An engine that has no such parameter refuses to tell,
// and commits in one way only.
func isAsynchronous(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	results, err := conn.Exec(ctx, "SHOW synchronous_commit").ReadAll()
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && !strings.HasPrefix(e.Code, classIntervention) {
		return false, nil
	}
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
		return false, err
	}
	return string(results[0].Rows[0][0]) == "off", nil
}
