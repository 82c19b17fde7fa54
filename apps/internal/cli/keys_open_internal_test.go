package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// commands are those of keys, about one key.
func commands(store string) [][]string {
	all := [][]string{
		{"keys", "list"},
		{"keys", "show", "k", "--scope", "acct"},
		{"keys", "settle", "k", "--scope", "acct", "--not-applied", "--actor", "ana", "--reason", "x"},
	}
	for i := range all {
		all[i] = append(all[i], "--store", store)
	}
	return all
}

// What is not there is not made: a store without tables is refused, and is as empty
// afterwards.
func TestKeysMakeNothing(t *testing.T) {
	t.Parallel()
	for kind, store := range programs() {
		if kind == "redis" { // which needs no tables
			continue
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			for _, command := range commands(url) {
				if out, errs, code := run(t, command...); code != exitUsage || out != "" || errs == "" {
					t.Errorf("%v: %d %s %s", command[:2], code, out, errs)
				}
			}
			list, err := keystore.Status(t.Context(), url)
			for _, m := range list {
				if m.Applied {
					t.Errorf("%+v was made", m)
				}
			}
			if kind == "dynamodb" { // whose table has no versions
				if onlyonce.CodeOf(err) != onlyonce.CodeConfig {
					t.Errorf("the table: %v", err)
				}
				return
			}
			if err != nil || len(list) == 0 {
				t.Errorf("%+v, %v", list, err)
			}
		})
	}
}

// A password in a URL is in no message, whatever is wrong.
func TestKeysHidePasswords(t *testing.T) {
	t.Parallel()
	for store, want := range map[string]int{
		"mysql://u:s3cret@127.0.0.1:1/d":                                exitWrong,
		"mysql://u:s3cret@h":                                            exitUsage,
		"mysql://u:s3c ret@h:x/d":                                       exitUsage,
		"redis://u:s3cret@127.0.0.1:1/0":                                exitWrong,
		"redis://u:s3cret@127.0.0.1:1/x?prefix=%z":                      exitUsage,
		"redis://u:s3c%zret@127.0.0.1:1/0":                              exitUsage,
		"postgres+portable://u:s3cret@127.0.0.1:1/d?connect_timeout=2":  exitWrong,
		"postgres+portable://u:s3cret@h:x/d":                            exitUsage,
		"postgres://u:s3cret@127.0.0.1:1/d?connect_timeout=2":           exitWrong,
		"postgres://u:s3cret@127.0.0.1:1/d?connect_timeout=2&schema=a":  exitWrong,
		"postgres://u:s3cret@h:x/d":                                     exitUsage,
		"dynamodb://table?region=r&endpoint=http://u:s3cret@h&sweep=no": exitUsage,
		"oracle://u:s3cret@h/d":                                         exitUsage,
	} {
		t.Run(keystore.Scheme(store), func(t *testing.T) {
			t.Parallel()
			for _, command := range commands(store) {
				out, errs, code := run(t, command...)
				if code != want || out != "" || strings.Contains(errs, "s3c") || errs == "" {
					t.Errorf("%s, %v: %d %s %s", store, command[:2], code, out, errs)
				}
			}
			// Those of the payments service alone.
			for _, command := range []string{"keys recover k --scope acct", "reconcile list"} {
				out, errs, code := run(t, append(strings.Fields(command), "--store", store)...)
				if code == exitDone || out != "" || strings.Contains(errs, "s3c") {
					t.Errorf("%s, %s: %d %s %s", store, command, code, out, errs)
				}
				if !servable(store) && !strings.Contains(errs, "payments service's own databases") {
					t.Errorf("%s, %s: %s", store, command, errs)
				}
			}
		})
	}
}

// An account that may only read is enough to look at keys.
func TestKeysByReader(t *testing.T) {
	t.Parallel()
	for kind, reader := range map[string]func(t *testing.T) (store, reader string){
		"postgres": postgresReader,
		"postgres+portable": func(t *testing.T) (string, string) {
			t.Helper()
			store, reader := postgresReader(t)
			return strings.Replace(store, "postgres", "postgres+portable", 1), strings.Replace(reader, "postgres", "postgres+portable", 1)
		},
		"mysql": mysqlReader,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			store, reader := reader(t)
			if err := keystore.Migrate(t.Context(), store); err != nil {
				t.Fatal(err)
			}
			answered(t, store, "k", 1, day)
			if kind != "mysql" { // whose grant is of the whole database
				grant(t, strings.Replace(store, "+portable", "", 1), reader)
			}
			if out, errs, code := run(t, "keys", "list", "--store", reader); code != exitDone || !strings.Contains(out, " k0 ") {
				t.Errorf("%d %s %s", code, out, errs)
			}
			if out, errs, code := run(t, "keys", "show", "k0", "--scope", "acct", "--store", reader); code != exitDone || !strings.Contains(out, "completed") {
				t.Errorf("%d %s %s", code, out, errs)
			}
		})
	}
}

// as is a URL with another user.
func as(t *testing.T, store, user string) string {
	t.Helper()
	u, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(user)
	return u.String()
}

// postgresReader is a database and the URL of a role that has no rights yet.
func postgresReader(t *testing.T) (store, reader string) {
	t.Helper()
	store = testserver.Postgres(t)
	role := "reader_" + strings.ToLower(onlyonce.NewToken().String()[:16])
	postgresExec(t, store, `CREATE ROLE "`+role+`" LOGIN`)
	t.Cleanup(func() { postgresExec(t, store, `DROP OWNED BY "`+role+`"; DROP ROLE "`+role+`"`) })
	return store, as(t, store, role)
}

func grant(t *testing.T, store, reader string) {
	t.Helper()
	u, err := url.Parse(reader)
	if err != nil {
		t.Fatal(err)
	}
	postgresExec(t, store, `GRANT SELECT ON ALL TABLES IN SCHEMA public TO "`+u.User.Username()+`"`)
}

func postgresExec(t *testing.T, store, statements string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// mysqlReader is a database and the URL of an account that may select from it.
func mysqlReader(t *testing.T) (store, reader string) {
	t.Helper()
	store = testserver.MySQL(t)
	name := "r" + strings.ToLower(onlyonce.NewToken().String()[:16])
	account := fmt.Sprintf("'%s'@'%%'", name)
	mysqlExec(t, store, "CREATE USER "+account)
	mysqlExec(t, store, "GRANT SELECT ON `"+store[strings.LastIndex(store, "/")+1:]+"`.* TO "+account)
	return store, as(t, store, name)
}

// mysqlExec runs a statement.
func mysqlExec(t *testing.T, store, statement string) {
	t.Helper()
	u, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	cfg.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pool := sql.OpenDB(connector)
	defer pool.Close()
	if _, err := pool.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// weak is a store that promises nothing beyond the contract.
type weak struct{ onlyonce.Store }

func (weak) Features() onlyonce.Features { return onlyonce.Features{Name: "weak"} }

// A store without the powers for operators shows one key; for the rest it is said what
// to do instead.
func TestKeysWithoutPowers(t *testing.T) {
	t.Parallel()
	s, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), claimOf("k", day, day))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: c.Record.Owner(), Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	o := opened{Store: &keystore.Store{Store: weak{s}, Kind: "weak"}}
	v, err := o.detail(t.Context(), c.Record.Key)
	if err != nil || v.State != "in_doubt" || v.RequestKept || len(v.Steps)+len(v.Audit) != 0 || len(v.Next) == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	_, listed := o.operators()
	_, settled := (&keysSettleCmd{}).check(t.Context(), o, onlyonce.Settlement{Key: c.Record.Key})
	for _, err := range []error{listed, settled} {
		e, ok := errors.AsType[*usageError](err)
		if !ok || !strings.Contains(e.text, "kind weak cannot list its keys, and keeps no audit") || !strings.Contains(e.hint, "keys show") {
			t.Errorf("got %v", err)
		}
	}
	for _, command := range commands("memory:") {
		if _, errs, code := run(t, command...); code != exitUsage || !strings.Contains(errs, "in the process that has it") {
			t.Errorf("%d %s", code, errs)
		}
	}
}

// Which databases the payments service could use.
func TestServable(t *testing.T) {
	t.Parallel()
	for store, want := range map[string]bool{
		"sqlite:x.db": true, "postgres://h/d": true, "postgresql://h/d?sslmode=disable": true, "postgres://h/d?y=%": true,
		"postgres://h/d?schema=x": false, "postgres+portable://h/d": false, "mysql://h/d": false, "memory:": false, "": false,
	} {
		if got := servable(store); got != want {
			t.Errorf("%q: %t", store, got)
		}
	}
}
