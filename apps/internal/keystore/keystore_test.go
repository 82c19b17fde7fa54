package keystore_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) { apptest.Exit(testserver.Run(m)) }

// each runs a test on an empty store of every kind that keeps what it is given.
func each(t *testing.T, fn func(t *testing.T, url string)) {
	t.Helper()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, store(t))
		})
	}
}

// open opens a store whose tables are there.
func open(t *testing.T, url string) *keystore.Store {
	t.Helper()
	s, err := keystore.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func migrate(t *testing.T, url string) {
	t.Helper()
	if err := keystore.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
}

// claim is a claim of a key.
func claim(value string) onlyonce.ClaimRequest {
	return onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct", Value: value}, Operation: "POST /charges", Attempt: onlyonce.NewToken(),
		Fingerprint: onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s", Policy: "p"}, Sum: [32]byte{1}},
		Lease:       time.Minute, Retention: time.Hour,
	}
}

func mustClaim(t *testing.T, s onlyonce.Store, req onlyonce.ClaimRequest, want onlyonce.Verdict) onlyonce.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), req)
	if err != nil || c.Verdict != want {
		t.Fatalf("claim of %s: %s, %v; want %s", req.Key.Value, c.Verdict, err, want)
	}
	return c
}

// A store is opened as it is: without its tables it is refused, and nothing is made.
func TestOpen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		t.Helper()
		for range 2 {
			if _, err := keystore.Open(t.Context(), url); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "migrate up") {
				t.Errorf("a store without tables: %v", err)
			}
		}
		if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
			if _, err := os.Stat(path); err == nil {
				t.Error("the file was made")
			}
		}
		migrate(t, url)
		s := open(t, url)
		owner := mustClaim(t, s, claim("k"), onlyonce.Won).Record.Owner()
		if settled, err := s.Complete(t.Context(), owner, onlyonce.Answer{Status: 201}); err != nil || !settled.Held {
			t.Errorf("complete: %+v, %v", settled, err)
		}
		mustClaim(t, s, claim("k"), onlyonce.Replay)
		if s.Kind != keystore.Scheme(url) || s.Features().SingleProcess {
			t.Errorf("kind %q, %+v", s.Kind, s.Features())
		}
		if n, err := s.Rounds(t.Context()); n != 1 || err != nil {
			t.Errorf("%d rounds, %v", n, err)
		}
	})
}

// A store in memory says that it is of this process alone, and has nothing that must
// be migrated or could be measured.
func TestMemory(t *testing.T) {
	t.Parallel()
	s := open(t, "memory:")
	mustClaim(t, s, claim("k"), onlyonce.Won)
	mustClaim(t, open(t, "memory:"), claim("k"), onlyonce.Won)
	if !s.Features().SingleProcess || s.Kind != "memory" {
		t.Errorf("kind %q, %+v", s.Kind, s.Features())
	}
	if n, err := s.Rounds(t.Context()); n != 1 || err != nil {
		t.Errorf("%d rounds, %v", n, err)
	}
	_, sized := s.Size(t.Context())
	_, scratched := keystore.Scratch(t.Context(), "memory:")
	if list, err := keystore.Status(t.Context(), "memory:"); len(list) != 0 || err != nil {
		t.Errorf("migrations %+v, %v", list, err)
	}
	if err := keystore.Migrate(t.Context(), "memory:"); err != nil {
		t.Error(err)
	}
	for _, err := range []error{sized, scratched, keystore.Print(&strings.Builder{}, "memory:")} {
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "memory") {
			t.Errorf("got %v", err)
		}
	}
}

// What cannot be understood is refused with what can be, and without the password.
func TestURLs(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                                "begins with its kind",
		"onlyonce.db":                     "begins with its kind",
		"oracle://u:secret@h/d":           `no kind of store called "oracle"`,
		"postgresx://u:secret@h/d":        `no kind of store called "postgresx"`,
		"postgres://u:sec ret@h:x/d?y=%":  "cannot be read",
		"postgres://u:secret@h/d?pool=%z": "cannot be read",
		"sqlite:":                         "names a file",
		"sqlite::memory:":                 "names a file",
		"memory:x":                        "nothing behind the colon",
	} {
		_, err := keystore.Open(t.Context(), url)
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sec") {
			t.Errorf("%q gives %v, want %q", url, err, want)
		}
	}
	_, err := keystore.Open(t.Context(), "oracle:x")
	for _, form := range keystore.Forms() {
		if !strings.Contains(err.Error(), form) {
			t.Errorf("%v does not name %s", err, form)
		}
	}
}

// A server that is not there is not a wrong URL.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	url := "postgres://u:secret@127.0.0.1:1,127.0.0.1:2/d?connect_timeout=2"
	_, opened := keystore.Open(t.Context(), url)
	_, scratched := keystore.Scratch(t.Context(), url)
	for _, err := range []error{opened, scratched, keystore.Migrate(t.Context(), url)} {
		if onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || !strings.Contains(err.Error(), "does not answer at 127.0.0.1:1") || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
	}
}

// The tables may be in a schema, as the store's own configuration has it.
func TestSchema(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	url := dsn + `&schema=My"Keys`
	migrate(t, url)
	s := open(t, url)
	mustClaim(t, s, claim("k"), onlyonce.Won)
	if size, err := s.Size(t.Context()); err != nil || size.Keys != 1 {
		t.Errorf("size %+v, %v", size, err)
	}
	if n, err := s.Rounds(t.Context()); n != 1 || err != nil {
		t.Errorf("%d rounds, %v", n, err)
	}
	if _, err := keystore.Open(t.Context(), dsn); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("outside of the schema: %v", err)
	}
}

// fill completes so many keys with an answer of a size.
func fill(t *testing.T, s onlyonce.Store, prefix string, keys, size int) {
	t.Helper()
	for i := range keys {
		req := claim(prefix + strings.Repeat("x", i))
		if _, err := s.Complete(t.Context(), mustClaim(t, s, req, onlyonce.Won).Record.Owner(), onlyonce.Answer{Status: 201, Body: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
}

// What the table takes is measured without a write.
func TestSize(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		t.Helper()
		migrate(t, url)
		s := open(t, url)
		empty, err := s.Size(t.Context())
		if err != nil || empty.Keys != 0 {
			t.Errorf("an empty table: %+v, %v", empty, err)
		}
		fill(t, s, "k", 200, 1500)
		full, err := s.Size(t.Context())
		if err != nil || full.Keys != 200 || full.Table-empty.Table < 200*1500 || full.Index < 200*16 || full.Index > full.Table {
			t.Errorf("200 keys of 1500 bytes: %+v, empty %+v, %v", full, empty, err)
		}
	})
}

// A scratch store works like any other, touches nothing of the store beside it, and
// is gone when it is closed, even if the context has ended by then.
func TestScratch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		t.Helper()
		before := around(t, url)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s, err := keystore.Scratch(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, s, "k", 3, 10)
		if size, err := s.Size(t.Context()); err != nil || size.Keys != 3 || s.Kind != keystore.Scheme(url) {
			t.Errorf("size %+v of a %s, %v", size, s.Kind, err)
		}
		if around(t, url) == before {
			t.Error("nothing was made")
		}
		stop()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if after := around(t, url); after != before {
			t.Errorf("it leaves %q, before it was %q", after, before)
		}
	})
}

// around lists what is beside a store: schemas and tables, or files.
func around(t *testing.T, url string) string {
	t.Helper()
	path, ok := strings.CutPrefix(url, "sqlite:")
	if ok {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(files, " ")
	}
	conn := connect(t, url)
	var names string
	err := conn.QueryRow(t.Context(), `SELECT coalesce(string_agg(nspname || '.' || relname, ' ' ORDER BY nspname, relname), '') FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE nspname NOT LIKE 'pg\_%' AND nspname <> 'information_schema'`).Scan(&names)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// Where nothing may be made, that is said.
func TestScratchNowhere(t *testing.T) {
	t.Parallel()
	_, err := keystore.Scratch(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "none", "x.db"))
	if onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || !strings.Contains(err.Error(), "must exist") {
		t.Errorf("got %v", err)
	}
	dsn := testserver.Postgres(t)
	conn := connect(t, dsn)
	role := "reader_" + strings.ToLower(conn.Config().Database[max(0, len(conn.Config().Database)-20):])
	if _, err := conn.Exec(t.Context(), `CREATE ROLE "`+role+`" LOGIN`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = conn.Exec(context.WithoutCancel(t.Context()), `DROP ROLE "`+role+`"`) })
	url := strings.Replace(dsn, "://"+conn.Config().User+"@", "://"+role+"@", 1)
	if url == dsn {
		t.Skip("the server's URL has another form")
	}
	if _, err := keystore.Scratch(t.Context(), url); err == nil || !strings.Contains(err.Error(), "scratch schema") {
		t.Errorf("without the right to make a schema: %v", err)
	}
}
