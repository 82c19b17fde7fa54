package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
)

// Numbers of the states in the tables.
const (
	inProgress int16 = iota + 1
	completed
	failedRetryable
	inDoubt
)

// Numbers of the states of steps.
const (
	stepBegun int16 = iota + 1
	stepDone
	stepNotApplied
)

func stateOf(n int16) (onlyonce.State, error) {
	switch n {
	case inProgress:
		return onlyonce.InProgress, nil
	case completed:
		return onlyonce.Completed, nil
	case failedRetryable:
		return onlyonce.FailedRetryable, nil
	case inDoubt:
		return onlyonce.InDoubt, nil
	default:
		return "", fmt.Errorf("decode state: %d is none", n)
	}
}

// numberOf is a state's number; 0 for none.
func numberOf(s onlyonce.State) int16 {
	switch s {
	case onlyonce.InProgress:
		return inProgress
	case onlyonce.Completed:
		return completed
	case onlyonce.FailedRetryable:
		return failedRetryable
	case onlyonce.InDoubt:
		return inDoubt
	default:
		return 0
	}
}

// keyRow receives keyColumns and the time they were read.
type keyRow struct {
	rec                        onlyonce.Record
	state, abandon             int16
	takenFrom                  int16
	status                     *int16
	sum, attempt, header, body []byte
	retention                  int64
	completed, expires         *time.Time
	now                        time.Time
}

func (r *keyRow) dest() []any {
	rec := &r.rec
	return []any{
		&rec.Key.Scope, &rec.Key.Value, &rec.Operation,
		&rec.Fingerprint.Version.Form, &rec.Fingerprint.Version.Secret, &rec.Fingerprint.Version.Policy,
		&r.sum, &rec.Fingerprint.Parts, &r.state, &rec.Fence, &rec.Origin,
		&r.attempt, &rec.Attempts, &r.takenFrom, &r.abandon, &rec.Reason, &r.status, &r.header, &r.body,
		&r.retention, &rec.CreatedAt, &rec.LeaseEnd, &r.completed, &r.expires,
		&rec.Resource, &rec.Holds, &r.now,
	}
}

// record puts together what was scanned.
func (r *keyRow) record() (onlyonce.Record, error) {
	rec := r.rec
	var err error
	if rec.State, err = stateOf(r.state); err != nil {
		return rec, err
	}
	if len(r.sum) != len(rec.Fingerprint.Sum) || len(r.attempt) != len(rec.Attempt) {
		return rec, fmt.Errorf("decode record: fingerprint of %d and token of %d bytes", len(r.sum), len(r.attempt))
	}
	copy(rec.Fingerprint.Sum[:], r.sum)
	copy(rec.Attempt[:], r.attempt)
	rec.Abandon = onlyonce.Abandon(r.abandon)
	rec.Retention = duration(r.retention)
	rec.CreatedAt, rec.LeaseEnd = rec.CreatedAt.UTC(), rec.LeaseEnd.UTC()
	if r.completed != nil {
		rec.CompletedAt = r.completed.UTC()
	}
	if r.expires != nil {
		rec.ExpiresAt = r.expires.UTC()
	}
	if r.status == nil {
		return rec, nil
	}
	if r.header == nil && !rec.Expired(r.now) {
		return rec, fmt.Errorf("decode record: the answer of %s is not where its row says", rec.Key.Operation())
	}
	rec.Answer, err = r.answer()
	return rec, err
}

func (r *keyRow) answer() (*onlyonce.Answer, error) {
	header, err := onlyonce.DecodeHeader(r.header)
	if err != nil {
		return nil, err
	}
	return &onlyonce.Answer{Status: int(*r.status), Header: header, Body: r.body, NotRetained: r.body == nil}, nil
}

// stmt is one statement of ours: what goes in, and where its first row goes.
type stmt struct {
	sql  text
	args []any
	dest []any
	// each is called behind every row that was put there; nil: there is one at
	// most.
	each func() error
	// found is set when there was a row.
	found bool
}

// queue adds the statement to a batch.
func (st *stmt) queue(b *pgx.Batch, f form) {
	q := b.Queue(st.sql.in(f), st.args...)
	if st.each != nil {
		q.Query(st.readAll)
		return
	}
	q.QueryRow(st.read)
}

// on runs the statement by itself.
func (st *stmt) on(ctx context.Context, conn *pgxpool.Conn, f form) error {
	if st.each == nil {
		return st.read(conn.QueryRow(ctx, st.sql.in(f), st.args...))
	}
	rows, err := conn.Query(ctx, st.sql.in(f), st.args...)
	if err != nil {
		return err
	}
	return st.readAll(rows)
}

// readAll scans the rows, one after the other.
func (st *stmt) readAll(rows pgx.Rows) error {
	_, err := pgx.ForEachRow(rows, st.dest, func() error {
		st.found = true
		return st.each()
	})
	return err
}

// read scans the row, if there is one.
func (st *stmt) read(row pgx.Row) error {
	err := row.Scan(st.dest...)
	if err == pgx.ErrNoRows { //nolint:errorlint // Scan returns it as it is; a wrapped one would be something else
		return nil
	}
	st.found = err == nil
	return err
}

// readStmt reads a key into row.
func (s *Store) readStmt(d onlyonce.Digest, row *keyRow) *stmt {
	return &stmt{sql: s.sql.readKey, args: []any{d[:], s.now()}, dest: row.dest()}
}

// reading is a record as it was read.
type reading struct {
	onlyonce.Record
	// from is the state its owner resumed it from, if it did.
	from onlyonce.State
	// now is the time to judge it by.
	now time.Time
}

// found makes a record of the row that st has read under key; nil if there was
// none.
func (r *keyRow) found(st *stmt, key onlyonce.Key) (*reading, error) {
	if !st.found {
		return nil, nil
	}
	return r.of(key)
}

// of makes a record of the row that was read under key. Another key under the same
// digest is an error, never a match.
func (r *keyRow) of(key onlyonce.Key) (*reading, error) {
	read, err := r.reading()
	if err == nil && read.Key != key {
		return nil, fmt.Errorf("read key %s: the row under its digest belongs to another key", key.Operation())
	}
	return read, err
}

// holder makes a record of the row that holds the digest of the scope's resource.
// Another resource under the same digest is an error: it is not known to be busy.
func (r *keyRow) holder(scope, resource string) (*reading, error) {
	read, err := r.reading()
	if err == nil && (read.Key.Scope != scope || read.Resource != resource) {
		return nil, fmt.Errorf("read holder of a resource: the row under its digest, of %s, names another", read.Key.Operation())
	}
	return read, err
}

func (r *keyRow) reading() (*reading, error) {
	rec, err := r.record()
	if err != nil {
		return nil, err
	}
	read := &reading{Record: rec, now: r.now}
	if r.takenFrom != 0 {
		read.from, err = stateOf(r.takenFrom)
	}
	return read, err
}
