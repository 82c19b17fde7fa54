package db

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
)

// guardVersion is the version of the tables since which the store of keys holds
// orders and charges. Before, their rows did.
const guardVersion = 4

// refuseHeld refuses to open tables of before guardVersion in which something is
// held: migrating them would forget that money may have moved. It comes before any
// table is changed, so that the program of before can still settle it.
func refuseHeld(ctx context.Context, tx Tx, d driver) error {
	at, err := version(ctx, tx, d)
	if err != nil || at == 0 || at >= guardVersion {
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
	return refusal(lookIntoSQLite(ctx, path, func(tx Tx) error { return refuseHeld(ctx, tx, sqliteDriver{}) }))
}

func refuseHeldPostgres(ctx context.Context, pool *pgxpool.Pool) error {
	return refusal(lookIntoPostgres(ctx, pool, func(tx Tx) error { return refuseHeld(ctx, tx, postgresDriver{}) }))
}

// refusal is what was found. A look that failed refuses nothing: what is wrong
// comes out again, and the migration looks once more.
func refusal(err error) error {
	if onlyonce.CodeOf(err) == onlyonce.CodeConfig {
		return err
	}
	return nil
}
