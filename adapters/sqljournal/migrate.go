package sqljournal

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// schemaVersion is that of the tables this program knows.
const schemaVersion = 1

//go:embed migrations/*/*.sql
var migrations embed.FS

// Migrations is the schema of a dialect as numbered pairs of files, 0001_init.up.sql
// and 0001_init.down.sql and so on, for people who apply it with a tool of their own.
func Migrations(d Dialect) (fs.FS, error) {
	if !d.known() {
		return nil, unknownDialect(d)
	}
	return fs.Sub(migrations, path.Join("migrations", string(d)))
}

// comment is a comment of SQL. No statement here has two dashes in a string.
var comment = regexp.MustCompile(`--[^\n]*`)

// Statements are those that make the tables, in order, for people who apply them by
// hand. Each may be run again, and needs no transaction. [New] runs them by itself
// unless Config.SkipMigrate is set.
func Statements(d Dialect) ([]string, error) {
	files, err := Migrations(d)
	if err != nil {
		return nil, err
	}
	ups, err := fs.Glob(files, "*.up.sql") // in order of their names
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var statements []string
	for _, up := range ups {
		text, err := fs.ReadFile(files, up)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		for statement := range strings.SplitSeq(comment.ReplaceAllString(string(text), ""), ";") {
			if statement = strings.TrimSpace(statement); statement != "" {
				statements = append(statements, statement)
			}
		}
	}
	return statements, nil
}

// prepareTables makes the tables, unless they are there or Config.SkipMigrate is set.
// Several processes may do so at once.
func (j *Journal) prepareTables(ctx context.Context) error {
	version, err := j.version(ctx)
	if err != nil {
		return err
	}
	switch {
	case version > schemaVersion:
		return configError(fmt.Sprintf("the tables are of version %d, this program knows %d: run a later program", version, schemaVersion))
	case version == schemaVersion:
		return nil // a role that may not make tables needs no more
	case j.cfg.SkipMigrate:
		return configError(fmt.Sprintf("the tables are of version %d, this program needs %d: apply what Statements gives", version, schemaVersion))
	}
	statements, err := Statements(j.cfg.Dialect)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := j.exec(ctx, "make tables", statement); err != nil {
			return err
		}
	}
	return nil
}

// version is that of the tables, 0 if there are none.
func (j *Journal) version(ctx context.Context) (int, error) {
	var tables, version int
	err := j.db.QueryRowContext(ctx, j.sql.tables).Scan(&tables)
	if err == nil && tables > 0 {
		err = j.db.QueryRowContext(ctx, j.sql.version).Scan(&version)
	}
	if err != nil {
		return 0, failRead("read version of tables", err)
	}
	return version, nil
}
