package tests_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// database is a kind of store with transactions, and business data, a list of names,
// beside it.
type database[Tx any] struct {
	// open gives two handles on fresh data.
	open func(t *testing.T, now func() time.Time) (one, two onlyonce.TxStore[Tx])
	// reuse gives what opens one handle on fresh data, again and again within a test.
	// What it has opened before is not to be used any more.
	reuse func(t *testing.T) func(now func() time.Time) onlyonce.TxStore[Tx]
	write func(ctx context.Context, tx Tx, name string) error
	count func(t *testing.T, store onlyonce.Store, name string) int
	do    func(ctx context.Context, store onlyonce.Store, fn func(Tx) error) error
}

// reused opens the store again and again.
func (db database[Tx]) reused(t *testing.T) storetest.Backend {
	open := db.reuse(t)
	return storetest.Backend{Open: func(_ *testing.T, now func() time.Time) storetest.Instance {
		return storetest.Instance{Store: open(now)}
	}}
}

func memory(t *testing.T, now func() time.Time) onlyonce.Store {
	t.Helper()
	m, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sqliteFiles is a file for each test.
func sqliteFiles() database[*sql.Tx] {
	open := func(t *testing.T, path string, now func() time.Time) *sqlitestore.Store {
		s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Config{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	var once sync.Once
	var blank []byte // a file with all tables, which take a while to make
	fresh := func(t *testing.T) (path string) {
		dir := t.TempDir()
		once.Do(func() { blank = blankSQLite(t, filepath.Join(dir, "blank.db")) })
		path = filepath.Join(dir, "once.db")
		if err := os.WriteFile(path, blank, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return database[*sql.Tx]{
		open: func(t *testing.T, now func() time.Time) (one, two onlyonce.TxStore[*sql.Tx]) {
			path := fresh(t)
			return open(t, path, now), open(t, path, now)
		},
		reuse: func(t *testing.T) func(now func() time.Time) onlyonce.TxStore[*sql.Tx] {
			clock := time.Now
			s := open(t, fresh(t), func() time.Time { return clock() })
			return func(now func() time.Time) onlyonce.TxStore[*sql.Tx] {
				clock = now
				for _, table := range []string{"onlyonce_keys", "onlyonce_steps", "onlyonce_settings", "onlyonce_audit"} {
					if _, err := s.Writer().ExecContext(t.Context(), "DELETE FROM "+table); err != nil {
						t.Fatal(err)
					}
				}
				return s
			}
		},
		write: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO names VALUES (?)", name)
			return err
		},
		count: func(t *testing.T, store onlyonce.Store, name string) int {
			return countNames(t, store.(*sqlitestore.Store).Reader(), name)
		},
		do: func(ctx context.Context, store onlyonce.Store, fn func(*sql.Tx) error) error {
			return inTx(ctx, store.(*sqlitestore.Store).Writer(), fn)
		},
	}
}

// blankSQLite makes a file with our tables and one of names.
func blankSQLite(t *testing.T, path string) []byte {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Config{})
	if err == nil {
		_, err = s.Writer().ExecContext(t.Context(), "CREATE TABLE names (name TEXT)")
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	blank, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return blank
}

func countNames(t *testing.T, db *sql.DB, name string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM names WHERE name = ?", name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func inTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// mysqlDatabases makes databases that tests take and give back empty.
func mysqlDatabases(t *testing.T) database[*sql.Tx] {
	owner := t
	var mu sync.Mutex
	var free []*sql.DB
	exec := func(db *sql.DB, statement string) {
		if _, err := db.ExecContext(context.WithoutCancel(owner.Context()), statement); err != nil {
			owner.Errorf("%s: %v", statement, err)
		}
	}
	clear := func(db *sql.DB) {
		for _, table := range []string{"onlyonce_keys", "onlyonce_holds", "onlyonce_kept", "onlyonce_steps", "onlyonce_settings", "onlyonce_audit", "names"} {
			exec(db, "DELETE FROM "+table)
		}
	}
	take := func(t *testing.T) *sql.DB {
		mu.Lock()
		defer mu.Unlock()
		var db *sql.DB
		if n := len(free); n > 0 {
			db, free = free[n-1], free[:n-1]
		} else {
			db = mysqlPool(owner)
		}
		t.Cleanup(func() {
			clear(db)
			mu.Lock()
			defer mu.Unlock()
			free = append(free, db)
		})
		return db
	}
	open := func(t *testing.T, db *sql.DB, now func() time.Time) onlyonce.TxStore[*sql.Tx] {
		s, err := mysqlstore.New(t.Context(), db, mysqlstore.Config{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return database[*sql.Tx]{
		open: func(t *testing.T, now func() time.Time) (one, two onlyonce.TxStore[*sql.Tx]) {
			db := take(t)
			return open(t, db, now), open(t, db, now)
		},
		reuse: func(t *testing.T) func(now func() time.Time) onlyonce.TxStore[*sql.Tx] {
			db := take(t)
			return func(now func() time.Time) onlyonce.TxStore[*sql.Tx] {
				clear(db)
				return open(t, db, now)
			}
		},
		write: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO names (name) VALUES (?)", name)
			return err
		},
		count: func(t *testing.T, store onlyonce.Store, name string) int {
			return countNames(t, store.(*mysqlstore.Store).DB(), name)
		},
		do: func(ctx context.Context, store onlyonce.Store, fn func(*sql.Tx) error) error {
			return inTx(ctx, store.(*mysqlstore.Store).DB(), fn)
		},
	}
}

// mysqlPool is a new database's, with our tables and one of names.
func mysqlPool(t *testing.T) *sql.DB {
	t.Helper()
	s, err := mysqlstore.Open(context.WithoutCancel(t.Context()), testserver.MySQL(t), mysqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.DB().ExecContext(t.Context(), "CREATE TABLE names (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(255))"); err != nil {
		t.Fatal(err)
	}
	return s.DB()
}

// onPostgres is a kind of store on PostgreSQL.
type onPostgres struct {
	// open makes the tables if they are not there, and a store on them.
	open func(ctx context.Context, pool *pgxpool.Pool, schema string, now func() time.Time) (onlyonce.TxStore[pgx.Tx], error)
	// clear are the statements that empty a schema.
	clear string
}

// plainPostgres has everything in rows, or answers in partitions beside them.
func plainPostgres(parts pgstore.Partition) onPostgres {
	kind := onPostgres{
		clear: "DELETE FROM onlyonce_keys; DELETE FROM onlyonce_steps; DELETE FROM onlyonce_settings; DELETE FROM onlyonce_audit;",
		open: func(ctx context.Context, pool *pgxpool.Pool, schema string, now func() time.Time) (onlyonce.TxStore[pgx.Tx], error) {
			s, err := pgstore.New(pool, pgstore.Config{Schema: schema, Now: now, Partition: parts})
			if err == nil {
				err = s.Migrate(ctx)
			}
			if err == nil && parts.Every != 0 && now != nil {
				_, err = pool.Exec(ctx, atMidnight, now())
			}
			return s, err
		},
	}
	if parts.Every != 0 {
		kind.clear += "DELETE FROM onlyonce_answers; DELETE FROM onlyonce_requests;"
	}
	return kind
}

// atMidnight has a period of the partitions end just behind a moment, so that whatever
// advances the clock crosses that.
const atMidnight = `UPDATE onlyonce_partitions SET
	since = $1::timestamptz + interval '1 ms' + (slot - 2) * every, upto = $1::timestamptz + interval '1 ms' + (slot - 1) * every`

// portablePostgres uses nothing but what PostgreSQL's relatives have too.
func portablePostgres(cfg portable.Config) onPostgres {
	kind := onPostgres{open: func(ctx context.Context, pool *pgxpool.Pool, schema string, now func() time.Time) (onlyonce.TxStore[pgx.Tx], error) {
		cfg := cfg
		cfg.Schema, cfg.Now = schema, now
		s, err := portable.New(pool, cfg)
		if err == nil {
			err = s.Migrate(ctx)
		}
		return s, err
	}}
	for _, table := range []string{"keys", "resources", "steps", "settings", "audit", "sweepers"} {
		kind.clear += "DELETE FROM onlyonce_portable_" + table + ";"
	}
	return kind
}

// places are schemas of one database, each with our tables and one of names, that
// tests take and give back empty.
type places struct {
	kind  onPostgres
	t     *testing.T // whose end is theirs
	dsn   string
	mu    sync.Mutex
	free  []*place
	made  int
	pools sync.Map // of *pgxpool.Pool, by store
}

// place is one of them; its connections find it first.
type place struct {
	schema   string
	one, two *pgxpool.Pool
}

func postgresPlaces(t *testing.T, kind onPostgres) database[pgx.Tx] {
	p := &places{kind: kind, t: t, dsn: testserver.Postgres(t)}
	return database[pgx.Tx]{
		open: func(t *testing.T, now func() time.Time) (one, two onlyonce.TxStore[pgx.Tx]) {
			at := p.take(t)
			return p.open(t, at.schema, at.one, now), p.open(t, at.schema, at.two, now)
		},
		reuse: func(t *testing.T) func(now func() time.Time) onlyonce.TxStore[pgx.Tx] {
			at := p.take(t)
			return func(now func() time.Time) onlyonce.TxStore[pgx.Tx] {
				p.clear(at)
				return p.open(t, at.schema, at.one, now)
			}
		},
		write: func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, "INSERT INTO names VALUES ($1)", name)
			return err
		},
		count: func(t *testing.T, store onlyonce.Store, name string) (n int) {
			if err := p.poolOf(store).QueryRow(t.Context(), "SELECT count(*) FROM names WHERE name = $1", name).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
		do: func(ctx context.Context, store onlyonce.Store, fn func(pgx.Tx) error) error {
			return pgx.BeginFunc(ctx, p.poolOf(store), fn)
		},
	}
}

func (p *places) poolOf(store onlyonce.Store) *pgxpool.Pool {
	v, _ := p.pools.Load(store)
	return v.(*pgxpool.Pool)
}

func (p *places) open(t *testing.T, schema string, pool *pgxpool.Pool, now func() time.Time) onlyonce.TxStore[pgx.Tx] {
	s, err := p.kind.open(context.WithoutCancel(t.Context()), pool, schema, now)
	if err != nil {
		t.Fatal(err)
	}
	p.pools.Store(onlyonce.Store(s), pool)
	return s
}

// take gives an empty place, and has it emptied and given back after the test.
func (p *places) take(t *testing.T) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	var at *place
	if n := len(p.free); n > 0 {
		at, p.free = p.free[n-1], p.free[:n-1]
	} else {
		p.made++
		at = p.newPlace(t, fmt.Sprint("place_", p.made))
	}
	t.Cleanup(func() {
		p.clear(at)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, at)
	})
	return at
}

func (p *places) newPlace(t *testing.T, schema string) *place {
	t.Helper()
	at := &place{schema: schema, one: p.pool(schema), two: p.pool(schema)}
	p.exec(at, "CREATE SCHEMA "+schema+"; CREATE TABLE names (name text)")
	p.open(t, schema, at.one, nil)
	p.clear(at)
	return at
}

// clear leaves the place as newPlace has made it, in one round trip.
func (p *places) clear(at *place) { p.exec(at, p.kind.clear+"DELETE FROM names") }

func (p *places) pool(schema string) *pgxpool.Pool {
	cfg, err := pgxpool.ParseConfig(p.dsn)
	if err != nil {
		p.t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	// A server has so many connections, and most places lie idle.
	cfg.MaxConns, cfg.MaxConnIdleTime, cfg.HealthCheckPeriod = 8, time.Second, time.Second
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(p.t.Context()), cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(pool.Close)
	return pool
}

func (p *places) exec(at *place, statements string) {
	if _, err := at.one.Exec(context.WithoutCancel(p.t.Context()), statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		p.t.Errorf("%s: %v", statements, err)
	}
}

// redisNames opens stores on names of their own, by one client.
func redisNames(t *testing.T) storetest.Backend {
	t.Helper()
	opts, err := redis.ParseURL(testserver.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { client.Close() })
	var opened atomic.Int64
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		s, err := redisstore.New(t.Context(), client, redisstore.Config{Prefix: fmt.Sprintf("alike-%d:", opened.Add(1)), Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return storetest.Instance{Store: s}
	}}
}

// dynamoTables opens stores on tables of their own of dynalite, which has no
// transactions: claims that name a resource are beyond it.
func dynamoTables(t *testing.T) storetest.Backend {
	t.Helper()
	client := dynamoClient(t, testserver.Dynalite(t), false)
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		return storetest.Instance{Store: dynamoStore(t, client, dynamostore.Config{Table: newTable(), Now: now, MaxClockSkew: -1})}
	}}
}

func newTable() string { return "once-" + strings.ToLower(onlyonce.NewToken().String()) }

// dynamoStore makes a store, and its table if it is not there.
func dynamoStore(t *testing.T, client *dynamodb.Client, cfg dynamostore.Config) *dynamostore.Store {
	t.Helper()
	cfg.SweepExpired = true
	s, err := dynamostore.New(client, cfg)
	if err == nil {
		err = s.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dynamoClient is a client of dynalite, which believes any signature. One that is
// brief has a connection for each request.
func dynamoClient(t *testing.T, endpoint string, brief bool) *dynamodb.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 8, DisableKeepAlives: brief}
	t.Cleanup(transport.CloseIdleConnections)
	return dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(endpoint),
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:  &http.Client{Transport: transport},
	})
}
