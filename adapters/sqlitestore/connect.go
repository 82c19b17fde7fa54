package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"

	"github.com/onlyonce-go/onlyonce"
)

// readers bounds the connections of the read pool.
const readers = 8

// connect makes the two pools; nothing is opened yet.
func (s *Store) connect(path string) error {
	writer, err := sqlite.NewConnector(dsn(path, s.busy, url.Values{
		"_txlock":       {"immediate"},
		"_journal_mode": {"WAL"},
		// After a burst the log shrinks back to 64 MiB.
		"_pragma": {"journal_size_limit(67108864)"},
	}))
	if err != nil {
		return err
	}
	reader, err := sqlite.NewConnector(dsn(path, s.busy, url.Values{"_query_only": {"1"}}))
	if err != nil {
		return err
	}
	s.writer = sql.OpenDB(sealable{Connector: writer, sealed: s.sealed})
	s.writer.SetMaxOpenConns(1)
	s.reader = sql.OpenDB(reader)
	s.reader.SetMaxOpenConns(readers)
	s.reader.SetMaxIdleConns(readers)
	return nil
}

// dsn is the driver's name of the file with the settings that every
// connection has.
func dsn(path string, busy time.Duration, more url.Values) string {
	more.Set("_busy_timeout", strconv.FormatInt(int64((busy+time.Millisecond-1)/time.Millisecond), 10))
	more.Set("_foreign_keys", "1")
	more.Set("_synchronous", "FULL")
	more.Set("_dqs", "0")
	more.Set("_error_rc", "1")
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: more.Encode()}
	return u.String()
}

// sealable makes connections on which commits are vetoed while sealed is set.
type sealable struct {
	driver.Connector
	sealed *atomic.Bool
}

// Connect opens a connection and installs the veto. Without it a handler that
// commits would get its writes in: there is no connection then.
func (c sealable) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	h, ok := conn.(sqlite.HookRegisterer)
	if !ok {
		return nil, errors.Join(&onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "open database",
			Hint: "the driver cannot veto commits: build with the version of modernc.org/sqlite that go.mod names",
		}, conn.Close())
	}
	h.RegisterCommitHook(func() int32 {
		if c.sealed.Load() {
			return 1
		}
		return 0
	})
	return conn, nil
}

// firstConnection opens the writing connection, which turns the write-ahead
// log on. Two processes that turn it on at once may find the file locked
// without a wait, so that is tried again for as long as a writer would wait.
func (s *Store) firstConnection(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, s.busy)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var mode string
		err := s.writer.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
		if err == nil && !strings.EqualFold(mode, "wal") {
			err = &onlyonce.Error{
				Code: onlyonce.CodeStoreUnavailable, Op: "open database",
				Hint: "the write-ahead log cannot be used, the journal mode is " + mode + ": put the file on a local disk",
			}
		}
		if !isBusy(err) || !wait(patience, pause) {
			return err
		}
	}
}

// wait returns false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
