package testserver

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	if _, err := findPgBouncer(); err != nil {
		unavailable(t, err)
	}
	dsn := Postgres(t)
	pooled := PgBouncerWith(t, dsn, PgBouncerConfig{PoolSize: 1})

	// With a pool of one, two sessions can only alternate if each gives its server
	// connection back after every transaction, and both see the same backend.
	const statement = "SELECT pg_backend_pid()"
	var mu sync.Mutex
	pids := map[string]int{}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			out, err := query(t, pooled, statement)
			if err != nil {
				t.Errorf("query through pgbouncer: %v\n%s", err, out)
			}
			mu.Lock()
			defer mu.Unlock()
			pids[out]++
		})
	}
	wg.Wait()
	if len(pids) != 1 {
		t.Errorf("server processes %v, want one", pids)
	}
}

func TestPgBouncerClose(t *testing.T) {
	t.Parallel()
	b, err := newBouncer(Postgres(t), PgBouncerConfig{}.WithDefaults())
	if err != nil {
		unavailable(t, err)
	}
	if got := mustQuery(t, b.dsn(), "SELECT 1"); got != "1" {
		t.Errorf("through pgbouncer: %q, want 1", got)
	}
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	if listens(t, b.dsn()) {
		t.Error("pgbouncer still listens after close")
	}
	if _, err := os.Stat(b.folder.path); !os.IsNotExist(err) {
		t.Errorf("its folder after close: %v, want none", err)
	}
}

func TestPreparedLine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		version string
		n       int
		line    string
		old     bool
	}{
		{"1.18.0", 0, "", false},
		{"1.18.0", 10, "", true},
		{"1.21.0", 0, "max_prepared_statements = 0\n", false},
		{"1.25.1", 10, "max_prepared_statements = 10\n", false},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s_%d", tt.version, tt.n), func(t *testing.T) {
			t.Parallel()
			line, err := preparedLine("PgBouncer "+tt.version+"\nlibevent 2.1", tt.n)
			if line != tt.line || (err != nil) != tt.old {
				t.Errorf("preparedLine = %q, %v; want %q, old %t", line, err, tt.line, tt.old)
			}
		})
	}
}

// A password with a quote must not end its own setting.
func TestBouncerTargetQuotesPassword(t *testing.T) {
	t.Parallel()
	b := &bouncer{database: mustParse(t, "postgres://ann:it%27s@db/shop"), config: PgBouncerConfig{}.WithDefaults()}
	want := "host=db port=5432 dbname=shop user=ann password='it''s'"
	if got := b.target(); got != want {
		t.Errorf("target = %s, want %s", got, want)
	}
}
