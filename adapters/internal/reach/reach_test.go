package reach_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce/adapters/internal/reach"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nowhere is the address of a port on which nobody listens.
func nowhere(t *testing.T) string {
	t.Helper()
	l := listen(t)
	l.Close()
	return l.Addr().String()
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

// dialled is the error of a connection that is to be made, and read from.
func dialled(network, address string) error {
	conn, err := net.DialTimeout(network, address, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Millisecond))
	_, err = conn.Read(make([]byte, 1))
	return err
}

// refused is the error of a socket that this machine does not open.
func refused(why syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", why)}
}

// overTLS is the error of a TLS handshake.
func overTLS(address string, config *tls.Config) error {
	conn, err := tls.Dial("tcp4", address, config)
	if err == nil {
		conn.Close()
	}
	return err
}

// C11: what the network did is told from what somebody there said.
func TestFailed(t *testing.T) {
	t.Parallel()
	silent, closing := listen(t), listen(t)
	go func() {
		for {
			conn, err := closing.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := secure.Listener.Addr().String()
	tests := map[string]struct {
		err  error
		want bool
	}{
		"refused":             {dialled("tcp4", nowhere(t)), true},
		"no name":             {dialled("tcp4", "none.invalid:1"), true},
		"no answer":           {dialled("tcp4", silent.Addr().String()), true},
		"closed":              {dialled("tcp4", closing.Addr().String()), true},
		"closed within TLS":   {overTLS(closing.Addr().String(), &tls.Config{InsecureSkipVerify: true}), true},
		"no socket":           {dialled("unix", filepath.Join(t.TempDir(), "none")), true},
		"wrapped":             {fmt.Errorf("connect: %w", io.ErrUnexpectedEOF), true},
		"no more files":       {refused(syscall.EMFILE), false},
		"none on the machine": {refused(syscall.ENFILE), false},
		"no memory":           {refused(syscall.ENOBUFS), false},
		"forbidden":           {refused(syscall.EPERM), false},
		"no port":             {dialled("tcp4", "127.0.0.1"), false},
		"no such network":     {dialled("carrier pigeon", "here"), false},
		"unknown certificate": {overTLS(at, &tls.Config{}), false},
		"no common version":   {overTLS(at, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS10, MinVersion: tls.VersionTLS10}), false},
		"anything else":       {errors.New("no"), false},
		"nothing":             {nil, false},
	}
	for name, tt := range tests {
		if got := reach.Failed(tt.err); got != tt.want {
			t.Errorf("%s: %v (%T): %v, want %v", name, tt.err, tt.err, got, tt.want)
		}
	}
}

// Each finds every error that was joined, through whatever wraps them.
func TestEach(t *testing.T) {
	t.Parallel()
	a, b, c := errors.New("a"), fmt.Errorf("b: %w", io.EOF), errors.New("c")
	err := fmt.Errorf("connect: %w", errors.Join(a, fmt.Errorf("again: %w", errors.Join(b, c))))
	if got := reach.Each(err); !slices.Equal(got, []error{a, b, c}) {
		t.Errorf("each of %v: %q", err, got)
	}
	if got := reach.Each(b); !slices.Equal(got, []error{b}) {
		t.Errorf("each of %v: %q", b, got)
	}
}
