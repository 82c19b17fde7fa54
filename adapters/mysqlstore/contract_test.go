package mysqlstore_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// setting is one way of running the contract's suite.
type setting struct {
	name string
	cfg  mysqlstore.Config
	// url changes the URL that the stores get.
	url []string
	// foreign: the stores get pools that are not Open's.
	foreign bool
	// alone: there is no second store.
	alone bool
	// caller is the isolation of the caller's own transactions.
	caller sql.IsolationLevel
	// tx: only transactions behave differently, so only they are looked at.
	tx bool
}

func settings() []setting {
	return []setting{
		{name: "plain"},
		{name: "repeatable_read", cfg: mysqlstore.Config{Isolation: sql.LevelRepeatableRead}, caller: sql.LevelRepeatableRead, tx: true},
		{name: "serializable", cfg: mysqlstore.Config{Isolation: sql.LevelSerializable}, caller: sql.LevelSerializable, tx: true},
		{name: "callers_serializable", caller: sql.LevelSerializable, tx: true},
		{name: "pool_of_one", cfg: mysqlstore.Config{MaxConns: 1}, alone: true},
		// Sessions as a server has them: REPEATABLE READ, statements prepared, rows
		// counted when they were changed.
		{name: "foreign_pool", foreign: true},
		{name: "odd_sessions", url: []string{
			"sql_mode", "'TRADITIONAL,ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'", "time_zone", "'+05:30'", "clientFoundRows", "true",
			anyIsolation, "'SERIALIZABLE'",
		}},
	}
}

// ground is a number of databases that the instances of a suite have to themselves
// while they last; making tables for each would take minutes.
type ground struct {
	setting
	// dsn makes a database and gives its URLs for the two stores.
	dsn func(t *testing.T) (first, second string)
	t   *testing.T // the test whose end is the ground's, connections included

	mu   sync.Mutex
	free []*place
}

// place is a database with our tables and one of business data.
type place struct {
	first, second string
	// db and other are the pools of the instances' stores.
	db, other *sql.DB
}

func (c setting) ground(t *testing.T) *ground {
	t.Helper()
	return &ground{setting: c, t: t, dsn: func(t *testing.T) (string, string) {
		t.Helper()
		dsn := testserver.MySQL(t)
		return dsn, dsn
	}}
}

// take gives an empty place, and has it emptied and given back after the test.
func (g *ground) take(t *testing.T) *place {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	var p *place
	if n := len(g.free); n > 0 {
		p, g.free = g.free[n-1], g.free[:n-1]
	} else {
		p = g.newPlace()
	}
	t.Cleanup(func() {
		for _, table := range []string{"onlyonce_keys", "onlyonce_holds", "onlyonce_kept", "onlyonce_steps", "onlyonce_settings", "onlyonce_audit", "business"} {
			p.empty(table)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.free = append(g.free, p)
	})
	return p
}

// empty deletes what a test has left. A statement of another node's may still be in
// the way.
func (p *place) empty(table string) {
	var err error
	for range 10 {
		if _, err = p.db.ExecContext(context.Background(), `DELETE FROM `+table); err == nil {
			return
		}
	}
	panic(err)
}

func (g *ground) newPlace() *place {
	t, p := g.t, &place{}
	p.first, p.second = g.dsn(t)
	p.db, p.other = g.connect(p.first), g.connect(p.second)
	exec(t, p.db, `CREATE TABLE business (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(255))`)
	return p
}

// connect makes a pool, and the tables if they are not there.
func (g *ground) connect(dsn string) *sql.DB {
	url := strings.ReplaceAll(with(g.t, dsn, g.url...), anyIsolation, isolationName(g.t, dsn))
	s := open(g.t, url, g.cfg)
	if g.foreign {
		return pool(g.t, dsn, false)
	}
	return s.DB()
}

// backend opens stores on the ground.
func (g *ground) backend() storetest.Backend {
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		p := g.take(t)
		cfg := g.cfg
		cfg.Now = now
		in := storetest.Instance{Store: ready(t, p.db, cfg)}
		if !g.alone {
			in.Another = ready(t, p.other, cfg)
		}
		return in
	}}
}

// ready makes a store on a pool, and has it find its tables up to date.
func ready(t *testing.T, db *sql.DB, cfg mysqlstore.Config) *mysqlstore.Store {
	t.Helper()
	s, err := mysqlstore.New(t.Context(), db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) {
	t.Parallel()
	for _, c := range settings() {
		if c.tx {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, c.ground(t).backend())
		})
	}
}

func TestContractTx(t *testing.T) {
	t.Parallel()
	for _, c := range settings() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.RunTx(t, c.ground(t).txBackend())
		})
	}
}

// C2, C9, B103: a storm of duplicates costs a read now and then, and no connection.
func TestWaiting(t *testing.T) {
	t.Parallel()
	for _, c := range settings() {
		if c.name != "plain" && c.name != "serializable" && c.name != "pool_of_one" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.RunWaiting(t, c.ground(t).txBackend(), 100)
		})
	}
}

func (g *ground) txBackend() storetest.TxBackend[*sql.Tx] {
	db := func(in storetest.Instance) *sql.DB { return in.Store.(*mysqlstore.Store).DB() }
	return storetest.TxBackend[*sql.Tx]{
		Open: g.backend().Open,
		Write: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO business (name) VALUES (?)`, name)
			return err
		},
		Count: func(t *testing.T, in storetest.Instance, name string) int {
			t.Helper()
			return one[int](t, db(in), `SELECT COUNT(*) FROM business WHERE name = ?`, name)
		},
		Do: func(ctx context.Context, in storetest.Instance, fn func(*sql.Tx) error) error {
			tx, err := db(in).BeginTx(ctx, &sql.TxOptions{Isolation: g.caller})
			if err != nil {
				return err
			}
			defer tx.Rollback() // does nothing behind a commit
			if err := fn(tx); err != nil {
				return err
			}
			return tx.Commit()
		},
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	pool := open(t, testserver.MySQL(t), mysqlstore.Config{}).DB()
	storetest.RunModel(t, storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		consistent(t, pool)
		for _, table := range []string{"keys", "holds", "kept", "steps"} {
			exec(t, pool, `DELETE FROM onlyonce_`+table)
		}
		s, err := mysqlstore.New(t.Context(), pool, mysqlstore.Config{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return storetest.Instance{Store: s}
	}}, reference(t))
}

// reference makes the model that others are compared to.
func reference(t *testing.T) func(now func() time.Time) onlyonce.Store {
	t.Helper()
	return func(now func() time.Time) onlyonce.Store {
		s, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	for _, c := range settings() {
		if c.tx {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.RunHistory(t, c.ground(t).backend())
		})
	}
}
