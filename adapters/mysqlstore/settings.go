package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
)

// Setting reads a value; false if there is none. It takes no lock.
func (s *Store) Setting(ctx context.Context, kind, id string) (value []byte, found bool, err error) {
	err = s.single(ctx, "read setting", undone, func(q querier) error {
		err := q.QueryRowContext(ctx, selectSetting, bytesOf(kind), bytesOf(id)).Scan(&value)
		found = err == nil
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return value, found && err == nil, err
}

// AddSetting inserts the value unless one is there, and returns the one that stands.
// Of several processes that add at once, all get the same.
func (s *Store) AddSetting(ctx context.Context, kind, id string, value []byte) ([]byte, error) {
	stands, found, err := s.Setting(ctx, kind, id)
	if err != nil || found {
		return stands, err
	}
	err = s.single(ctx, "add setting", committing, func(q querier) error {
		err := exec(ctx, q, insertSetting, bytesOf(kind), bytesOf(id), blob(value))
		if duplicate(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	stands, _, err = s.Setting(ctx, kind, id)
	return stands, err
}
