package pgstore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
)

func TestTmpFF(t *testing.T) {
	for _, ff := range []int{50, 70, 85, 95} {
		dsn := with(t, quiet(t), "pool_max_conns", "16")
		pool := admin(t, dsn)
		s := migrated(t, dsn, pgstore.Config{})
		exec(t, pool, fmt.Sprintf(`ALTER TABLE onlyonce_keys SET (fillfactor=%d)`, ff))
		exec(t, pool, "VACUUM onlyonce_keys")
		for _, old := range []bool{false, true} {
			var tx interface{ Rollback() }
			_ = tx
			if old {
				c, _ := pool.Acquire(t.Context())
				defer c.Release()
				c.Exec(t.Context(), "begin isolation level repeatable read; select 1")
			}
			lsn := one[string](t, pool, `SELECT pg_current_wal_insert_lsn()::text`)
			size := one[int64](t, pool, `SELECT pg_relation_size('onlyonce_keys')`)
			hot0, upd0 := stat(t, pool)
			begin := time.Now()
			var wg sync.WaitGroup
			const n = 20000
			for w := range 16 {
				wg.Go(func() {
					var held []onlyonce.Owner
					for i := w; i < n; i += 16 {
						held = append(held, want(t, s, request(fmt.Sprint(old, "k", i)), onlyonce.Won).Record.Owner())
						if len(held) > 60 {
							complete(t, s, held[0])
							held = held[1:]
						}
					}
					for _, o := range held { complete(t, s, o) }
				})
			}
			wg.Wait()
			d := time.Since(begin)
			wal := one[int64](t, pool, `SELECT (pg_current_wal_insert_lsn() - $1::text::pg_lsn)::bigint`, lsn)
			grown := one[int64](t, pool, `SELECT pg_relation_size('onlyonce_keys')`) - size
			for i := 0; i < 100; i++ {
				<-time.After(50 * time.Millisecond)
				if h, u := stat(t, pool); u-upd0 >= n-50 {
					t.Logf("ff %d old snapshot %v: %v, wal/key %d, bytes/key %d, hot %d/%d", ff, old, d, wal/n, grown/n, h-hot0, u-upd0)
					break
				}
			}
		}
	}
}

func stat(t *testing.T, pool *pgxpool.Pool) (hot, upd int64) {
	if err := pool.QueryRow(t.Context(), `SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname='onlyonce_keys'`).Scan(&hot, &upd); err != nil {
		t.Fatal(err)
	}
	return
}
