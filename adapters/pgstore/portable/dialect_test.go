package portable

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// primaryKeys are the columns of each table's primary key, in order.
func primaryKeys() map[string]string {
	return map[string]string{
		"onlyonce_portable_schema":    "version",
		"onlyonce_portable_keys":      "scope, key",
		"onlyonce_portable_resources": "scope, resource",
		"onlyonce_portable_steps":     "scope, key, origin, name, occurrence",
		"onlyonce_portable_settings":  "kind, id",
		"onlyonce_portable_audit":     "scope, key, ordinal",
		"onlyonce_portable_sweepers":  "name",
	}
}

// forbidden is what some of the engines do not have, or have otherwise.
func forbidden() map[string]*regexp.Regexp {
	all := map[string]*regexp.Regexp{}
	for what, pattern := range map[string]string{
		"a locking clause":          `FOR\s+(NO\s+KEY\s+)?(UPDATE|SHARE|KEY)|SKIP\s+LOCKED|NOWAIT`,
		"an advisory lock":          `pg_(try_)?advisory`,
		"LOCK TABLE":                `\bLOCK\b`,
		"a savepoint":               `SAVEPOINT|ROLLBACK\s+TO`,
		"notifications":             `\b(UN)?LISTEN\b|\bNOTIFY\b`,
		"a sequence":                `SERIAL\d?\b|IDENTITY|SEQUENCE|nextval`,
		"a temporary table":         `\bTEMP(ORARY)?\b|UNLOGGED`,
		"code in the server":        `TRIGGER|PLPGSQL|FUNCTION|PROCEDURE|\$\$|(^|;)\s*DO\b|EXTENSION`,
		"an update on conflict":     `DO\s+UPDATE`,
		"a constraint on conflict":  `ON\s+CONSTRAINT`,
		"WITH":                      `\bWITH\b|MATERIALIZED`,
		"RETURNING":                 `RETURNING`,
		"a partial index":           `CREATE\s+(UNIQUE\s+)?INDEX[^;]*\bWHERE\b`,
		"an index on an expression": `CREATE\s+(UNIQUE\s+)?INDEX[^;]*\([^;)]*\(`,
		"uniqueness of its own":     `\bUNIQUE\b`,
		"a foreign key":             `REFERENCES|FOREIGN`,
		"a generated column":        `GENERATED|\bDEFAULT\b`,
		"a collation":               `COLLATE`,
		"a change of a table":       `ALTER|TRUNCATE|PARTITION|CONCURRENTLY|TABLESPACE`,
		"a cast":                    `::|\bCAST\b`,
		"an array":                  `\bARRAY\b|\bANY\b|\[\]|unnest`,
		"JSON":                      `json`,
		"a window":                  `\bOVER\b|LATERAL|DISTINCT\s+ON`,
		"MERGE":                     `\bMERGE\b`,
		"another table in a write":  `UPDATE\b[^;]*\bSET\b[^;]*\bFROM\b|DELETE\b[^;]*\bUSING\b`,
		"a comparison of rows":      `\([^()]*,[^()]*\)\s*(>|<|=|IN\b)`,
		"arithmetic with times":     `interval|extract|date_|to_timestamp|\btimestamp(tz)?\b|\bAT\s+TIME\b`,
		"a volatile function":       `\bnow\(|random\(|gen_random|uuid|statement_timestamp|timeofday|txid|pg_sleep`,
		"a setting of the session":  `\bset_config|current_setting|\bSET\s+(SESSION|lock|statement|search|transaction)`,
		"a catalogue of PostgreSQL": `pg_catalog|pg_class|information_schema|regclass`,
	} {
		all[what] = regexp.MustCompile(`(?is)` + pattern)
	}
	return all
}

var (
	writesTo   = regexp.MustCompile(`(?is)^(INSERT INTO|UPDATE|DELETE FROM)\s+\{s\}(\w+)`)
	onConflict = regexp.MustCompile(`(?is)ON CONFLICT \(([^)]*)\) DO NOTHING$`)
	columnType = regexp.MustCompile(`(?m)^\s+(\w+)\s+(\w+)(\s+NOT NULL)?,?$`)
	tableKey   = regexp.MustCompile(`(?s)CREATE TABLE IF NOT EXISTS (\w+) \((.*?)PRIMARY KEY \(([^)]*)\)`)
)

// faults is all that is wrong with a statement. It is one statement without a
// semicolon; the clock's own is the only one that may ask for it.
func faults(sql string) []string {
	var found []string
	for what, pattern := range forbidden() {
		if pattern.MatchString(sql) {
			found = append(found, what)
		}
	}
	if strings.Contains(sql, ";") {
		found = append(found, "two statements in one")
	}
	if strings.Contains(sql, "clock_timestamp") && sql != clockOfServer {
		found = append(found, "a volatile function")
	}
	if w := writesTo.FindStringSubmatch(sql); w != nil {
		found = append(found, faultsOfWrite(sql, strings.ToUpper(w[1]), w[2])...)
	}
	slices.Sort(found)
	return found
}

// faultsOfWrite: a write is of one row by its whole primary key, decided by what was
// read.
func faultsOfWrite(sql, verb, table string) []string {
	var found []string
	key, known := primaryKeys()[table]
	if !known {
		found = append(found, "an unknown table")
	}
	if strings.Contains(strings.ToUpper(sql), "SELECT") {
		found = append(found, "a subquery in a write")
	}
	if verb == "INSERT INTO" {
		if target := onConflict.FindStringSubmatch(sql); target == nil || target[1] != key {
			found = append(found, "a conflict on other columns than the primary key")
		}
		return found
	}
	_, where, _ := strings.Cut(sql, "WHERE")
	names := strings.Split(key, ", ")
	if table == "onlyonce_portable_keys" {
		names = append(names, "fence", "attempt")
		if !strings.Contains(sql, "SET keep =") { // which comes behind a write that names all
			names = append(names, "state", "version")
		}
	}
	for _, name := range names {
		if !regexp.MustCompile(`\b` + name + ` = \$\d`).MatchString(where) {
			found = append(found, "a write that does not name "+name)
		}
	}
	return found
}

// sqlOf evaluates the string constants of a package's files, and gives every other
// string that looks like SQL under its position.
func sqlOf(t *testing.T) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	consts, all := map[string]ast.Expr{}, map[string]string{}
	inConst := map[ast.Node]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						consts[name.Name] = spec.Values[i]
						ast.Inspect(spec.Values[i], func(n ast.Node) bool { inConst[n] = true; return true })
					}
				}
			}
			return true
		})
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && !inConst[n] {
				if text := unquote(t, lit); looksLikeSQL(text) {
					all[fset.Position(lit.Pos()).String()] = text
				}
			}
			return true
		})
	}
	for name, expr := range consts {
		if text := evaluate(t, expr, consts); looksLikeSQL(text) {
			all[name] = text
		}
	}
	return all
}

var verb = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|SET|BEGIN|WITH|LOCK|MERGE|TRUNCATE|; SET)\b`)

func looksLikeSQL(text string) bool { return verb.MatchString(text) }

func unquote(t *testing.T, lit *ast.BasicLit) string {
	t.Helper()
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// evaluate gives the text of a constant made of literals and other constants.
func evaluate(t *testing.T, expr ast.Expr, consts map[string]ast.Expr) string {
	t.Helper()
	switch e := expr.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return unquote(t, e)
		}
	case *ast.BinaryExpr:
		return evaluate(t, e.X, consts) + evaluate(t, e.Y, consts)
	case *ast.Ident:
		if of, ok := consts[e.Name]; ok {
			return evaluate(t, of, consts)
		}
	}
	return ""
}

// Every statement of the package keeps to what the engines share. What begins a
// transaction and what makes a schema are the only ones that are put together
// elsewhere.
func TestStatementsKeepToTheSubset(t *testing.T) {
	t.Parallel()
	all := sqlOf(t)
	if len(all) < 35 {
		t.Fatalf("only %d statements were found", len(all))
	}
	for name, sql := range all {
		if strings.Contains(name, ".go:") {
			known := []string{"BEGIN", "; SET LOCAL lock_timeout = '%dms'", "; SET LOCAL synchronous_commit = on", "CREATE SCHEMA IF NOT EXISTS "}
			if !slices.Contains(known, sql) {
				t.Errorf("%s: SQL outside of the constants: %s", name, sql)
			}
			continue
		}
		if found := faults(sql); found != nil {
			t.Errorf("%s uses %s:\n%s", name, strings.Join(found, ", "), sql)
		}
	}
}

// So does every statement of the migration. Tables and indexes may be there already,
// the scope comes first, and there are four types.
func TestMigrationKeepsToTheSubset(t *testing.T) {
	t.Parallel()
	file, err := fs.ReadFile(Migrations(), "0001_init.up.sql")
	if err != nil {
		t.Fatal(err)
	}
	ddl := statements(string(file))
	if len(ddl) != 7+5 {
		t.Errorf("%d statements, want seven tables and five indexes", len(ddl))
	}
	for _, sql := range ddl {
		if found := append(faults(sql), faultsOfDefinition(sql)...); found != nil {
			t.Errorf("%s in:\n%s", strings.Join(found, ", "), sql)
		}
	}
}

// faultsOfDefinition is what is wrong with a statement of DDL.
func faultsOfDefinition(sql string) []string {
	var found []string
	if !strings.HasPrefix(sql, "CREATE TABLE IF NOT EXISTS ") && !strings.HasPrefix(sql, "CREATE INDEX IF NOT EXISTS ") {
		found = append(found, "a statement that cannot be repeated")
	}
	for _, column := range columnType.FindAllStringSubmatch(sql, -1) {
		if !slices.Contains([]string{"text", "bigint", "bytea", "boolean"}, column[2]) {
			found = append(found, "the type "+column[2])
		}
	}
	if table := tableKey.FindStringSubmatch(sql); table != nil {
		if table[3] != primaryKeys()[table[1]] {
			found = append(found, "the primary key "+table[3])
		}
		if strings.Contains(table[2], " scope ") && !strings.HasPrefix(strings.TrimSpace(table[2]), "scope ") {
			found = append(found, "a scope that is not the first column")
		}
	}
	return found
}

// The check is worth something: it finds what is planted.
func TestSubsetCheckFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		`SELECT key FROM {s}onlyonce_portable_keys WHERE scope = $1 FOR UPDATE`:   "a locking clause",
		`SELECT key FROM {s}onlyonce_portable_keys FOR NO KEY UPDATE SKIP LOCKED`: "a locking clause",
		`SELECT pg_try_advisory_xact_lock($1)`:                                    "an advisory lock",
		`LOCK TABLE {s}onlyonce_portable_keys`:                                    "LOCK TABLE",
		`SAVEPOINT here`:                                                          "a savepoint",
		`LISTEN done`:                                                             "notifications",
		`CREATE TABLE IF NOT EXISTS x (id bigserial)`:                             "a sequence",
		`CREATE TEMP TABLE x (id bigint)`:                                         "a temporary table",
		`DO $$ BEGIN END $$`:                                                      "code in the server",
		`INSERT INTO {s}onlyonce_portable_settings (kind) VALUES ($1) ON CONFLICT (kind, id) DO UPDATE SET id = $1 WHERE true`: "an update on conflict",
		`INSERT INTO {s}onlyonce_portable_settings (kind) VALUES ($1) ON CONFLICT ON CONSTRAINT x DO NOTHING`:                  "a constraint on conflict",
		`WITH x AS (DELETE FROM {s}onlyonce_portable_keys) SELECT 1`:                                                           "WITH",
		`DELETE FROM {s}onlyonce_portable_settings WHERE kind = $1 AND id = $2 RETURNING id`:                                   "RETURNING",
		`CREATE INDEX IF NOT EXISTS x ON onlyonce_portable_keys (due_us) WHERE due_us IS NOT NULL`:                             "a partial index",
		`CREATE INDEX IF NOT EXISTS x ON onlyonce_portable_keys (lower(key))`:                                                  "an index on an expression",
		`CREATE UNIQUE INDEX IF NOT EXISTS x ON onlyonce_portable_keys (resource)`:                                             "uniqueness of its own",
		`SELECT key FROM {s}onlyonce_portable_keys ORDER BY key COLLATE "C"`:                                                   "a collation",
		`SELECT $1::bigint`: "a cast",
		`SELECT key FROM {s}onlyonce_portable_keys WHERE operation = ANY ($1)`:                  "an array",
		`SELECT key FROM {s}onlyonce_portable_keys WHERE (scope, key) > ($1, $2)`:               "a comparison of rows",
		`SELECT key FROM {s}onlyonce_portable_keys WHERE expires_us < extract(epoch FROM $1)`:   "arithmetic with times",
		`UPDATE {s}onlyonce_portable_sweepers SET until_us = clock_timestamp() WHERE name = $1`: "a volatile function",
		`SELECT set_config('lock_timeout', '1', true)`:                                          "a setting of the session",
		`SET lock_timeout = 1`:   "a setting of the session",
		`SELECT 1 FROM pg_class`: "a catalogue of PostgreSQL",
		`SELECT 1; SELECT 2`:     "two statements in one",
		`UPDATE {s}onlyonce_portable_settings SET value = o.value FROM x o WHERE kind = $1 AND id = $2`:                "another table in a write",
		`DELETE FROM {s}onlyonce_portable_settings WHERE kind = $1 AND id = $2 AND EXISTS (SELECT 1)`:                  "a subquery in a write",
		`INSERT INTO {s}onlyonce_portable_settings (kind) SELECT $1 ON CONFLICT (kind, id) DO NOTHING`:                 "a subquery in a write",
		`INSERT INTO {s}onlyonce_portable_settings (kind) VALUES ($1)`:                                                 "a conflict on other columns than the primary key",
		`INSERT INTO {s}onlyonce_portable_settings (kind) VALUES ($1) ON CONFLICT (id) DO NOTHING`:                     "a conflict on other columns than the primary key",
		`INSERT INTO {s}other (kind) VALUES ($1) ON CONFLICT (kind) DO NOTHING`:                                        "an unknown table",
		`DELETE FROM {s}onlyonce_portable_steps WHERE scope = $1 AND key = $2 AND origin = $3 AND name = $4`:           "a write that does not name occurrence",
		`UPDATE {s}onlyonce_portable_keys SET state = 2 WHERE scope = $1 AND key = $2 AND attempt = $3 AND state = $4`: "a write that does not name fence",
		`UPDATE {s}onlyonce_portable_keys SET state = 2 WHERE scope = $1 AND key = $2 AND fence = $3 AND attempt = $4`: "a write that does not name version",
		`UPDATE {s}onlyonce_portable_keys SET keep = $3 WHERE scope = $1 AND key = $2 AND fence = $3`:                  "a write that does not name attempt",
		`ALTER TABLE onlyonce_portable_keys ADD COLUMN x bigint`:                                                       "a change of a table",
		`MERGE INTO onlyonce_portable_keys USING x ON true WHEN MATCHED THEN DO NOTHING`:                               "MERGE",
		`SELECT jsonb_build_object()`:                                                                                            "JSON",
		`SELECT row_number() OVER () FROM {s}onlyonce_portable_keys`:                                                             "a window",
		`CREATE TABLE IF NOT EXISTS x (id bigint REFERENCES y (id))`:                                                             "a foreign key",
		`CREATE TABLE IF NOT EXISTS x (at bigint DEFAULT 0)`:                                                                     "a generated column",
		`SELECT key FROM {s}onlyonce_portable_keys LIMIT 1 FOR SHARE NOWAIT`:                                                     "a locking clause",
		`UPDATE {s}onlyonce_portable_keys SET attempt = gen_random_uuid() WHERE scope = $1 AND key = $2 AND fence = $3 AND true`: "a volatile function",
	} {
		if !slices.Contains(faults(sql), want) {
			t.Errorf("%q was not found in %s; found %q", want, sql, faults(sql))
		}
	}
	for sql, want := range map[string]string{
		"CREATE TABLE x (id bigint)": "a statement that cannot be repeated",
		"CREATE TABLE IF NOT EXISTS x (\n    id jsonb NOT NULL,\n    PRIMARY KEY (id))":                                                                         "the type jsonb",
		"CREATE TABLE IF NOT EXISTS onlyonce_portable_keys (\n    scope text,\n    PRIMARY KEY (key, scope))":                                                   "the primary key key, scope",
		"CREATE TABLE IF NOT EXISTS onlyonce_portable_keys (\n    key text NOT NULL,\n    scope text NOT NULL,\n    x bigint,\n    PRIMARY KEY (scope, key)\n)": "a scope that is not the first column",
	} {
		if found := faultsOfDefinition(sql); !slices.Contains(found, want) {
			t.Errorf("%q was not found in %s; found %q", want, sql, found)
		}
	}
}
