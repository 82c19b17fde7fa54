package sqljournal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce"
)

type stateError string

func (e stateError) Error() string    { return "state " + string(e) }
func (e stateError) SQLState() string { return string(e) }

type codeError int

func (e codeError) Error() string { return fmt.Sprint("code ", int(e)) }
func (e codeError) Code() int     { return int(e) }

// B82, B81: what a concurrent transaction caused is tried again; what may have happened
// is said to.
func TestErrorsAreTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err      error
		conflict bool
		code     onlyonce.Code // of a write; empty: a context's
	}{
		{&mysql.MySQLError{Number: 1213}, true, onlyonce.CodeStoreUnavailable},
		{&mysql.MySQLError{Number: 1205}, true, onlyonce.CodeStoreUnavailable},
		{&mysql.MySQLError{Number: 1406}, false, onlyonce.CodeStoreUnavailable},
		{stateError("40001"), true, onlyonce.CodeStoreUnavailable},
		{stateError("40P01"), true, onlyonce.CodeStoreUnavailable},
		{stateError("22001"), false, onlyonce.CodeStoreUnavailable},
		{codeError(517), true, onlyonce.CodeStoreUnavailable},
		{codeError(262), true, onlyonce.CodeStoreUnavailable},
		{codeError(5), false, onlyonce.CodeStoreUnavailable},
		{codeError(13), false, onlyonce.CodeStoreUnavailable},
		{codeError(10 | 4<<8), false, onlyonce.CodeUncertain},
		{io.ErrUnexpectedEOF, false, onlyonce.CodeUncertain},
		{mysql.ErrInvalidConn, false, onlyonce.CodeUncertain},
		{context.DeadlineExceeded, false, ""},
	} {
		wrapped := fmt.Errorf("driver: %w", c.err)
		if got := conflict(wrapped); got != c.conflict {
			t.Errorf("%v is a conflict: %v", c.err, got)
		}
		err := failWrite("save entry", wrapped)
		e, ok := errors.AsType[*onlyonce.Error](err)
		if ok != (c.code != "") || (ok && e.Code != c.code) || !errors.Is(err, c.err) {
			t.Errorf("a write that fails with %v: %v", c.err, err)
		}
	}
}

// A pause ends with its context.
func TestPause(t *testing.T) {
	t.Parallel()
	if !pause(t.Context(), 1) {
		t.Error("a pause did not end by itself")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if pause(ctx, 1_000_000) {
		t.Error("a pause outlived its context")
	}
}

func TestSessionsOfMySQL(t *testing.T) {
	t.Parallel()
	good := func() map[string]string {
		return map[string]string{"sql_mode": "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION", "autocommit": "ON", "innodb_flush_log_at_trx_commit": "1"}
	}
	if err := judgeMySQL(good()); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		set map[string]string
		ok  bool
	}{
		"other strict mode":   {map[string]string{"sql_mode": "ANSI,STRICT_ALL_TABLES"}, true},
		"autocommit by 1":     {map[string]string{"autocommit": "1"}, true},
		"galera that waits":   {map[string]string{"wsrep_on": "ON", "wsrep_sync_wait": "7"}, true},
		"galera":              {map[string]string{"wsrep_on": "ON", "wsrep_sync_wait": "0"}, false},
		"lax":                 {map[string]string{"sql_mode": "NO_STRICT_TRANS_TABLES"}, false},
		"empty strings":       {map[string]string{"sql_mode": "STRICT_ALL_TABLES,EMPTY_STRING_IS_NULL"}, false},
		"no commit":           {map[string]string{"autocommit": "OFF"}, false},
		"commits by the tick": {map[string]string{"innodb_flush_log_at_trx_commit": "2"}, false},
	} {
		vars := good()
		maps.Copy(vars, c.set)
		if err := judgeMySQL(vars); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	if got := Postgres.render("a = ? AND b < ? + ?"); got != "a = $1 AND b < $2 + $3" {
		t.Error(got)
	}
	if got := MySQL.render("a = ?"); got != "a = ?" {
		t.Error(got)
	}
}

// What PostgreSQL does not take for text must not keep an entry from being saved.
func TestNotesAreReadable(t *testing.T) {
	t.Parallel()
	if got := readable("a\x00b\xffc ü"); got != "a\uFFFDb\uFFFDc ü" {
		t.Errorf("%q", got)
	}
}
