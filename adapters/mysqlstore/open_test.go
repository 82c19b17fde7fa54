package mysqlstore_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// Sessions in which a write may do something else than it says are refused, with a
// word on what to do.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	for name, tt := range map[string]struct {
		url  string
		cfg  mysqlstore.Config
		hint string
	}{
		"not strict":       {url: with(t, dsn, "sql_mode", "'NO_ENGINE_SUBSTITUTION'"), hint: "STRICT_TRANS_TABLES"},
		"empty is null":    {url: with(t, dsn, "sql_mode", "'STRICT_ALL_TABLES,EMPTY_STRING_IS_NULL'"), hint: "EMPTY_STRING_IS_NULL"},
		"no autocommit":    {url: with(t, dsn, "autocommit", "0"), hint: "autocommit"},
		"many statements":  {url: with(t, dsn, "multiStatements", "true"), hint: "multiStatements"},
		"no database":      {url: dsn[:strings.LastIndex(dsn, "/")+1], hint: "must name a database"},
		"another scheme":   {url: "postgres://app@localhost/db", hint: "mysql://"},
		"the driver's DSN": {url: "app:secret@tcp(localhost:3306)/db", hint: "must begin with"},
		"parameters":       {url: with(t, dsn, "readTimeout", "soon"), hint: "parameters"},
		"no such variable": {url: with(t, dsn, "no_such_variable", "1"), hint: "parameters"},
		"unsafe charset":   {url: with(t, dsn, "collation", "big5_chinese_ci"), hint: "do not go together"},
		"read uncommitted": {url: with(t, dsn, isolationName(t, dsn), "'READ-UNCOMMITTED'"), hint: "READ UNCOMMITTED"},
		"chained":          {url: with(t, dsn, "completion_type", "1"), hint: "completion_type"},
		"released":         {url: with(t, dsn, "completion_type", "'RELEASE'"), hint: "completion_type"},
		"charset":          {url: with(t, dsn, "charset", "gbk"), hint: "character set gbk"},
		"charset variable": {url: with(t, dsn, "character_set_client", "'sjis'"), hint: "character set sjis"},
		"select limit":     {url: with(t, dsn, "sql_select_limit", "10"), hint: "sql_select_limit=10"},
		"no binary log":    {url: with(t, dsn, "sql_log_bin", "0"), hint: "sql_log_bin"},
		"isolation":        {url: dsn, cfg: mysqlstore.Config{Isolation: sql.LevelReadUncommitted}, hint: "Isolation"},
		"lock timeout":     {url: dsn, cfg: mysqlstore.Config{LockTimeout: time.Millisecond}, hint: "LockTimeout"},
		"idle timeout":     {url: dsn, cfg: mysqlstore.Config{IdleTimeout: time.Millisecond}, hint: "IdleTimeout"},
		"statement":        {url: dsn, cfg: mysqlstore.Config{StatementTimeout: 1}, hint: "StatementTimeout"},
		"connections":      {url: dsn, cfg: mysqlstore.Config{MaxConns: -1}, hint: "MaxConns"},
		"no tables":        {url: dsn, cfg: mysqlstore.Config{SkipMigrate: true}, hint: "migrate the database first"},
	} {
		s, err := mysqlstore.Open(t.Context(), tt.url, tt.cfg)
		if err == nil {
			s.Close()
		}
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), tt.hint) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want a hint about %q", name, err, tt.hint)
		}
	}
	if _, err := mysqlstore.New(t.Context(), nil, mysqlstore.Config{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("no pool: %v", err)
	}
}

// C3: sessions that read what is not committed replay answers that may never be. Open
// sets its own; New refuses a pool of them.
func TestReadUncommitted(t *testing.T) {
	t.Parallel()
	dsn := testserver.NewMariaDB(t, "--transaction-isolation=READ-UNCOMMITTED").Database(t)
	if _, err := mysqlstore.New(t.Context(), admin(t, dsn), mysqlstore.Config{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "READ UNCOMMITTED") {
		t.Errorf("new: %v", err)
	}
	s, other := open(t, dsn, mysqlstore.Config{}), open(t, dsn, mysqlstore.Config{})
	owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
	tx, err := s.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() // it never commits
	if settled, err := s.CompleteTx(t.Context(), tx, owner, created()); err != nil || !settled.Held {
		t.Fatalf("complete: %+v, %v", settled, err)
	}
	want(t, other, again(request("k")), onlyonce.Busy)
}

// A table of another engine has neither transactions nor row locks.
func TestOtherEngineIsRefused(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	open(t, dsn, mysqlstore.Config{})
	exec(t, admin(t, dsn), `ALTER TABLE onlyonce_holds ENGINE = MyISAM`)
	if _, err := mysqlstore.Open(t.Context(), dsn, mysqlstore.Config{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "onlyonce_holds") {
		t.Errorf("opened on MyISAM: %v", err)
	}
}

// B80: Open's sessions do not wait for long, neither for a lock nor for a peer that
// has vanished.
func TestSessionsOfOpen(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	read := func(s *mysqlstore.Store, name string) string {
		t.Helper()
		return one[string](t, s.DB(), `SELECT @@SESSION.`+name)
	}
	plain := open(t, dsn, mysqlstore.Config{})
	for name, value := range map[string]string{"innodb_lock_wait_timeout": "10", "wait_timeout": "30", isolationName(t, dsn): "READ-COMMITTED"} {
		if got := read(plain, name); got != value {
			t.Errorf("%s is %s, want %s", name, got, value)
		}
	}
	s := open(t, with(t, dsn, "wait_timeout", "77"), mysqlstore.Config{LockTimeout: 1500 * time.Millisecond})
	if got := read(s, "innodb_lock_wait_timeout") + read(s, "wait_timeout"); got != "277" {
		t.Errorf("settings of one's own: %s, want 2 and 77", got)
	}
	before := one[int](t, plain.DB(), `SELECT @@GLOBAL.wait_timeout`)
	unset := open(t, dsn, mysqlstore.Config{IdleTimeout: -1, LockTimeout: -1, StatementTimeout: -1})
	if got := one[int](t, unset.DB(), `SELECT @@SESSION.wait_timeout`); got != before {
		t.Errorf("wait_timeout is %d, want the server's %d", got, before)
	}
	if f := plain.Features(); !f.Durable || f.Name != "mysql" || f.Observes || f.CommitDecides {
		t.Errorf("features: %+v", f)
	}
}

// A server that does not flush its log at every commit may forget what it confirmed.
func TestDurableOnlyWhereTheServerIs(t *testing.T) {
	t.Parallel()
	m := testserver.NewMariaDB(t, "--innodb-flush-log-at-trx-commit=2")
	if open(t, m.Database(t), mysqlstore.Config{}).Features().Durable {
		t.Error("the store calls itself durable")
	}
}

// An answer that is bigger than a packet is refused before it is sent, and a smaller
// one takes its place.
func TestAnswerTooBig(t *testing.T) {
	t.Parallel()
	s := open(t, testserver.MySQL(t), mysqlstore.Config{})
	owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
	most := one[int](t, s.DB(), `SELECT @@max_allowed_packet`)
	big := onlyonce.Answer{Status: 200, Body: make([]byte, most+1)}
	if _, err := s.Complete(t.Context(), owner, big); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("complete: %v", err)
	}
	complete(t, s, owner)
}

// What is longer than its column is refused, never cut off.
func TestTooLongIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, testserver.MySQL(t), mysqlstore.Config{})
	req := request("k")
	req.Operation = strings.Repeat("o", 1025)
	if _, err := s.Claim(t.Context(), req); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("claim: %v", err)
	}
	if _, found, err := s.Get(t.Context(), req.Key); found || err != nil {
		t.Errorf("it left a record: %v, %v", found, err)
	}
}

// Text is bytes on its way in and out, whatever the session's character set and
// modes (B33, B34).
func TestHostileText(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	for name, url := range map[string]string{
		"utf8mb4":              dsn,
		"latin1":               with(t, dsn, "collation", "latin1_swedish_ci"),
		"no backslash escapes": with(t, dsn, "sql_mode", "'TRADITIONAL,NO_BACKSLASH_ESCAPES,ANSI_QUOTES'"),
	} {
		s := open(t, url, mysqlstore.Config{})
		req := request(name + ` '"\%_`)
		req.Key.Scope = "账户 \U0001F4B6 ácct "
		req.Operation, req.Resource = "op 'x\\\x00\xff\U0001F4B6", "order/é\\'\U0001F4B6 "
		req.Keep, req.Fingerprint.Parts = []byte("\x00\xff'\\\x1a"), []byte("\\'\x00\x1a\xfe")
		req.Abandon = onlyonce.AbandonResume
		owner := want(t, s, req, onlyonce.Won).Record.Owner()
		step := onlyonce.Intent{Name: "é '\\", Provider: "p\\", DerivedKey: "'", Reference: "\"", Request: []byte("\\\x00'")}
		if held, err := s.BeginStep(t.Context(), owner, step); !held || err != nil {
			t.Fatalf("begin step: %v, %v", held, err)
		}
		rec, _, err := s.Get(t.Context(), req.Key)
		if err != nil || rec.Key != req.Key || rec.Operation != req.Operation || rec.Resource != req.Resource ||
			string(rec.Fingerprint.Parts) != string(req.Fingerprint.Parts) {
			t.Errorf("%s: %+v, %v", name, rec, err)
		}
		if keep, _, err := s.Kept(t.Context(), req.Key); err != nil || string(keep) != string(req.Keep) {
			t.Errorf("%s: kept %q, %v", name, keep, err)
		}
		steps, err := s.Steps(t.Context(), req.Key)
		if err != nil || len(steps) != 1 || steps[0].Name != step.Name || string(steps[0].Request) != string(step.Request) {
			t.Errorf("%s: steps %+v, %v", name, steps, err)
		}
		answer := onlyonce.Answer{Status: 200, Body: []byte("\\'\x00\xff\x1a\n")}
		if settled, err := s.Complete(t.Context(), owner, answer); err != nil || !settled.Held {
			t.Fatalf("complete: %+v, %v", settled, err)
		}
		if c := want(t, s, again(req), onlyonce.Replay); string(c.Record.Answer.Body) != string(answer.Body) {
			t.Errorf("%s: replayed %q", name, c.Record.Answer.Body)
		}
	}
}
