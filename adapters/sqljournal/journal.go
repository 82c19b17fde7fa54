package sqljournal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// What is done, for errors.
const (
	opOpen    = "open journal"
	opBegin   = "begin entry"
	opLock    = "lock entry"
	opSave    = "save entry"
	opUnlock  = "unlock entry"
	opPending = "list entries"
	opPrune   = "prune entries"
)

// Journal is a journal in a table. Any number of them, in any number of processes, may
// have the same one. It does not close its pool. It is safe for concurrent use.
type Journal struct {
	db  *sql.DB
	cfg Config
	sql queries
}

var _ onceclient.Journal = (*Journal)(nil)

// New makes a journal over a pool of the caller's, which stays the caller's to close.
// It returns CodeConfig where commits would not be durable, values not exact or the
// tables of another version, with a hint, and CodeStoreUnavailable when the database
// does not answer.
func New(ctx context.Context, db *sql.DB, cfg Config) (*Journal, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	j := &Journal{db: db, cfg: cfg.WithDefaults(), sql: queriesOf(cfg.Dialect)}
	if err := j.checkSession(ctx); err != nil {
		return nil, err
	}
	if err := j.prepareTables(ctx); err != nil {
		return nil, err
	}
	return j, nil
}

// Begin implements [onceclient.Journal]. An entry without a State is Open. After an
// error it may have been recorded, if the error is CodeUncertain or a context's: Begin
// again then gives what stands, and it has the key of the first.
func (j *Journal) Begin(ctx context.Context, e onceclient.Entry) (onceclient.Entry, bool, error) {
	e, err := checked(opBegin, e)
	if err != nil {
		return onceclient.Entry{}, false, err
	}
	maker := onlyonce.NewToken()
	for {
		if _, err := j.exec(ctx, opBegin, j.sql.begin, columns(e, maker)...); err != nil {
			return onceclient.Entry{}, false, err
		}
		r, err := j.get(ctx, opBegin, e.Intent)
		if errors.Is(err, sql.ErrNoRows) {
			continue // it had ended, and was pruned in between
		}
		return r.Entry, r.madeBy(maker), err
	}
}

// get reads an entry; sql.ErrNoRows: there is none.
func (j *Journal) get(ctx context.Context, op, intent string) (row, error) {
	r, err := scan(j.db.QueryRowContext(ctx, j.sql.get, intent))
	if err != nil {
		return row{}, failRead(op, err)
	}
	return r, nil
}

// Lock implements [onceclient.Journal]. The lock is a lease by the database's clock: a
// goroutine, which Unlock ends, renews it, and Config.Lease after its process was killed
// the entry is free.
func (j *Journal) Lock(ctx context.Context, intent string) (onceclient.Lock, onceclient.Entry, error) {
	token := onlyonce.NewToken()
	l := &lock{j: j, intent: intent, token: token}
	if _, err := j.exec(ctx, opLock, j.sql.lock, token[:], j.lease(), intent); err != nil {
		return nil, onceclient.Entry{}, errors.Join(err, l.abandon(ctx, err))
	}
	r, err := j.get(ctx, opLock, intent)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, onceclient.Entry{}, fmt.Errorf("%s: %w", opLock, onceclient.ErrNoEntry)
	case err != nil:
		return nil, onceclient.Entry{}, errors.Join(err, l.letGo(context.WithoutCancel(ctx)))
	case !r.lockedBy(token):
		return nil, onceclient.Entry{}, fmt.Errorf("%s: %w", opLock, onceclient.ErrLocked)
	}
	l.start(context.WithoutCancel(ctx))
	return l, r.Entry, nil
}

func (j *Journal) lease() int64 { return j.cfg.Lease.Microseconds() }

// Pending implements [onceclient.Journal]. After an intent that there is no entry of is
// the beginning.
func (j *Journal) Pending(ctx context.Context, after string, limit int) ([]string, error) {
	created := int64(math.MinInt64)
	err := j.db.QueryRowContext(ctx, j.sql.created, after).Scan(&created)
	if errors.Is(err, sql.ErrNoRows) {
		after, err = "", nil
	}
	if err != nil {
		return nil, failRead(opPending, err)
	}
	rows, err := j.db.QueryContext(ctx, j.sql.pending, created, created, after, max(limit, 0))
	if err != nil {
		return nil, failRead(opPending, err)
	}
	defer rows.Close()
	var intents []string
	for rows.Next() {
		var intent string
		if err := rows.Scan(&intent); err != nil {
			return nil, failRead(opPending, err)
		}
		intents = append(intents, intent)
	}
	if err := rows.Err(); err != nil {
		return nil, failRead(opPending, err)
	}
	return intents, nil
}

// Prune implements [onceclient.Journal].
func (j *Journal) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	n, err := j.exec(ctx, opPrune, j.sql.prune, before.UnixMicro(), limit)
	return int(n), err
}
