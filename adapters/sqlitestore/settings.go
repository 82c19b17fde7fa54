package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
)

// Setting reads a value; false if there is none. It takes no lock.
func (s *Store) Setting(ctx context.Context, kind, id string) ([]byte, bool, error) {
	value, found, err := readSetting(ctx, s.readPool(), kind, id)
	if err != nil {
		return nil, false, s.fail("read setting", err)
	}
	return value, found, nil
}

// AddSetting inserts the value unless one is there, and returns the one that
// stands. Of several processes that add at once, all get the same.
func (s *Store) AddSetting(ctx context.Context, kind, id string, value []byte) ([]byte, error) {
	stands, found, err := readSetting(ctx, s.readPool(), kind, id)
	if err != nil {
		return nil, s.fail("read setting", err)
	}
	if found {
		return stands, nil
	}
	err = s.write(ctx, "add setting", func(ctx context.Context, q querier) error {
		if _, err := exec(ctx, q, insertSetting, kind, id, blob(value)); err != nil {
			return err
		}
		stands, _, err = readSetting(ctx, q, kind, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return stands, nil
}

func readSetting(ctx context.Context, q querier, kind, id string) ([]byte, bool, error) {
	var value []byte
	err := q.QueryRowContext(ctx, selectSetting, kind, id).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	return blob(value), err == nil, err
}
