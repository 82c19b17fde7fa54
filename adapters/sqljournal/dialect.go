package sqljournal

import (
	"strconv"
	"strings"
)

// Dialect is the kind of a database.
type Dialect string

// The dialects.
const (
	// SQLite is SQLite 3.42 or later, with any driver; modernc.org/sqlite is tested.
	SQLite Dialect = "sqlite"
	// Postgres is PostgreSQL 14 or later, with pgx's driver for database/sql.
	Postgres Dialect = "postgres"
	// MySQL is MySQL 8.0.16, MariaDB 10.6 or later, with go-sql-driver/mysql.
	MySQL Dialect = "mysql"
)

func (d Dialect) known() bool { return d == SQLite || d == Postgres || d == MySQL }

// now is the time of the database's own clock, in microseconds. PostgreSQL's now() is
// the beginning of a transaction, so it is not that.
func (d Dialect) now() string {
	switch d {
	case Postgres:
		return "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
	case MySQL:
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	default:
		return "(CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000)"
	}
}

// render writes a statement in the dialect: {now} is its clock, ? its parameters.
func (d Dialect) render(statement string) string {
	statement = strings.ReplaceAll(statement, "{now}", d.now())
	if d != Postgres {
		return statement
	}
	var b strings.Builder
	n := 0
	for _, r := range statement {
		if r != '?' {
			b.WriteRune(r)
			continue
		}
		n++
		b.WriteString("$" + strconv.Itoa(n))
	}
	return b.String()
}
