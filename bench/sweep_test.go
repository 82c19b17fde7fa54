package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// sweepRowsEnv is how many expired rows BenchmarkClaimWhileSweeping sweeps.
const sweepRowsEnv = "ONLYONCE_BENCH_SWEEP"

// The load beside the sweep: so many callers, each with a pause between two keys.
const (
	loadCallers = 4
	loadPause   = 10 * time.Millisecond
	quietFor    = 5 * time.Second
)

// swept is a store full of expired rows, and how many batches in a row must be quiet
// for it to be swept.
type swept struct {
	store onlyonce.Store
	quiet int
}

// BenchmarkClaimWhileSweeping tells what a sweep costs a live load: the p50 and p99 of
// claims without one, before and after, and beside one. It fills a table first, which
// takes a while, so it runs only by hand:
//
//	ONLYONCE_BENCH_SWEEP=300000 go test -run '^$' -bench ClaimWhileSweeping -benchtime 1x ./bench
//
// Compare within one run: x-p99 is the p99 beside the sweep over the p99 without.
func BenchmarkClaimWhileSweeping(b *testing.B) {
	rows, err := strconv.Atoi(os.Getenv(sweepRowsEnv))
	if err != nil || rows <= 0 {
		b.Skip("it fills a table first: set " + sweepRowsEnv + " to a number of rows")
	}
	for name, fill := range map[string]func(b *testing.B, rows int) swept{"postgres": fullPostgres, "sqlite": fullSQLite} {
		for _, batch := range []int{5000, 500, 100} {
			b.Run(fmt.Sprintf("%s/batch=%d", name, batch), func(b *testing.B) {
				s := fill(b, rows)
				for b.Loop() {
					measureSweep(b, s, batch, rows)
				}
			})
		}
	}
}

func measureSweep(b *testing.B, s swept, batch, rows int) {
	b.Helper()
	before := claimsFor(b, s.store, quietFor)
	ctx, stop := context.WithCancel(b.Context())
	var during []time.Duration
	var loading sync.WaitGroup
	loading.Go(func() { during = claims(ctx, b, s.store) })
	var counter onlyonce.SweepCounter
	begun := time.Now()
	sum, err := onlyonce.Sweeper{Store: s.store, Batch: batch, Quiet: s.quiet, Observe: counter.Observe}.Once(b.Context())
	took := time.Since(begun)
	stop()
	loading.Wait()
	if err != nil || sum.Deleted != rows {
		b.Fatalf("swept %+v, %v", sum, err)
	}
	without := slices.Concat(before, claimsFor(b, s.store, quietFor))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(rows)/took.Seconds(), "rows/s")
	b.ReportMetric(ms(counter.Totals().Longest), "ms-longest-batch")
	b.ReportMetric(ms(sweepQuantile(without, 50)), "ms-p50-without")
	b.ReportMetric(ms(sweepQuantile(during, 50)), "ms-p50-beside")
	b.ReportMetric(ms(sweepQuantile(without, 99)), "ms-p99-without")
	b.ReportMetric(ms(sweepQuantile(during, 99)), "ms-p99-beside")
	b.ReportMetric(ms(sweepQuantile(during, 100)), "ms-max-beside")
	b.ReportMetric(float64(sweepQuantile(during, 99))/float64(sweepQuantile(without, 99)), "x-p99")
}

func claimsFor(b *testing.B, s onlyonce.Store, d time.Duration) []time.Duration {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), d)
	defer stop()
	return claims(ctx, b, s)
}

// claims claims and completes fresh keys until ctx ends, and gives the times of the
// claims.
func claims(ctx context.Context, b *testing.B, s onlyonce.Store) (all []time.Duration) {
	b.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	for range loadCallers {
		callers.Go(func() {
			var mine []time.Duration
			for ctx.Err() == nil {
				begun := time.Now()
				c, err := s.Claim(b.Context(), freshClaim())
				mine = append(mine, time.Since(begun))
				if err == nil && c.Verdict == onlyonce.Won {
					_, err = s.Complete(b.Context(), c.Record.Owner(), onlyonce.Answer{Status: 201, Body: make([]byte, 300)})
				}
				if err != nil || c.Verdict != onlyonce.Won {
					b.Errorf("claim: %s, %v", c.Verdict, err)
					return
				}
				<-time.After(loadPause)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	callers.Wait()
	return all
}

func freshClaim() onlyonce.ClaimRequest {
	token := onlyonce.NewToken()
	return onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct", Value: token.String()}, Operation: "POST /charges", Attempt: token,
		Fingerprint: onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s", Policy: "p"}},
		Lease:       time.Minute, Retention: time.Hour,
	}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

func sweepQuantile(times []time.Duration, percent int) time.Duration {
	slices.Sort(times)
	return times[max(len(times)*percent/100-1, 0)]
}

// fullPostgres is a table as it is after a day without a sweeper: completed keys that
// expired an hour ago.
func fullPostgres(b *testing.B, rows int) swept {
	b.Helper()
	pool, err := pgxpool.New(b.Context(), testserver.Postgres(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	s, err := pgstore.New(pool, pgstore.Config{})
	if err == nil {
		err = s.Migrate(b.Context())
	}
	if err == nil {
		_, err = pool.Exec(b.Context(), `
			INSERT INTO onlyonce_keys (digest, retention, fp_form, abandon, scope, key, operation, fp_secret, fp_policy, fp_sum, fp_parts,
				attempt, attempts, origin, fence, created_at, lease_end, state, status, header, body, completed_at, expires_at)
			SELECT decode(md5(n::text), 'hex'), 86400000000, 1, 0, 'acct', 'old-' || n, 'POST /charges', 's', 'p', sha256('x'), '',
				decode(md5(n::text), 'hex'), 1, 1000, 1000, now(), now(), 2, 201, '', convert_to(repeat(md5(n::text), 10), 'UTF8'), now(), now() - interval '1 hour'
			FROM generate_series(1, $1::bigint) n`, rows)
	}
	if err == nil {
		_, err = pool.Exec(b.Context(), "VACUUM ANALYZE onlyonce_keys")
	}
	var pages int
	if err == nil {
		err = pool.QueryRow(b.Context(), `SELECT pg_relation_size('onlyonce_keys') / 8192`).Scan(&pages)
	}
	if err != nil {
		b.Fatal(err)
	}
	return swept{s, pages/16384 + 2}
}

// fullSQLite is the same in a file.
func fullSQLite(b *testing.B, rows int) swept {
	b.Helper()
	s, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "keys.db"), sqlitestore.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	_, err = s.Writer().ExecContext(b.Context(), `
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
		INSERT INTO onlyonce_keys (digest, retention_us, fp_form, abandon, scope, key, operation, fp_secret, fp_policy, fp_sum, fp_parts,
			attempt, attempts, origin, fence, created_us, lease_end_us, state, status, header, body, completed_us, expires_us)
		SELECT randomblob(16), 86400000000, 1, 0, 'acct', 'old-' || i, 'POST /charges', 's', 'p', randomblob(32), x'',
			randomblob(16), 1, 1000, 1000, 1, 1, 'completed', 201, x'', randomblob(320), 1, 1 FROM n`, rows)
	if err != nil {
		b.Fatal(err)
	}
	return swept{s, 1}
}
