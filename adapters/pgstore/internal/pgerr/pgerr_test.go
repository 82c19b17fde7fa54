package pgerr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/onlyonce-go/onlyonce"
)

// A server, or what stands between, may send any SQLSTATE, or none: it decides
// what a commit has left behind, and must not end the process.
func TestClassifyAnySQLSTATE(t *testing.T) {
	t.Parallel()
	tests := []struct {
		code, severity string
		want           onlyonce.Code
	}{
		{"", "ERROR", ""},
		{"", "FATAL", onlyonce.CodeUncertain},
		{"", "", onlyonce.CodeUncertain},
		{"0", "ERROR", ""},
		{"08", "ERROR", onlyonce.CodeUncertain},
		{"57", "ERROR", ""},
		{"57P", "ERROR", onlyonce.CodeUncertain},
		{"08006", "ERROR", onlyonce.CodeUncertain},
		{"57P01", "FATAL", onlyonce.CodeUncertain},
		{"57014", "ERROR", ""},
		{Idle, "FATAL", ""},
		{Unknown, "ERROR", onlyonce.CodeUncertain},
		{Serialization, "ERROR", onlyonce.CodeConflict},
		{NoTable, "ERROR", onlyonce.CodeStoreUnavailable},
		{NoColumn, "ERROR", onlyonce.CodeStoreUnavailable},
	}
	for _, tt := range tests {
		e := &pgconn.PgError{Code: tt.code, Severity: tt.severity, SeverityUnlocalized: tt.severity}
		err := Classify("complete key", e, Committing)
		if onlyonce.CodeOf(err) != tt.want || !errors.Is(err, e) {
			t.Errorf("SQLSTATE %q, %s: %v, want %q", tt.code, tt.severity, err, tt.want)
		}
	}
}

// Only a connection that could not be made because nobody was there says that the
// server is out of reach, and only to a caller that has waited for it.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	refused := connect(t, nowhere(t))
	notYet, wrong := connect(t, says(t, NotYet)), connect(t, says(t, BadPassword))
	tests := map[string]struct {
		ctx  context.Context //nolint:containedctx // an argument
		err  error
		want onlyonce.Code
	}{
		"nobody listens":              {t.Context(), fmt.Errorf("acquire: %w", refused), onlyonce.CodeUnreachable},
		"nobody listens, nor there":   {t.Context(), connect(t, nowhere(t)+","+nowhere(t)), onlyonce.CodeUnreachable},
		"no name":                     {t.Context(), connect(t, "none.invalid:1"), onlyonce.CodeUnreachable},
		"hangs up":                    {t.Context(), connect(t, says(t, "")), onlyonce.CodeUnreachable},
		"starts up":                   {t.Context(), notYet, onlyonce.CodeUnreachable},
		"shuts down":                  {t.Context(), connect(t, says(t, ShuttingDown)), onlyonce.CodeUnreachable},
		"starts up, other is away":    {t.Context(), connect(t, says(t, NotYet)+","+nowhere(t)), onlyonce.CodeUnreachable},
		"wrong password":              {t.Context(), wrong, onlyonce.CodeStoreUnavailable},
		"wrong password, other away":  {t.Context(), connect(t, nowhere(t)+","+says(t, BadPassword)), onlyonce.CodeStoreUnavailable},
		"wrong password, other busy":  {t.Context(), connect(t, says(t, NotYet)+","+says(t, NoEntry)), ""},
		"no database":                 {t.Context(), connect(t, says(t, NoDatabase)), onlyonce.CodeStoreUnavailable},
		"too many connections":        {t.Context(), connect(t, says(t, TooMany)), onlyonce.CodeStoreUnavailable},
		"anything else that was said": {t.Context(), connect(t, says(t, "XX000")), ""},
		"cancelled":                   {over, refused, ""},
		"busy pool":                   {t.Context(), context.DeadlineExceeded, ""},
		"connection closed":           {t.Context(), pgconn.ErrConnClosed, ""},
	}
	for name, tt := range tests {
		for _, f := range []Fate{Undone, Committing} {
			err := Classify("claim key", NoConnection(tt.ctx, tt.err), f)
			if onlyonce.CodeOf(err) != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%s: %v, want %q", name, err, tt.want)
			}
		}
	}
	if err := Classify("claim key", refused, Committing); errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("an error of a statement: %v", err)
	}
}

// connect is why no connection can be made to these hosts. They are asked with TLS
// first and without it then, as the driver does by itself.
func connect(t *testing.T, hosts string) error {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), "postgres://app:secret@"+hosts+"/db?sslmode=prefer")
	if err == nil {
		conn.Close(t.Context())
		t.Fatalf("%s: connected", hosts)
	}
	return err
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// nowhere is an address at which nobody listens.
func nowhere(t *testing.T) string {
	t.Helper()
	l := listen(t)
	l.Close()
	return l.Addr().String()
}

// says is the address of a server that has no TLS and answers whoever wants in with
// this SQLSTATE; empty: it hangs up.
func says(t *testing.T, state string) string {
	t.Helper()
	l := listen(t)
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { l.Close() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn, state)
			conn.Close()
		}
	})
	return l.Addr().String()
}

func answer(conn net.Conn, state string) {
	backend := pgproto3.NewBackend(conn, conn)
	for {
		msg, err := backend.ReceiveStartupMessage()
		if err != nil || state == "" {
			return
		}
		if _, ok := msg.(*pgproto3.SSLRequest); ok {
			_, _ = conn.Write([]byte("N"))
			continue
		}
		backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: state, Message: "no"})
		_ = backend.Flush()
		return
	}
}
