package sqljournal_test

import (
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqljournal"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// server is an API that counts what it is asked, by key.
type server struct {
	*httptest.Server
	asked atomic.Int32
	key   atomic.Value
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		s.key.Store(r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(s.Close)
	return s
}

// order is an entry of a charge at the server.
func (s *server) order(intent string) onceclient.Entry {
	e := entryOf(intent)
	e.Target, e.Header = s.URL, map[string][]string{"Content-Type": {"application/json"}}
	e.CreatedAt = moment()
	return e
}

func newClient(t *testing.T, j onceclient.Journal) *onceclient.Client {
	t.Helper()
	c, err := onceclient.New(onceclient.Config{Journal: j, Now: moment})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// L1: the order and the entry commit together, and nothing is sent of what was rolled
// back.
func TestInsertTx(t *testing.T) {
	t.Parallel()
	for name, fresh := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fresh(t)
			db := p.pool(t)
			j := newJournal(t, db, p.config())
			s := newServer(t)
			c := newClient(t, j)
			run(t, db, `CREATE TABLE orders (id VARCHAR(20) NOT NULL PRIMARY KEY)`)
			order := func(id string, commit bool) error {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				if _, err := tx.ExecContext(t.Context(), `INSERT INTO orders (id) VALUES ('`+id+`')`); err != nil {
					t.Fatal(err)
				}
				if err := j.InsertTx(t.Context(), tx, s.order(id)); err != nil {
					return err
				}
				if commit {
					return tx.Commit()
				}
				return tx.Rollback()
			}
			if err := order("rolled back", false); err != nil {
				t.Fatal(err)
			}
			if err := c.Resume(t.Context(), nil); err != nil || s.asked.Load() != 0 {
				t.Errorf("sent %d of what was rolled back, %v", s.asked.Load(), err)
			}
			if err := order("committed", true); err != nil {
				t.Fatal(err)
			}
			if got := stands(t, j, "committed"); got.Key != "key of committed" || got.State != onceclient.Open {
				t.Errorf("what stands: %+v", got)
			}
			if err := c.Resume(t.Context(), nil); err != nil || s.asked.Load() != 1 || s.key.Load() != "key of committed" {
				t.Errorf("sent %d with the key %v, %v", s.asked.Load(), s.key.Load(), err)
			}
			run(t, db, `DELETE FROM orders`)
			if err := order("committed", true); err == nil {
				t.Error("an intent was inserted twice")
			}
			if n := one[int64](t, db, `SELECT count(*) FROM orders`); n != 0 {
				t.Errorf("%d orders without an entry", n)
			}
		})
	}
}

// Do of the same request sends what the transaction has journaled, under its key.
func TestInsertAndDo(t *testing.T) {
	t.Parallel()
	p := sqlite(t)
	db := p.pool(t)
	j := newJournal(t, db, p.config())
	s := newServer(t)
	e := s.order("i")
	if err := j.InsertTx(t.Context(), db, e); err != nil { // a transaction of one statement
		t.Fatal(err)
	}
	out, err := newClient(t, j).Do(t.Context(), onceclient.Request{Intent: "i", Method: e.Method, URL: e.Target, Header: e.Header, Body: e.Body})
	if err != nil || out.Key != "key of i" || s.key.Load() != "key of i" || s.asked.Load() != 1 {
		t.Errorf("done: %+v, %v; asked %d", out, err, s.asked.Load())
	}
}

// The statement is for transactions of other libraries, too.
func TestInsertWithPgx(t *testing.T) {
	t.Parallel()
	p := postgres(t)
	j := p.open(t)
	conn, err := pgx.Connect(t.Context(), p.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	e := entryOf("i")
	e.Body = nil
	statement, args, err := j.Insert(e)
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), statement, args...); err != nil {
			return err
		}
		if intents, err := j.Pending(t.Context(), "", 10); len(intents) != 0 || err != nil {
			t.Errorf("pending before the commit: %q, %v", intents, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := stands(t, j, "i"); got.Key != e.Key || got.State != onceclient.Open {
		t.Errorf("what stands: %+v", got)
	}
}

// What no journal takes is refused before it is in the transaction.
func TestInsertRefuses(t *testing.T) {
	t.Parallel()
	p := sqlite(t)
	db := p.pool(t)
	j := newJournal(t, db, p.config())
	e := entryOf("i")
	e.Key = ""
	_, _, err := j.Insert(e)
	wantCode(t, err, onlyonce.CodeInvalidRequest)
	wantCode(t, j.InsertTx(t.Context(), db, e), onlyonce.CodeInvalidRequest)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := j.InsertTx(t.Context(), tx, entryOf("i")); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("in a transaction that has ended: %v", err)
	}
	var _ sqljournal.Execer = tx
}

// L2, L4: nothing was sent before the commit, so that a refusal of the first attempt, or
// that it cannot leave, is proved.
func TestInsertIsNotSent(t *testing.T) {
	t.Parallel()
	p := sqlite(t)
	db := p.pool(t)
	j := newJournal(t, db, p.config())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	defer s.Close()
	gone := newServer(t)
	gone.Close()
	c, err := onceclient.New(onceclient.Config{Journal: j, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	order := func(intent, url string) onceclient.Request {
		t.Helper()
		req := onceclient.Request{Intent: intent, Method: http.MethodPost, URL: url, Body: []byte("pay")}
		e, err := c.Entry(req)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := errors.Join(j.InsertTx(t.Context(), tx, e), tx.Commit()); err != nil {
			t.Fatal(err)
		}
		return req
	}
	_, err = c.Do(t.Context(), order("refused", s.URL))
	if refused, ok := errors.AsType[*onceclient.RefusedError](err); !ok || refused.Answer.Status != http.StatusBadRequest {
		t.Errorf("with 400 it is %v", err)
	}
	_, err = c.Do(t.Context(), order("unsent", gone.URL))
	if _, ok := errors.AsType[*onceclient.NotSentError](err); !ok {
		t.Errorf("without a server it is %v", err)
	}
	order("to be sent", gone.URL)
	for range 2 {
		if err := c.Resume(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
	for intent, want := range map[string]onceclient.State{"refused": onceclient.Refused, "unsent": onceclient.NotSent, "to be sent": onceclient.Open} {
		if got := stands(t, j, intent); got.State != want {
			t.Errorf("%s stands at %s, want %s", intent, got.State, want)
		}
	}
	if got := stands(t, j, "to be sent"); got.Attempts != 0 {
		t.Errorf("%d attempts may have left", got.Attempts)
	}
}
