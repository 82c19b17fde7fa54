package bench_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// rowsEnv asks for the measurements of this file, which fill a database: how many
// keys the big table has. See docs/BENCHMARKS.md.
const rowsEnv = "ONLYONCE_BENCH_ROWS"

func bigRows(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv(rowsEnv))
	if err != nil || n < 1 {
		t.Skipf("%s is not set: this fills a database, and is run by hand", rowsEnv)
	}
	return n
}

// pgSettings are those of the cluster that is measured: durable, with caches and
// checkpoints as on a small server.
var pgSettings = []string{ //nolint:gochecknoglobals // a list that is never changed
	"shared_buffers=2GB", "max_wal_size=16GB", "checkpoint_timeout=30min", "checkpoint_completion_target=0.9",
	"wal_buffers=64MB", "maintenance_work_mem=512MB", "autovacuum=off", "fsync=on", "synchronous_commit=on", "full_page_writes=on",
}

// subject is a database under measurement.
type subject struct {
	name  string
	store *pgstore.Store
	pool  *pgxpool.Pool
	n     int
}

func newSubject(t *testing.T, c *testserver.Cluster, name string, p pgstore.Partition) *subject {
	t.Helper()
	dsn := c.Database(t)
	store, err := pgstore.Open(t.Context(), dsn, pgstore.Config{Partition: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &subject{name: name, store: store, pool: pool}
}

func (s *subject) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%.60s: %v", sql, err)
	}
}

func value[T any](t *testing.T, p *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := p.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%.60s: %v", sql, err)
	}
	return v
}

// fillKeys makes the completed keys $1 to $2 as the store writes them, but in bulk:
// with random digests, 96 bytes of parts, completed at $3. %s is where the answers
// are.
const fillKeys = `
INSERT INTO onlyonce_keys (origin, retention, created_at, fp_form, abandon, digest, scope, key, operation,
	fp_secret, fp_policy, fp_sum, fp_parts, attempts, fence, lease_end, attempt, state, status, completed_at, expires_at, %s)
SELECT n, 86400000000, $3::timestamptz, 1, 0, m, 'acct_' || n %% 1000, 'filled ' || n, 'POST /charges',
	's1', '0011223344556677', m || m, m || m || m || m || m || m, 1, n, $3::timestamptz, m,
	2, 201, $3::timestamptz, $3::timestamptz + interval '1 day', %s
FROM (SELECT n, decode(md5('filled ' || n), 'hex') AS m FROM generate_series($1::bigint, $2::bigint) n OFFSET 0) r`

// fillStep is how many keys are made at a time.
const fillStep = 500_000

// bulk makes rows keys. The index is made behind them, with pages as full as random
// inserts leave them.
func (s *subject) bulk(t *testing.T, rows int, fill func(from, to int)) {
	t.Helper()
	s.exec(t, `ALTER TABLE onlyonce_keys DROP CONSTRAINT onlyonce_keys_pkey`)
	for from := 1; from <= rows; from += fillStep {
		fill(from, min(rows, from+fillStep-1))
	}
	s.exec(t, `ALTER TABLE onlyonce_keys ADD CONSTRAINT onlyonce_keys_pkey PRIMARY KEY (digest) WITH (fillfactor = 70)`)
	s.exec(t, `ANALYZE onlyonce_keys`)
}

// fill makes rows completed keys with answers of 96 bytes.
func (s *subject) fill(t *testing.T, rows int) {
	t.Helper()
	sql := fmt.Sprintf(fillKeys, "header, body", `'Content-Type: application/json', m || m || m || m || m || m`)
	s.bulk(t, rows, func(from, to int) { s.exec(t, sql, from, to, time.Now()) })
}

func (s *subject) request() onlyonce.ClaimRequest {
	s.n++
	fp := onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s1", Policy: "0011223344556677"}, Parts: make([]byte, 96)}
	key := onlyonce.Key{Scope: "acct_1", Value: fmt.Sprint(s.name, s.n)}
	copy(fp.Sum[:], key.Value)
	return onlyonce.ClaimRequest{
		Key: key, Operation: "POST /charges", Fingerprint: fp, Attempt: onlyonce.NewToken(),
		Lease: 30 * time.Second, Retention: 24 * time.Hour, Abandon: onlyonce.AbandonRerun,
	}
}

// claim claims a fresh key and gives how long that took.
func (s *subject) claim(t *testing.T) time.Duration {
	t.Helper()
	req := s.request()
	begun := time.Now()
	c, err := s.store.Claim(t.Context(), req)
	took := time.Since(begun)
	if err != nil || c.Verdict != onlyonce.Won {
		t.Fatal(c.Verdict, err)
	}
	return took
}

// walOf is how much WAL n claims write.
func (s *subject) walOf(t *testing.T, n int) int64 {
	t.Helper()
	before := walPosition(t, s)
	for range n {
		s.claim(t)
	}
	return walPosition(t, s) - before
}

func median(d []time.Duration) time.Duration { return quantile(d, 0.5) }

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

// walPosition is how much WAL the cluster has ever written.
func walPosition(t *testing.T, s *subject) int64 {
	t.Helper()
	return value[int64](t, s.pool, `SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint`)
}

// TestClaimAtManyKeys measures a claim of a fresh key in a table of ten thousand keys
// and in one of as many as asked for, one claim here and one there on one cluster, and
// the WAL a claim writes: directly behind a checkpoint, when every first touch of a
// page is a full image, and later.
func TestClaimAtManyKeys(t *testing.T) {
	rows := bigRows(t)
	c := testserver.NewCluster(t, pgSettings...)
	small, big := newSubject(t, c, "small", pgstore.Partition{}), newSubject(t, c, "big", pgstore.Partition{})
	small.fill(t, 10_000)
	begun := time.Now()
	big.fill(t, rows)
	t.Logf("settings: %v", pgSettings)
	t.Logf("filled %d keys in %v, table %s, index %s", rows, time.Since(begun).Round(time.Second),
		value[string](t, big.pool, `SELECT pg_size_pretty(pg_table_size('onlyonce_keys'))`), value[string](t, big.pool, `SELECT pg_size_pretty(pg_relation_size('onlyonce_keys_pkey'))`))
	big.exec(t, `CHECKPOINT`)
	for _, phase := range []string{"behind a checkpoint", "later"} {
		compareClaims(t, phase, small, big)
	}
}

// compareClaims prints what a claim costs in a big table against a small one.
func compareClaims(t *testing.T, phase string, small, big *subject) {
	t.Helper()
	const turns, timed, counted = 20, 200, 50
	var all [2][]time.Duration
	var wal [2]int64
	ratios := make([]float64, 0, turns)
	for range turns {
		var took [2][]time.Duration
		for n := range timed {
			for i, s := range []*subject{small, big} {
				took[i] = append(took[i], s.claim(t))
				if n == 0 && len(ratios) == 0 {
					took[i] = nil // a statement's first time
				}
			}
		}
		for i, s := range []*subject{small, big} {
			all[i] = append(all[i], took[i]...)
			wal[i] += s.walOf(t, counted)
		}
		ratios = append(ratios, float64(median(took[1]))/float64(median(took[0])))
	}
	slices.Sort(ratios)
	ratio := float64(median(all[1])) / float64(median(all[0]))
	t.Logf("%s: a claim at many keys costs %.2f times one at 10,000 (in %d parts of the run %.2f to %.2f; p99 %.2f times); WAL a claim: %d and %d bytes",
		phase, ratio, turns, ratios[0], ratios[turns-1], float64(quantile(all[1], 0.99))/float64(quantile(all[0], 0.99)), wal[1]/turns/counted, wal[0]/turns/counted)
	if ratio > 1.3 {
		t.Errorf("a claim costs %.2f times as much, want at most 1.3", ratio)
	}
}

// planted fills the partition of the period that is over with answers and their
// keys, as a store that ran in that period has left them.
func (s *subject) planted(t *testing.T, rows int) {
	t.Helper()
	s.exec(t, `UPDATE onlyonce_partitions SET since = since - interval '1 day', upto = upto - interval '1 day'`)
	var slot int16
	var since time.Time
	if err := s.pool.QueryRow(t.Context(), `SELECT slot, since FROM onlyonce_partitions ORDER BY slot LIMIT 1`).Scan(&slot, &since); err != nil {
		t.Fatal(err)
	}
	sql := fmt.Sprintf(fillKeys, "answer_slot", fmt.Sprint(slot))
	s.bulk(t, rows, func(from, to int) {
		s.exec(t, `WITH k AS (`+sql+` RETURNING answer_slot, expires_at, digest, fp_parts)
			INSERT INTO onlyonce_answers (slot, until, of_key, answer_header, answer_body)
			SELECT answer_slot, expires_at, digest, 'Content-Type: application/json', fp_parts || fp_parts || fp_parts || fp_parts FROM k`,
			from, to, since.Add(-23*time.Hour))
	})
	t.Logf("the partition has %d answers, %s", value[int](t, s.pool, fmt.Sprintf(`SELECT count(*) FROM onlyonce_answers_%d`, slot)),
		value[string](t, s.pool, fmt.Sprintf(`SELECT pg_size_pretty(pg_total_relation_size('onlyonce_answers_%d'))`, slot)))
}

// load is what clients do beside the measurement.
type load struct {
	mu     sync.Mutex
	took   map[string][]time.Duration
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (l *load) add(what string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took[what] = append(l.took[what], d)
}

// drive has clients claim, complete and replay until stop is called.
func (s *subject) drive(t *testing.T, clients int) (l *load, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l = &load{took: map[string][]time.Duration{}, cancel: cancel}
	timed := func(what string, fn func() error) {
		begun := time.Now()
		if err := fn(); err != nil {
			if ctx.Err() == nil {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		l.add(what, time.Since(begun))
	}
	for n := range clients {
		mine := &subject{name: fmt.Sprintf("%s.%d.", s.name, n), store: s.store}
		l.wg.Go(func() {
			for ctx.Err() == nil {
				req := mine.request()
				var owner onlyonce.Owner
				timed("claim", func() error {
					c, err := s.store.Claim(ctx, req)
					owner = c.Record.Owner()
					return err
				})
				timed("completion", func() error {
					_, err := s.store.Complete(ctx, owner, onlyonce.Answer{Status: 201, Body: make([]byte, 400)})
					return err
				})
				req.Attempt = onlyonce.NewToken()
				timed("replay", func() error { _, err := s.store.Claim(ctx, req); return err })
			}
		})
	}
	return l, func() { cancel(); l.wg.Wait() }
}

// worst gives how many there were, the 99th percentile and the longest.
func (l *load) worst(what string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.took[what]
	if len(d) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d, p50 %v, p99 %v, longest %v", len(d), median(d).Round(10*time.Microsecond), quantile(d, 0.99).Round(10*time.Microsecond), slices.Max(d).Round(10*time.Microsecond))
}

func (l *load) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = map[string][]time.Duration{}
}

// TestEmptyPartition measures how long it takes to empty a day's partition of a
// million answers while clients claim, complete and replay, and the longest stall of
// each.
func TestEmptyPartition(t *testing.T) {
	rows := min(bigRows(t), 1_000_000)
	c := testserver.NewCluster(t, pgSettings...)
	s := newSubject(t, c, "parted", pgstore.Partition{Every: 24 * time.Hour})
	s.planted(t, rows)
	s.exec(t, `CHECKPOINT`)
	const clients = 8
	l, stop := s.drive(t, clients)
	defer stop()
	pause := func() { <-time.After(10 * time.Second) }
	pause()
	for _, what := range []string{"claim", "completion", "replay"} {
		t.Logf("before, %d clients: %s: %s", clients, what, l.worst(what))
	}
	l.reset()
	before, begun := walPosition(t, s), time.Now()
	m, err := s.store.MaintainPartitions(t.Context())
	took := time.Since(begun)
	if err != nil || m.Emptied == 0 || m.Late != 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	wal := walPosition(t, s) - before
	<-time.After(2 * time.Second) // what a drop leaves to do is done behind it
	for _, what := range []string{"claim", "completion", "replay"} {
		t.Logf("while it is emptied, and two seconds behind it: %s: %s", what, l.worst(what))
	}
	stop()
	t.Logf("emptied %d partitions, %d answers, in %v, %d kB of WAL written by all meanwhile", m.Emptied, rows, took.Round(time.Millisecond), wal/1024)
	if took > time.Second {
		t.Errorf("it took %v, want at most a second", took)
	}
}

// TestReplayBeside measures what a replay, and a key from claim to completion, cost
// with partitions, against tables without them, turn and turn about.
func TestReplayBeside(t *testing.T) {
	_ = bigRows(t)
	c := testserver.NewCluster(t, pgSettings...)
	row := newSubject(t, c, "row", pgstore.Partition{})
	for _, ahead := range []int{2, 7, 30} {
		parted := newSubject(t, c, fmt.Sprint("ahead", ahead), pgstore.Partition{Every: 24 * time.Hour, Ahead: ahead})
		replays, whole := map[string][]time.Duration{}, map[string][]time.Duration{}
		for range 20 {
			for _, s := range []*subject{row, parted} {
				for range 100 {
					req := s.request()
					begun := time.Now()
					claim, err := s.store.Claim(t.Context(), req)
					if err == nil {
						_, err = s.store.Complete(t.Context(), claim.Record.Owner(), onlyonce.Answer{Status: 201, Body: make([]byte, 400)})
					}
					whole[s.name] = append(whole[s.name], time.Since(begun))
					req.Attempt = onlyonce.NewToken()
					begun = time.Now()
					if err == nil {
						_, err = s.store.Claim(t.Context(), req)
					}
					replays[s.name] = append(replays[s.name], time.Since(begun))
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		t.Logf("%d partitions: a replay costs %.2f times one without, a claim with its completion %.2f times", ahead+3,
			float64(median(replays[parted.name]))/float64(median(replays[row.name])), float64(median(whole[parted.name]))/float64(median(whole[row.name])))
	}
}
