package consumetest

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the driver

	"github.com/onlyonce-go/onlyonce/inbox"
)

// Ledger is an inbox in small, in a file that processes share: ids and effects in one
// transaction.
type Ledger struct {
	// DB is the file.
	DB *sql.DB
}

// OpenLedger opens a file, which need not be there. The caller closes DB.
func OpenLedger(ctx context.Context, path string) (*Ledger, error) {
	db, err := sql.Open("sqlite", path+"?_txlock=immediate&_pragma=busy_timeout(20000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY); CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL)`)
	return &Ledger{db}, err
}

// NewLedger makes one in a new file, which is closed with the test.
func NewLedger(t *testing.T) (l *Ledger, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ledger.db")
	l, err := OpenLedger(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.DB.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, path
}

// Process is the ledger's inbox.ProcessFunc.
func (l *Ledger) Process(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
	tx, err := l.DB.BeginTx(ctx, nil)
	if err != nil {
		return inbox.Again, err
	}
	defer tx.Rollback()
	res, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO seen (id) VALUES (?)", msg.ID)
	if err != nil {
		return inbox.Again, err
	}
	if n, _ := res.RowsAffected(); n == 0 {
		return inbox.Duplicate, nil
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO effects (id) VALUES (?)", msg.ID); err != nil {
		return inbox.Again, err
	}
	if err := tx.Commit(); err != nil {
		return inbox.Again, err
	}
	return inbox.Handled, nil
}

// WantOne wants one effect of each id, and no other.
func (l *Ledger) WantOne(t *testing.T, ids []string) {
	t.Helper()
	rows, err := l.DB.QueryContext(t.Context(), "SELECT id, count(*) FROM effects GROUP BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			t.Fatal(err)
		}
		found[id] = n
	}
	if err := rows.Err(); err != nil || len(found) != len(ids) {
		t.Errorf("%d ids took effect, want %d, %v", len(found), len(ids), err)
	}
	for _, id := range ids {
		if found[id] != 1 {
			t.Errorf("%s took effect %d times", id, found[id])
		}
	}
}
