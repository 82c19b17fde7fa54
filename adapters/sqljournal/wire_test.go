package sqljournal_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqljournal"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// wire loses the reply to the first message that contains something: the server has
// done what it was asked, and nobody hears of it.
type wire struct{ eat atomic.Pointer[[]byte] }

func (w *wire) loseReplyTo(message string) {
	b := []byte(message)
	w.eat.Store(&b)
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: conn, w: w}, nil
}

// wireConn is one connection over a wire.
type wireConn struct {
	net.Conn
	w    *wire
	lose atomic.Bool
}

func (c *wireConn) Write(b []byte) (int, error) {
	if eat := c.w.eat.Load(); eat != nil && bytes.Contains(b, *eat) && c.w.eat.CompareAndSwap(eat, nil) {
		c.lose.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.lose.Load() {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// pool is a pool over the wire, on which a statement is one message.
func (w *wire) pool(t *testing.T, p place) *sql.DB {
	t.Helper()
	var db *sql.DB
	if p.dialect == sqljournal.Postgres {
		cfg, err := pgx.ParseConfig(p.dsn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DialFunc, cfg.DefaultQueryExecMode = w.dial, pgx.QueryExecModeExec
		db = stdlib.OpenDB(*cfg)
	} else {
		cfg, err := mysql.ParseDSN(p.dsn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DialFunc, cfg.InterpolateParams, cfg.Logger = w.dial, true, &mysql.NopLogger{}
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			t.Fatal(err)
		}
		db = sql.OpenDB(connector)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// L1: a Begin or Save whose reply was lost says so, and says what stands when it is
// repeated.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for name, fresh := range map[string]func(t *testing.T) place{"postgres": postgres, "mysql": mariadb} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, w := fresh(t), &wire{}
			j := newJournal(t, w.pool(t, p), p.config())
			w.loseReplyTo("INSERT INTO onlyonce_journal")
			_, made, err := j.Begin(t.Context(), entryOf("i"))
			wantCode(t, err, onlyonce.CodeUncertain)
			if made {
				t.Error("it says that it was made")
			}
			if got := stands(t, j, "i"); got.Key != "key of i" || got.State != onceclient.Open {
				t.Errorf("what stands: %+v", got)
			}
			l, e := lock(t, j, "i")
			want := answered(e)
			w.loseReplyTo("UPDATE onlyonce_journal SET state")
			wantCode(t, l.Save(t.Context(), want), onlyonce.CodeUncertain)
			if got := stands(t, j, "i"); got.State != onceclient.Answered {
				t.Errorf("after the lost reply to a save: %+v", got)
			}
			if err := l.Save(t.Context(), want); err != nil {
				t.Errorf("a repeated save: %v", err)
			}
			w.loseReplyTo("UPDATE onlyonce_journal SET locker = NULL")
			wantCode(t, l.Unlock(), onlyonce.CodeUncertain)
			if err := l.Unlock(); err != nil {
				t.Errorf("a repeated unlock: %v", err)
			}
			lock(t, j, "i")
		})
	}
}

// A lock that was taken, but not seen to be, is let go of: else nobody could go on before
// its lease is over.
func TestLostReplyToLock(t *testing.T) {
	t.Parallel()
	p, w := mariadb(t), &wire{}
	j := newJournal(t, w.pool(t, p), p.config())
	begin(t, j, "i")
	for lost, code := range map[string]onlyonce.Code{
		"SELECT intent, idempotency_key":            onlyonce.CodeStoreUnavailable,
		"UPDATE onlyonce_journal SET locker = _bin": onlyonce.CodeUncertain,
	} {
		w.loseReplyTo(lost)
		if _, _, err := j.Lock(t.Context(), "i"); !errors.Is(err, &onlyonce.Error{Code: code}) {
			t.Errorf("lock: %v", err)
		}
		l, _ := lock(t, j, "i")
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	}
}
