package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Script runs several statements as a migration does.
func Script(ctx context.Context, tx Tx, statements string) error {
	switch t := tx.(type) {
	case sqlTx:
		_, err := t.raw.ExecContext(ctx, statements)
		return err
	case pgxTx:
		_, err := t.raw.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	return errors.New("not a transaction of these databases")
}
