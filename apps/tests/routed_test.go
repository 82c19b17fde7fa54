package tests_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// routed is two databases between which keys are spread.
type routed struct {
	t      *testing.T // whose end is that of the connections
	names  [2]string
	dsns   [2]string
	admins [2]*pgxpool.Pool

	mu     sync.Mutex
	free   []*site
	places int
}

// site is a schema of the same name in both databases, for one instance of a suite at a
// time; making tables for each would take minutes.
type site struct {
	schema string
	pools  [2]*pgxpool.Pool
}

func newRouted(t *testing.T) *routed {
	t.Helper()
	r := &routed{t: t, names: spreadNames(t), dsns: [2]string{testserver.Postgres(t), testserver.Postgres(t)}}
	for i, dsn := range r.dsns {
		r.admins[i] = routedPool(t, dsn, "")
	}
	return r
}

// routedPool is a small pool whose connections bear the name of their schema.
func routedPool(t *testing.T, dsn, schema string) *pgxpool.Pool {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("pool_max_conns", "4")
	q.Set("application_name", schema)
	u.RawQuery = q.Encode()
	pool, err := pgxpool.New(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// spreadNames gives names of homes by which the suite's keys are spread over both, and
// those that it takes to be of one database are.
func spreadNames(t *testing.T) [2]string {
	t.Helper()
	mem, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		names := [2]string{fmt.Sprint("a", i), fmt.Sprint("b", i)}
		s, err := routestore.New(routestore.Config{
			Homes: []routestore.Home{{Name: names[0], Store: mem}, {Name: names[1], Store: mem}},
			Map:   routestore.Map{Version: 1, Homes: names[:], By: routestore.ByKey},
		})
		if err != nil {
			t.Fatal(err)
		}
		at := func(value string) string {
			home, _ := s.HomeOf(onlyonce.Key{Scope: "acct", Value: value})
			return home.Name
		}
		turns := at("a") == at("b") && at("b") == at("c") // their order is that of one home
		own := at("k") == at("0") && at("0") == at("1")   // transactions of the suite's own are one home's
		if turns && own && at("k") != at("a") && at("A") != at("a") && at("0") != at("2") {
			return names
		}
	}
}

// take gives an empty site, and has it emptied and given back after the test.
func (r *routed) take(t *testing.T) *site {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var p *site
	if n := len(r.free); n > 0 {
		p, r.free = r.free[n-1], r.free[:n-1]
	} else {
		r.places++
		p = r.newSite(fmt.Sprint("routed_", r.places))
	}
	t.Cleanup(func() {
		r.empty(t, p)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.free = append(r.free, p)
	})
	return p
}

// empty deletes what is in the site's tables, in one round trip a database.
func (r *routed) empty(t *testing.T, p *site) {
	t.Helper()
	var all strings.Builder
	for _, table := range []string{"onlyonce_keys", "onlyonce_steps", "onlyonce_settings", "onlyonce_audit", "business"} {
		all.WriteString("DELETE FROM " + p.table(table) + ";")
	}
	for _, admin := range r.admins {
		if _, err := admin.Exec(context.WithoutCancel(t.Context()), all.String(), pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Errorf("empty %s: %v", p.schema, err)
		}
	}
}

func (p *site) table(name string) string { return pgx.Identifier{p.schema, name}.Sanitize() }

func (r *routed) newSite(schema string) *site {
	p := &site{schema: schema}
	for i, dsn := range r.dsns {
		p.pools[i] = routedPool(r.t, dsn, schema)
		s, err := pgstore.New(p.pools[i], pgstore.Config{Schema: schema})
		if err == nil {
			err = s.Migrate(r.t.Context())
		}
		if err == nil {
			_, err = r.admins[i].Exec(r.t.Context(), `CREATE TABLE `+p.table("business")+` (name text)`)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return p
}

// open makes a process on the site.
func (r *routed) open(t *testing.T, p *site, cfg routestore.Config) *routestore.TxStore[pgx.Tx] {
	t.Helper()
	for i, pool := range p.pools {
		s, err := pgstore.New(pool, pgstore.Config{Schema: p.schema, Now: cfg.Now})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Homes = append(cfg.Homes, routestore.Home{Name: r.names[i], Store: s})
	}
	s, err := routestore.NewTx[pgx.Tx](cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ways are the maps that the contract is examined under.
func (r *routed) ways() map[string]routestore.Config {
	first := routestore.Map{Version: 1, Homes: r.names[:1]}
	return map[string]routestore.Config{
		"by_scope":          {Map: routestore.Map{Version: 1, Homes: r.names[:]}},
		"by_key":            {Map: routestore.Map{Version: 1, Homes: r.names[:], By: routestore.ByKey}},
		"while_scopes_move": r.moving(first),
	}
}

// moving is a change from a map to one by which all is at the second home. Markers
// outlive the suite, which moves the clock by years.
func (r *routed) moving(from routestore.Map) routestore.Config {
	return routestore.Config{
		Map: routestore.Map{Version: 2, Homes: r.names[1:]}, Previous: &from, Until: storetest.NewClock().Now().AddDate(200, 0, 0),
	}
}

func (r *routed) backend(cfg routestore.Config) storetest.Backend {
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		p, cfg := r.take(t), cfg
		cfg.Now = now
		return storetest.Instance{Store: r.open(t, p, cfg), Another: r.open(t, p, cfg)}
	}}
}

// txBackend finds the table of business data by the name of the connection, and the
// database of a transaction of the suite's own by the home of its key.
func (r *routed) txBackend(cfg routestore.Config) storetest.TxBackend[pgx.Tx] {
	var sites sync.Map // store → site
	table := func(c *pgx.Conn) string {
		return (&site{schema: c.Config().RuntimeParams["application_name"]}).table("business")
	}
	siteOf := func(in storetest.Instance) *site {
		p, _ := sites.Load(in.Store)
		return p.(*site)
	}
	return storetest.TxBackend[pgx.Tx]{
		Open: func(t *testing.T, now func() time.Time) storetest.Instance {
			t.Helper()
			p, cfg := r.take(t), cfg
			cfg.Now = now
			in := storetest.Instance{Store: r.open(t, p, cfg), Another: r.open(t, p, cfg)}
			sites.Store(in.Store, p)
			return in
		},
		Write: func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, `INSERT INTO `+table(tx.Conn())+` VALUES ($1)`, name)
			return err
		},
		Count: func(t *testing.T, in storetest.Instance, name string) int {
			t.Helper()
			sum := 0
			for _, admin := range r.admins {
				var n int
				if err := admin.QueryRow(t.Context(), `SELECT count(*) FROM `+siteOf(in).table("business")+` WHERE name = $1`, name).Scan(&n); err != nil {
					t.Fatal(err)
				}
				sum += n
			}
			return sum
		},
		Do: func(ctx context.Context, in storetest.Instance, fn func(pgx.Tx) error) error {
			home, err := in.Store.(*routestore.TxStore[pgx.Tx]).Where(ctx, onlyonce.Key{Scope: "acct", Value: "k"})
			if err != nil {
				return err
			}
			pool := siteOf(in).pools[0]
			if home.Name == r.names[1] {
				pool = siteOf(in).pools[1]
			}
			return pgx.BeginFunc(ctx, pool, fn)
		},
	}
}

// S, F, C, O, T, X: the contract holds over two PostgreSQL databases, also while keys
// move from one to the other.
func TestRoutedContract(t *testing.T) {
	t.Parallel()
	r := newRouted(t)
	for name, cfg := range r.ways() {
		if name == "by_key" && os.Getenv("ONLYONCE_SOAK") == "" {
			continue // routestore's own suite has it, and TestRoutedModel here
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, r.backend(cfg))
		})
		t.Run(name+"_tx", func(t *testing.T) {
			t.Parallel()
			storetest.RunTx(t, r.txBackend(cfg))
		})
		t.Run(name+"_history", func(t *testing.T) {
			t.Parallel()
			storetest.RunHistory(t, r.backend(cfg))
		})
	}
}

// reused opens a store on one site, again and again, each time empty.
func (r *routed) reused(t *testing.T, cfg routestore.Config) storetest.Backend {
	p := r.take(t)
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		r.empty(t, p)
		cfg := cfg
		cfg.Now = now
		return storetest.Instance{Store: r.open(t, p, cfg)}
	}}
}

// What a store of one process says of random operations, two databases say.
func TestRoutedModel(t *testing.T) {
	t.Parallel()
	r := newRouted(t)
	cfg := r.moving(routestore.Map{Version: 1, Homes: r.names[:], By: routestore.ByKey})
	storetest.RunModel(t, r.reused(t, cfg), reference(t))
}

func routedRequest(scope, value string) onlyonce.ClaimRequest {
	f := onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s1", Policy: "0011223344556677"}}
	copy(f.Sum[:], scope+value)
	return onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: scope, Value: value}, Operation: "POST /charges", Fingerprint: f,
		Attempt: onlyonce.NewToken(), Lease: time.Minute, Retention: time.Hour, Abandon: onlyonce.AbandonHold,
	}
}

// change is processes with the old map, by which all is at the first home, and with the
// new one, by which all is at the second.
func (r *routed) change(t *testing.T, p *site) (before, after *routestore.TxStore[pgx.Tx]) {
	t.Helper()
	old := routestore.Map{Version: 1, Homes: r.names[:1]}
	return r.open(t, p, routestore.Config{Map: old}), r.open(t, p, routestore.Config{
		Map: routestore.Map{Version: 2, Homes: r.names[1:]}, Previous: &old,
	})
}

// C1, C6: while a map is changed under load, processes with the old and the new one
// side by side, each key has one effect, wherever it ends.
func TestRoutedMapChangesUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRouted(t)
	before, after := r.change(t, r.take(t))
	const keys, workers, rounds = 60, 8, 120
	var effects [keys]atomic.Int32
	var misdirected atomic.Int32
	var all sync.WaitGroup
	for w := range workers {
		s := []*routestore.TxStore[pgx.Tx]{before, after}[w%2]
		all.Go(func() {
			for range rounds {
				i := rand.IntN(keys)
				claim, err := s.Claim(t.Context(), routedRequest("acct", fmt.Sprint(i)))
				switch {
				case errors.Is(err, onlyonce.ErrMisdirected) && s == before:
					misdirected.Add(1)
				case err != nil && !errors.Is(err, onlyonce.ErrConflict):
					t.Errorf("claim: %v", err)
					return
				case claim.Verdict.Owns():
					effects[i].Add(1)
					if settled, err := s.Complete(t.Context(), claim.Record.Owner(), onlyonce.Answer{Status: 201}); err != nil || !settled.Held {
						t.Errorf("complete: %+v, %v", settled, err)
					}
				}
			}
		})
	}
	all.Wait()
	moved := 0
	for i := range effects {
		req := routedRequest("acct", fmt.Sprint(i))
		claim, err := after.Claim(t.Context(), req)
		if err != nil || (claim.Verdict != onlyonce.Replay && claim.Verdict != onlyonce.Won) {
			t.Errorf("key %d: %v, %v", i, claim.Verdict, err)
		}
		if n := effects[i].Load(); n > 1 || (n == 1) != (claim.Verdict == onlyonce.Replay) {
			t.Errorf("key %d: %d effects, %v", i, n, claim.Verdict)
		}
		if home, err := after.Where(t.Context(), req.Key); err == nil && home.Name == r.names[1] {
			moved++
		}
	}
	left, err := after.Left(t.Context(), keys)
	if err != nil || len(left)+moved != keys {
		t.Errorf("%d keys have moved and %d are left, %v", moved, len(left), err)
	}
	t.Logf("%d keys moved, %d stayed, %d requests were told that their map is out of date", moved, len(left), misdirected.Load())
}

// C2: a transaction that is open at the old home cannot be seen by the claim that would
// move its key, which is busy; how it ends decides where the key lives.
func TestRoutedOpenTransaction(t *testing.T) {
	t.Parallel()
	r := newRouted(t)
	before, after := r.change(t, r.take(t))
	for name, fails := range map[string]error{"committed": nil, "rolled back": errors.New("no")} {
		_, _, err := before.Atomic(t.Context(), routedRequest("acct", name), func(ctx context.Context, _ pgx.Tx) (*onlyonce.Answer, error) {
			claim, err := after.Claim(ctx, routedRequest("acct", name))
			if err != nil || claim.Verdict != onlyonce.Busy {
				t.Errorf("%s: beside it: %v, %v", name, claim.Verdict, err)
			}
			return &onlyonce.Answer{Status: 201}, fails
		})
		if !errors.Is(err, fails) {
			t.Fatalf("%s: %v", name, err)
		}
		want, home := onlyonce.Replay, r.names[0]
		if fails != nil {
			want, home = onlyonce.Won, r.names[1]
		}
		claim, err := after.Claim(t.Context(), routedRequest("acct", name))
		if err != nil || claim.Verdict != want {
			t.Errorf("%s: %v, %v; want %v", name, claim.Verdict, err, want)
		}
		if at, err := after.Where(t.Context(), claim.Record.Key); err != nil || at.Name != home {
			t.Errorf("%s: it lives at %s, %v", name, at.Name, err)
		}
	}
}

// regions is two clusters, each the home of the scope of its name.
type regions struct {
	clusters map[string]*testserver.Cluster
}

func newRegions(t *testing.T) *regions {
	t.Helper()
	r := &regions{clusters: map[string]*testserver.Cluster{}}
	for _, name := range []string{"east", "west"} {
		r.clusters[name] = testserver.NewCluster(t, "fsync=off")
		s, err := pgstore.Open(t.Context(), r.clusters[name].DSN(), pgstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// start begins a process, which needs no home to answer.
func (r *regions) start(t *testing.T) *onlyonce.TxEngine[pgx.Tx] {
	t.Helper()
	cfg := routestore.Config{
		Map:      routestore.Map{Version: 1, Homes: []string{"east"}, Table: map[string]string{"west": "west"}},
		Arbiter:  "west",
		Patience: time.Second,
	}
	for name, c := range r.clusters {
		s, err := pgstore.New(routedPool(t, c.DSN(), name), pgstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Homes = append(cfg.Homes, routestore.Home{Name: name, Store: s})
	}
	s, err := routestore.NewTx[pgx.Tx](cfg)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := onlyonce.NewTx[pgx.Tx](s, onlyonce.Config{StoreTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return engine
}

// routedText is a request whose form is its text.
type routedText string

func (routedText) Version() int                                        { return 1 }
func (c routedText) Form(int, []byte) (onlyonce.Form, error)           { return c, nil }
func (c routedText) Sum() [32]byte                                     { return [32]byte([]byte(fmt.Sprintf("%32s", string(c)))) }
func (routedText) Parts() []onlyonce.Part                              { return nil }
func (routedText) Differs([]string, func(int, [32]byte) bool) []string { return []string{"body"} }

func payRouted(t *testing.T, e *onlyonce.TxEngine[pgx.Tx], scope, value string) (onlyonce.Result, error) {
	t.Helper()
	req := onlyonce.Request{Key: onlyonce.Key{Scope: scope, Value: value}, Canonical: routedText("pay")}
	op := onlyonce.Op{Name: "POST /charges"}
	if value[0] == 'a' {
		return e.Atomic(t.Context(), op, req, func(context.Context, pgx.Tx) (onlyonce.Answer, error) {
			return onlyonce.Answer{Status: 201}, nil
		})
	}
	return e.Wrap(t.Context(), op, req, func(context.Context) (onlyonce.Answer, error) { return onlyonce.Answer{Status: 201}, nil })
}

// C11: a home that is killed takes its own keys with it and no others, although it was
// the arbiter of settings: for processes that run, and for one that starts meanwhile.
// When it is back, its keys go on as they were.
func TestRoutedHomeIsKilled(t *testing.T) {
	t.Parallel()
	r := newRegions(t)
	running := r.start(t)
	for _, scope := range []string{"east", "west"} {
		for _, value := range []string{"atomic", "wrapped"} {
			if res, err := payRouted(t, running, scope, value); err != nil || res.Status != onlyonce.Executed {
				t.Fatalf("%s %s: %+v, %v", scope, value, res, err)
			}
		}
	}
	if err := r.clusters["west"].Kill(); err != nil {
		t.Fatal(err)
	}
	for name, engine := range map[string]*onlyonce.TxEngine[pgx.Tx]{"running": running, "started": r.start(t)} {
		for _, value := range []string{"atomic", "wrapped"} {
			if res, err := payRouted(t, engine, "east", value); err != nil || res.Status != onlyonce.Replayed {
				t.Errorf("%s: %s of the living home: %+v, %v", name, value, res, err)
			}
			if res, err := payRouted(t, engine, "east", value+name); err != nil || res.Status != onlyonce.Executed {
				t.Errorf("%s: a new %s of the living home: %+v, %v", name, value, res, err)
			}
			if res, err := payRouted(t, engine, "west", value+name); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
				t.Errorf("%s: a new %s of the killed home: %+v, %v", name, value, res, err)
			}
		}
		_, err := engine.Store().Claim(t.Context(), routedRequest("west", "k"))
		for try := 0; errors.Is(err, onlyonce.ErrUncertain) && try < 8; try++ { // connections that broke under a claim
			_, err = engine.Store().Claim(t.Context(), routedRequest("west", "k"))
		}
		if !errors.Is(err, onlyonce.ErrUnreachable) {
			t.Errorf("%s: claim at the killed home: %v", name, err)
		}
	}
	if err := r.clusters["west"].Start(); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"atomic", "wrapped"} {
		if res, err := payRouted(t, running, "west", value); err != nil || res.Status != onlyonce.Replayed {
			t.Errorf("%s of the home that is back: %+v, %v", value, res, err)
		}
	}
}
