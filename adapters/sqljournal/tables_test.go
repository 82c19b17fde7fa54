package sqljournal_test

import (
	"database/sql"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqljournal"
)

func TestConfigIsRefused(t *testing.T) {
	t.Parallel()
	for _, cfg := range []sqljournal.Config{
		{}, {Dialect: "oracle"}, {Dialect: sqljournal.SQLite, Lease: time.Millisecond}, {Dialect: sqljournal.SQLite, Lease: -time.Hour},
	} {
		_, err := sqljournal.New(t.Context(), sqlite(t).pool(t), cfg)
		wantCode(t, err, onlyonce.CodeConfig)
	}
	_, err := sqljournal.Statements("oracle")
	wantCode(t, err, onlyonce.CodeConfig)
	if got := (sqljournal.Config{}).WithDefaults().Lease; got != 30*time.Second {
		t.Errorf("the lease is %v", got)
	}
}

// Whatever a commit may lose or change is refused.
func TestSettingsAreRefused(t *testing.T) {
	t.Parallel()
	refused := func(name string, p func(t *testing.T) place) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := p(t)
			_, err := sqljournal.New(t.Context(), p.pool(t), p.config())
			wantCode(t, err, onlyonce.CodeConfig)
		})
	}
	file := func(settings string) func(t *testing.T) place {
		return func(t *testing.T) place {
			t.Helper()
			return place{sqljournal.SQLite, "sqlite", "file:" + filepath.Join(t.TempDir(), "journal.db") + settings}
		}
	}
	refused("sqlite rolls back by a file", file("?_pragma=synchronous(FULL)"))
	refused("sqlite syncs now and then", file("?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"))
	refused("sqlite does not sync", file("?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"))
	refused("sqlite in memory", func(*testing.T) place { return place{sqljournal.SQLite, "sqlite", ":memory:"} })
	refused("postgres commits later", func(t *testing.T) place {
		t.Helper()
		p := postgres(t)
		u, err := url.Parse(p.dsn)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("synchronous_commit", "off")
		u.RawQuery = q.Encode()
		p.dsn = u.String()
		return p
	})
	for name, setting := range map[string]string{
		"mysql is lax": "sql_mode=''", "mysql takes nothing for null": "sql_mode='STRICT_ALL_TABLES,EMPTY_STRING_IS_NULL'", "mysql does not commit": "autocommit=0",
	} {
		refused(name, func(t *testing.T) place {
			t.Helper()
			p := mariadb(t)
			p.dsn += "?" + strings.ReplaceAll(url.QueryEscape(setting), "%3D", "=")
			return p
		})
	}
}

// Several processes may make the tables at a time; who comes later finds them.
func TestTablesAreMadeAtOnce(t *testing.T) {
	t.Parallel()
	for name, fresh := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fresh(t)
			_, err := sqljournal.New(t.Context(), p.pool(t), sqljournal.Config{Dialect: p.dialect, SkipMigrate: true})
			wantCode(t, err, onlyonce.CodeConfig)
			var group sync.WaitGroup
			for n := range 4 {
				db := p.pool(t)
				group.Go(func() {
					j, err := sqljournal.New(t.Context(), db, p.config())
					if err == nil {
						_, _, err = j.Begin(t.Context(), entryOf(fmt.Sprint(n)))
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			db := p.pool(t)
			j := newJournal(t, db, sqljournal.Config{Dialect: p.dialect, SkipMigrate: true})
			if intents, err := j.Pending(t.Context(), "", 10); len(intents) != 4 || err != nil {
				t.Errorf("pending: %q, %v", intents, err)
			}
			run(t, db, `INSERT INTO onlyonce_journal_versions (version) VALUES (99)`)
			_, err = sqljournal.New(t.Context(), db, p.config())
			wantCode(t, err, onlyonce.CodeConfig)
		})
	}
}

// The printed statements make the same tables, may be run twice, and the way down ends
// in nothing.
func TestStatements(t *testing.T) {
	t.Parallel()
	for name, fresh := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fresh(t)
			db := p.pool(t)
			statements, err := sqljournal.Statements(p.dialect)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for _, statement := range statements {
					if strings.Contains(statement, "--") || strings.Contains(statement, ";") {
						t.Errorf("more than one statement: %s", statement)
					}
					run(t, db, statement)
				}
			}
			j := newJournal(t, db, sqljournal.Config{Dialect: p.dialect, SkipMigrate: true})
			begin(t, j, "i")
			down(t, db, p.dialect)
			_, _, err = j.Begin(t.Context(), entryOf("i"))
			wantCode(t, err, onlyonce.CodeStoreUnavailable)
			begin(t, newJournal(t, db, p.config()), "i")
		})
	}
}

// down runs the way down.
func down(t *testing.T, db *sql.DB, d sqljournal.Dialect) {
	t.Helper()
	files, err := sqljournal.Migrations(d)
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(files, "0001_init.down.sql")
	if err != nil {
		t.Fatal(err)
	}
	for statement := range strings.SplitSeq(string(text), ";\n") {
		if strings.Contains(statement, "DROP") {
			run(t, db, statement)
		}
	}
}

// Lists read an index, however many entries have ended.
func TestPlans(t *testing.T) {
	t.Parallel()
	p := sqlite(t)
	p.open(t)
	db := p.pool(t)
	for name, query := range map[string]string{
		"onlyonce_journal_open":  `SELECT intent FROM onlyonce_journal WHERE state = 'open' AND created_us >= 5 AND (created_us > 5 OR intent > 'a') ORDER BY created_us, intent LIMIT 5`,
		"onlyonce_journal_ended": `DELETE FROM onlyonce_journal WHERE intent IN (SELECT intent FROM onlyonce_journal WHERE ended_us < 5 AND state <> 'open' AND (locker IS NULL OR locked_until_us <= 5) ORDER BY ended_us LIMIT 5)`,
	} {
		rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, detail)
		}
		text := strings.Join(plan, "\n")
		if err := rows.Err(); err != nil || !strings.Contains(text, name) || strings.Contains(text, "TEMP B-TREE") {
			t.Errorf("%s, %v:\n%s", name, err, text)
		}
	}
}
