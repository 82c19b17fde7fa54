package pgstore

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// Setting reads a value.
func (s *Store) Setting(ctx context.Context, kind, id string) ([]byte, bool, error) {
	var value []byte
	st := &stmt{sql: s.sql.setting, args: []any{kind, id}, dest: []any{&value}}
	err := s.query(ctx, "read setting", st)
	return value, st.found, err
}

// AddSetting inserts the value unless one is there, and returns the one that
// stands. Uniqueness decides, so all processes get the same.
func (s *Store) AddSetting(ctx context.Context, kind, id string, value []byte) ([]byte, error) {
	if stands, found, err := s.Setting(ctx, kind, id); err != nil || found {
		return stands, err
	}
	var stands []byte
	st := &stmt{sql: s.sql.addSetting, args: []any{kind, id, notNil(value)}, dest: []any{&stands}}
	if err := s.write(ctx, "add setting", st); err != nil || st.found {
		return stands, err
	}
	stands, found, err := s.Setting(ctx, kind, id)
	if err == nil && !found {
		err = &onlyonce.Error{Code: onlyonce.CodeConflict, Op: "add setting", Hint: "somebody removed it meanwhile"}
	}
	return stands, err
}
