package db

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
)

// guardVersion is the version of the tables since which the store of keys holds
// orders and charges. Before, their rows did.
const guardVersion = 4

// refuseHeld refuses to open tables of before guardVersion in which something is
// held: migrating them would forget that money may have moved. It comes before any
// table is changed, so that the program of before can still settle it.
// schemas counts the tables of versions: 1 or none.
func refuseHeld(ctx context.Context, tx Tx, schemas string) error {
	var tables, version int
	if err := tx.QueryRow(ctx, schemas).Scan(&tables); err != nil || tables == 0 {
		return err
	}
	err := ignoreNoRows(tx.QueryRow(ctx, "SELECT version FROM "+versionTable).Scan(&version))
	if err != nil || version == 0 || version >= guardVersion {
		return err
	}
	var held []string
	err = tx.Each(ctx, `SELECT 'order ' || id || ' of ' || merchant FROM payments_orders WHERE status = 'paying'
		UNION ALL SELECT 'refund ' || id || ' of ' || merchant FROM payments_refunds WHERE status = 'pending' LIMIT 11`,
		nil, func(row Row) error {
			var name string
			err := row.Scan(&name)
			held = append(held, name)
			return err
		})
	if err != nil || len(held) == 0 {
		return err
	}
	if len(held) > 10 {
		held = append(held[:10], "and more")
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeConfig, Op: "open store",
		Hint: "orders are being paid or refunds are pending (" + strings.Join(held, ", ") + "), and this version keeps that elsewhere. Nothing was changed: " +
			"run the program of before, send those requests again with their keys or settle the keys (keys list --state in_doubt), then start this one",
	}
}

// refuseHeldSQLite looks at a file that may not be there yet.
func refuseHeldSQLite(ctx context.Context, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil //nolint:nilerr // opening it says what is wrong
	}
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return nil //nolint:nilerr // there is nothing yet, or opening it says what is wrong
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "_pragma=busy_timeout(5000)"}
	pool, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	defer pool.Close() //nolint:errcheck // nothing was written
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	defer tx.Rollback()
	return refusal(refuseHeld(ctx, FromSQL(tx), "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '"+versionTable+"'"))
}

func refuseHeldPostgres(ctx context.Context, pool *pgxpool.Pool) error {
	return refusal(pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return refuseHeld(ctx, FromPgx(tx), "SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('"+versionTable+"')")
	}))
}

// refusal is what was found. A look that failed refuses nothing: what is wrong
// comes out again, and the migration looks once more.
func refusal(err error) error {
	if onlyonce.CodeOf(err) == onlyonce.CodeConfig {
		return err
	}
	return nil
}
