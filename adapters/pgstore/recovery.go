package pgstore

import (
	"context"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
)

// dueRounds bounds how many windows one Due looks at, dueWindowRows is how many
// entries of the index a window has besides those that are asked for.
const (
	dueRounds     = 10
	dueWindowRows = 1000
)

// Due gives keys whose turn has come and puts their next turn off, in one
// statement: of several recoverers, in any processes, each turn goes to one, and
// none waits for another. A key whose row is locked, by whoever works on it, is
// passed over. A crash behind it, or ErrUncertain, costs a turn, not the key: the
// next turn comes after its pause.
//
// It looks at a window of the index and takes out of the way what is not due
// there, mostly attempts whose lease was renewed; with nothing due in one it goes
// on to the next. So what a call costs is bounded by Limit and a constant, however
// many live attempts there are, and each of these is met once a lease. Where they
// fill whole windows a call may give fewer than Limit, or none, although more are
// due: the next one goes on behind them.
func (s *Store) Due(ctx context.Context, req onlyonce.DueRequest) ([]onlyonce.Due, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	for range dueRounds {
		given, err := s.giveTurns(ctx, req)
		if err != nil || len(given) == req.Limit {
			return given, err
		}
		moved, err := s.putOff(ctx, req)
		if len(given) > 0 {
			return given, nil // whatever became of putting off: these turns are given
		}
		if err != nil || moved == 0 {
			return nil, err
		}
	}
	return nil, nil
}

// dueArgs are the first parameters of the statements about what is due.
func (s *Store) dueArgs(req onlyonce.DueRequest, more ...any) []any {
	return append([]any{s.now(), onlyonce.ProviderStore, micros(req.Grace), int64(req.Limit) + dueWindowRows, req.Operations}, more...)
}

// giveTurns gives what is due in one window.
func (s *Store) giveTurns(ctx context.Context, req onlyonce.DueRequest) ([]onlyonce.Due, error) {
	var given []onlyonce.Due
	row := &keyRow{}
	var keep []byte
	var turn int
	st := &stmt{
		sql:  s.sql.giveTurns,
		args: s.dueArgs(req, int64(req.Limit), micros(req.Pause), micros(req.MaxPause)),
		dest: append(row.dest(), &keep, &turn),
	}
	st.each = func() error {
		rec, err := row.record()
		if err == nil && keep == nil {
			err = errNotKept(rec.Key)
		}
		given = append(given, onlyonce.Due{Record: rec, Keep: notNil(keep), Turn: turn})
		return err
	}
	if err := s.write(ctx, "give turns", st); err != nil {
		return nil, err
	}
	return given, nil
}

// putOff takes out of the way what is in the window and not due.
func (s *Store) putOff(ctx context.Context, req onlyonce.DueRequest) (moved int64, err error) {
	st := &stmt{sql: s.sql.putOff, args: s.dueArgs(req), dest: []any{&moved}}
	err = s.write(ctx, "put off turns", st)
	return moved, err
}

// Kept reads what was kept with the key's present life; false if nothing is, or
// the record has expired. It takes no lock.
func (s *Store) Kept(ctx context.Context, key onlyonce.Key) ([]byte, bool, error) {
	var keep []byte
	st := s.ofKey(s.sql.kept, key, &keep)
	if err := s.query(ctx, "read what is kept", st); err != nil || !st.found {
		return nil, false, err
	}
	if keep == nil {
		return nil, false, errNotKept(key)
	}
	return keep, true, nil
}

// errNotKept: a request is not where its key's row says.
func errNotKept(key onlyonce.Key) error {
	return fmt.Errorf("read what is kept: the request of %s is not where its row says", key.Operation())
}

// Requeue makes the key's next turn the first again, and due at once, whatever
// the grace. It returns false when nothing is kept, or the record has expired. An
// attempt in progress is not disturbed: its key is due when its lease is over.
// Repeating it is harmless.
func (s *Store) Requeue(ctx context.Context, key onlyonce.Key) (bool, error) {
	var ok bool
	st := s.ofKey(s.sql.requeue, key, &ok)
	err := s.write(ctx, "requeue key", st)
	return st.found, err
}

// ofKey makes a statement about a key, whoever owns it.
func (s *Store) ofKey(sql text, key onlyonce.Key, dest any) *stmt {
	d := key.Digest()
	return &stmt{sql: sql, args: []any{d[:], key.Scope, key.Value, s.now()}, dest: []any{dest}}
}
