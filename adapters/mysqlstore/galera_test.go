package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// TestGalera is the contract on a cluster of three, one store on the first node and
// another on the second; then a node dies under load.
func TestGalera(t *testing.T) { //nolint:tparallel // a node dies only when all else is done
	t.Parallel()
	cluster := testserver.NewGalera(t)
	ground := func(t *testing.T) *ground {
		t.Helper()
		return &ground{t: t, setting: setting{cfg: mysqlstore.Config{MaxConns: 16, MaxClockSkew: -1}}, dsn: func(t *testing.T) (string, string) {
			t.Helper()
			urls := databases(t, cluster)
			return urls[0], urls[1]
		}}
	}
	t.Run("whole", func(t *testing.T) {
		t.Run("contract", func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, ground(t).backend())
		})
		t.Run("transactions", func(t *testing.T) {
			t.Parallel()
			storetest.RunTx(t, ground(t).txBackend())
		})
		t.Run("history", func(t *testing.T) {
			t.Parallel()
			storetest.RunHistory(t, ground(t).backend())
		})
		t.Run("features", func(t *testing.T) {
			t.Parallel()
			checkGaleraFeatures(t, databases(t, cluster)[2])
		})
		t.Run("a duplicate on the same node", func(t *testing.T) {
			t.Parallel()
			checkBusyOnNode(t, databases(t, cluster))
		})
		t.Run("how long ago a step was sent", func(t *testing.T) {
			t.Parallel()
			checkSendsWatched(t, databases(t, cluster))
		})
		t.Run("a step beside other nodes", func(t *testing.T) {
			t.Parallel()
			checkStepsBesideOtherNodes(t, databases(t, cluster))
		})
		t.Run("an owner comes through another node", func(t *testing.T) {
			t.Parallel()
			checkOwnerMoves(t, databases(t, cluster))
		})
	})
	t.Run("a node that refuses a commit", func(t *testing.T) { checkRefusedCommit(t, databases(t, cluster)) })
	t.Run("a_node_dies_under_load", func(t *testing.T) { checkNodeDies(t, cluster) })
}

// databases makes a database, and waits until every node has it.
func databases(t *testing.T, cluster *testserver.Galera) []string {
	t.Helper()
	urls := cluster.Database(t)
	for _, url := range urls {
		slash := strings.LastIndex(url, "/") + 1
		db := admin(t, url[:slash])
		db.SetMaxOpenConns(1)
		exec(t, db, `SET wsrep_sync_wait = 7`)
		if n := one[int](t, db, `SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?`, url[slash:]); n != 1 {
			t.Fatalf("a node does not have the database %s", url[slash:])
		}
	}
	return urls
}

// What the store finds out by itself, and what it refuses.
func checkGaleraFeatures(t *testing.T, dsn string) {
	t.Helper()
	s := open(t, dsn, mysqlstore.Config{})
	if f := s.Features(); f.Name != "galera" || !f.Observes || !f.CommitDecides || !f.Transactions {
		t.Errorf("features: %+v", f)
	}
	_, err := mysqlstore.New(t.Context(), admin(t, dsn), mysqlstore.Config{})
	if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "wsrep_sync_wait=7") {
		t.Errorf("a pool whose nodes answer with what they have not applied: %v", err)
	}
	_, err = mysqlstore.Open(t.Context(), with(t, dsn, "wsrep_on", "OFF"), mysqlstore.Config{})
	if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "wsrep_on") {
		t.Errorf("sessions out of the cluster: %v", err)
	}
}

// Every node knows at once what another has confirmed: an owner that comes through
// another node each time never hears that it lost its key.
func checkOwnerMoves(t *testing.T, urls []string) {
	t.Helper()
	var stores []*mysqlstore.Store
	for _, url := range urls {
		stores = append(stores, open(t, url, mysqlstore.Config{MaxConns: 4}))
	}
	at := func(i int) *mysqlstore.Store { return stores[i%len(stores)] }
	for i := range 30 {
		req := request(fmt.Sprint(i))
		owner := want(t, at(i), req, onlyonce.Won).Record.Owner()
		if held, err := at(i+1).Renew(t.Context(), owner, time.Minute); !held || err != nil {
			t.Errorf("renew: %v, %v", held, err)
		}
		want(t, at(i+1), again(req), onlyonce.Busy)
		complete(t, at(i+2), owner)
		want(t, at(i), again(req), onlyonce.Replay)
	}
}

// load is clients of all nodes that claim, write a business row and answer in one
// transaction, as often as it takes, and with the same token when an outcome is
// unknown.
type load struct {
	stores []*mysqlstore.Store
	dead   atomic.Int32 // the node that was killed, counted from 1

	mu        sync.Mutex
	confirmed map[string]bool
	conflicts int
}

// store is the n-th store whose node is not known to be dead.
func (l *load) store(n int) *mysqlstore.Store {
	if dead := int(l.dead.Load()) - 1; n%len(l.stores) == dead {
		n++
	}
	return l.stores[n%len(l.stores)]
}

// run runs one request until it is decided.
func (l *load) run(ctx context.Context, n int, value string) error {
	req := request(value)
	for try := range 2000 {
		c, settled, err := l.store(n+try).Atomic(ctx, req, writes(value))
		switch {
		case err == nil && (settled.Held || c.Verdict == onlyonce.Replay):
			l.mu.Lock()
			l.confirmed[value] = true
			l.mu.Unlock()
			return nil
		case err == nil && c.Verdict != onlyonce.Busy:
			return fmt.Errorf("%s: %v", value, c.Verdict)
		case errors.Is(err, onlyonce.ErrConflict):
			l.mu.Lock()
			l.conflicts++
			l.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s was never decided", value)
}

// C1, C3: three clients a key, each on another node, and a node that dies in the
// middle (SIGKILL): one business row a key, and whatever was confirmed replays from
// every survivor.
func checkNodeDies(t *testing.T, cluster *testserver.Galera) {
	t.Helper()
	urls := databases(t, cluster)
	l := &load{confirmed: map[string]bool{}}
	for _, url := range urls {
		l.stores = append(l.stores, open(t, url, mysqlstore.Config{MaxConns: 12}))
	}
	exec(t, l.stores[0].DB(), `CREATE TABLE business (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(255))`)
	const keys, killAt = 150, 40
	var wg sync.WaitGroup
	var next atomic.Int32
	for client := range 9 {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= 3*keys {
					return
				}
				if i == 3*killAt {
					if err := cluster.Kill(2); err != nil {
						t.Error(err)
					}
					l.dead.Store(3)
				}
				if err := l.run(t.Context(), client, fmt.Sprint(i/3)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d conflicts", l.conflicts)
	if len(l.confirmed) != keys {
		t.Errorf("%d of %d keys were confirmed", len(l.confirmed), keys)
	}
	for _, s := range l.stores[:2] {
		for value := range l.confirmed {
			want(t, s, again(request(value)), onlyonce.Replay)
		}
		if rows, names := ledger(t, s.DB()); rows != keys || names != keys {
			t.Errorf("a survivor has %d business rows for %d names, want %d", rows, names, keys)
		}
	}
}

// ledger counts business rows, and names among them.
func ledger(t *testing.T, db *sql.DB) (rows, names int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*), COUNT(DISTINCT name) FROM business`).Scan(&rows, &names); err != nil {
		t.Fatal(err)
	}
	return rows, names
}
