package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Due gives keys whose turn has come and puts their next turn off, in one write
// transaction: of several recoverers, in any processes, each turn goes to one. It
// looks first without a lock: with nothing due it waits for nobody. A crash
// behind it costs a turn, not the key: the next one comes after its pause.
func (s *Store) Due(ctx context.Context, req onlyonce.DueRequest) ([]onlyonce.Due, error) {
	const op = "give turns"
	if err := req.Validate(); err != nil {
		return nil, err
	}
	now := s.now()
	var some bool
	if err := s.readPool().QueryRowContext(ctx, anyDue, dueAt(req, now), now.UnixMicro(), operations(req)).Scan(&some); err != nil {
		return nil, s.fail(op, err)
	}
	if !some {
		return nil, nil
	}
	var given []onlyonce.Due
	err := s.write(ctx, op, func(ctx context.Context, q querier) error {
		var err error
		given, err = giveTurns(ctx, q, req, s.now())
		return err
	})
	if err != nil {
		return nil, err
	}
	return given, nil
}

// dueAt is when a turn must have come at the latest.
func dueAt(req onlyonce.DueRequest, now time.Time) int64 {
	return now.UnixMicro() - micros(req.Grace)
}

// operations are those asked for as JSON; NULL: all.
func operations(req onlyonce.DueRequest) any {
	if req.Operations == nil {
		return nil
	}
	names, err := json.Marshal(req.Operations)
	if err != nil {
		return "[]" // strings
	}
	return string(names)
}

// giveTurns reads what is due and puts it off.
func giveTurns(ctx context.Context, q querier, req onlyonce.DueRequest, now time.Time) ([]onlyonce.Due, error) {
	given, err := readDue(ctx, q, req, now)
	if err != nil {
		return nil, err
	}
	for i := range given {
		d := &given[i]
		d.Turn++
		next := now.UnixMicro() + micros(req.Until(d.Turn))
		if err := changedOne(exec(ctx, q, putOff, ownerArgs(d.Record.Owner(), d.Turn, next)...)); err != nil {
			return nil, err
		}
	}
	return given, nil
}

// readDue reads what is due, with the turns that were given before.
func readDue(ctx context.Context, q querier, req onlyonce.DueRequest, now time.Time) ([]onlyonce.Due, error) {
	rows, err := q.QueryContext(ctx, selectDue, dueAt(req, now), now.UnixMicro(), operations(req), req.Limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []onlyonce.Due
	for rows.Next() {
		var d onlyonce.Due
		row, err := scanKey(rows, &d.Keep, &d.Turn)
		if err != nil {
			return nil, err
		}
		d.Record, d.Keep = row.Record, blob(d.Keep)
		found = append(found, d)
	}
	return found, rows.Err()
}

// Kept reads what was kept with the key's present life; false if nothing is, or
// the record has expired. It takes no lock.
func (s *Store) Kept(ctx context.Context, key onlyonce.Key) ([]byte, bool, error) {
	digest := key.Digest()
	var keep []byte
	err := s.readPool().QueryRowContext(ctx, selectKept, digest[:], key.Scope, key.Value, s.now().UnixMicro()).Scan(&keep)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, s.fail("read what is kept", err)
	}
	return blob(keep), true, nil
}

// Requeue makes the key's next turn the first again, and due at once, whatever
// the grace. It returns false when nothing is kept, or the record has expired.
// An attempt in progress is not disturbed: its key is due when its lease is over.
func (s *Store) Requeue(ctx context.Context, key onlyonce.Key) (bool, error) {
	digest := key.Digest()
	var found bool
	err := s.write(ctx, "requeue key", func(ctx context.Context, q querier) error {
		n, err := exec(ctx, q, requeueKey, digest[:], key.Scope, key.Value, s.now().UnixMicro())
		found = n == 1
		return err
	})
	return found && err == nil, err
}
