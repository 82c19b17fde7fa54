package mysqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/onlyonce-go/onlyonce"
)

// Due gives keys whose turn has come and puts their next turn off, in one transaction.
// Rows that somebody is just working on are passed by, so that of several recoverers
// each turn goes to one. A crash behind it costs a turn, not the key: the next one
// comes after its pause. In a Galera cluster an attempt in progress is given once this
// Store has watched its lease, and the grace, run out. On Vitess, where no transaction
// may reach all shards, each turn is a statement of its own: its number gives it to
// one, and a failure on the way costs the turns given before it.
func (s *Store) Due(ctx context.Context, req onlyonce.DueRequest) (given []onlyonce.Due, err error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if req.Operations != nil && len(req.Operations) == 0 {
		return nil, nil
	}
	run := func(q querier) error {
		given = nil
		found, err := s.readDue(ctx, q, req)
		if err != nil {
			return err
		}
		for _, d := range found {
			d.Turn++
			pause := micros(req.Until(d.Turn))
			digest := d.Record.Key.Digest()
			n, err := told(ctx, q, s.sql(putOff), pause, pause, d.Turn, digest[:], d.Turn-1)
			if err != nil {
				return err
			}
			if n != 0 {
				given = append(given, d)
			}
		}
		return nil
	}
	if s.at.vitess() {
		err = s.single(ctx, "give turns", committing, run)
	} else {
		err = s.inTx(ctx, "give turns", run)
	}
	if err != nil {
		return nil, err
	}
	return given, nil
}

// readDue reads what is due, with the turns that were given before, and locks it.
func (s *Store) readDue(ctx context.Context, q querier, req onlyonce.DueRequest) (due []onlyonce.Due, err error) {
	grace := micros(req.Grace)
	text, args := selectDue, []any{grace, grace, bytesOf(onlyonce.ProviderStore)}
	if req.Operations != nil {
		text += ` AND k.operation IN ` + places(len(req.Operations))
		for _, name := range req.Operations {
			args = append(args, bytesOf(name))
		}
	}
	text, args = text+dueInOrder, append(args, req.Limit)
	if !s.at.vitess() {
		text += passLocked
	}
	err = each(ctx, q, query{s.sql(text), args}, func(row scanner) error {
		var d onlyonce.Due
		r, err := scanKey(row, &d.Keep, &d.Turn)
		if err != nil {
			return err
		}
		if r.State == onlyonce.InProgress && !s.leaseOver(r, req.Grace) {
			return nil
		}
		d.Record = r.Record
		due = append(due, d)
		return nil
	})
	return due, err
}

// Kept reads what was kept with the key's present life; false if nothing is, or the
// record has expired. It takes no lock.
func (s *Store) Kept(ctx context.Context, key onlyonce.Key) (keep []byte, found bool, err error) {
	d := key.Digest()
	err = s.single(ctx, "read what is kept", undone, func(q querier) error {
		err := q.QueryRowContext(ctx, s.sql(selectKept), d[:], bytesOf(key.Scope), bytesOf(key.Value)).Scan(&keep)
		found = err == nil
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return keep, found && err == nil, err
}

// Requeue makes the key's next turn the first again, and due at once, whatever the
// grace. It returns false when nothing is kept, or the record has expired. An attempt
// in progress is not disturbed: its key is due when its lease is over. Repeating it is
// harmless.
func (s *Store) Requeue(ctx context.Context, key onlyonce.Key) (bool, error) {
	d := key.Digest()
	var n int64
	err := s.single(ctx, "requeue key", committing, func(q querier) (err error) {
		n, err = told(ctx, q, s.sql(requeueKey), d[:], d[:], bytesOf(key.Scope), bytesOf(key.Value))
		return err
	})
	return n != 0 && err == nil, err
}
