package portable

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// setting is a value that is read.
type setting struct {
	value []byte
	found bool
}

func (v *setting) read(kind, id string) question {
	return question{
		sql: selectSetting, args: []any{kind, id}, first: func() { *v = setting{} },
		row: func(rows pgx.Rows) error {
			v.found = true
			return rows.Scan(&v.value)
		},
	}
}

func settingText(kind, id string) error {
	return checkText(field{"the kind of a setting", kind}, field{"its id", id})
}

// Setting reads a value; false if there is none. One round trip.
func (s *Store) Setting(ctx context.Context, kind, id string) ([]byte, bool, error) {
	if err := settingText(kind, id); err != nil {
		return nil, false, err
	}
	var v setting
	_, err := s.read(ctx, "read setting", v.read(kind, id))
	return v.value, v.found && err == nil, err
}

// AddSetting inserts the value unless one is there, and returns the one that stands.
// Uniqueness decides, so all processes get the same. Three round trips, four for the
// first.
func (s *Store) AddSetting(ctx context.Context, kind, id string, value []byte) ([]byte, error) {
	if err := settingText(kind, id); err != nil {
		return nil, err
	}
	var v setting
	err := s.transact(ctx, "add setting", func(ctx context.Context, t *txn) error {
		if err := t.look(ctx, v.read(kind, id)); err != nil || v.found {
			return err
		}
		v.value = notNil(value)
		return t.must(ctx, insertSetting, kind, id, v.value)
	})
	if err != nil {
		return nil, err
	}
	return v.value, nil
}
