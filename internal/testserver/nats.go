package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// NATSServer is a private NATS server with JetStream, its own folder and port. Its
// methods may be called from several goroutines.
type NATSServer struct {
	program string
	folder  *folder
	port    int

	mu   sync.Mutex
	proc *process // nil while the server is down
}

// NATS starts a NATS server for the test, with JetStream on files, to kill and to
// start again, and stops it when the test ends. It starts within a fraction of a
// second, so that every test has one of its own, which is empty. Without NATS the test
// is skipped.
func NATS(tb testing.TB) *NATSServer {
	tb.Helper()
	s, err := startNATS()
	if err != nil {
		unavailable(tb, err)
	}
	tb.Cleanup(func() {
		if err := s.close(); err != nil {
			tb.Errorf("stop nats: %v", err)
		}
	})
	return s
}

// startNATS starts a server on a free port.
func startNATS(settings ...string) (*NATSServer, error) {
	program, err := findNATS()
	if err != nil {
		return nil, err
	}
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	s := &NATSServer{program: program, folder: f}
	for range startTries {
		if s.port, err = freePort(); err != nil {
			break
		}
		if err = s.configure(settings); err != nil {
			break
		}
		if err = s.Start(); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, f.remove())
}

// findNATS returns the program's path.
func findNATS() (string, error) {
	for _, name := range []string{"nats-server", "/usr/sbin/nats-server", "/usr/local/bin/nats-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &missingError{what: "nats-server not found", hint: "install nats-server, or run make servers"}
}

// configure writes the server's settings. The name tells this server from any other
// that might listen at the port.
func (s *NATSServer) configure(settings []string) error {
	lines := append([]string{
		"host: 127.0.0.1",
		"port: " + strconv.Itoa(s.port),
		`server_name: "` + s.name() + `"`,
		`jetstream { store_dir: "` + s.folder.join("jetstream") + `", max_file_store: 1GB, max_memory_store: 64MB }`,
	}, settings...)
	path := s.folder.join("nats.conf")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("configure nats: %w", err)
	}
	return s.folder.account.own(path)
}

func (s *NATSServer) name() string { return strings.ReplaceAll(s.folder.path, "/", "-") }

// URL is the server's URL. It stays the same over Kill and Start.
func (s *NATSServer) URL() string { return "nats://" + address(s.port) }

// Start starts the server on its data and its port, and returns when it answers and
// has recovered its streams. Starting a running server does nothing.
func (s *NATSServer) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && !s.proc.ended() {
		return nil
	}
	cmd := s.folder.command(context.Background(), s.program, "--config", s.folder.join("nats.conf"))
	proc, err := startProcess(cmd, s.folder.join("nats.log"))
	if err != nil {
		return err
	}
	if err := proc.waitReady(s.ready); err != nil {
		return errors.Join(err, proc.stop(syscall.SIGKILL))
	}
	s.proc = proc
	return nil
}

// ready tells whether this server greets who connects, with JetStream on. It opens
// its port when the streams are recovered.
func (s *NATSServer) ready() bool {
	conn, err := net.DialTimeout("tcp4", address(s.port), pollInterval*50)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	if conn.SetDeadline(time.Now().Add(pollInterval*500)) != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && strings.HasPrefix(line, "INFO ") &&
		strings.Contains(line, `"server_name":"`+s.name()+`"`) && strings.Contains(line, `"jetstream":true`)
}

// Pause has the server fall silent, in a moment: it keeps its connections and answers
// nothing, until Resume. Pausing or resuming a dead server is an error.
func (s *NATSServer) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume has a paused server go on.
func (s *NATSServer) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *NATSServer) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return errors.New("signal nats: it does not run")
	}
	return s.proc.cmd.Process.Signal(sig)
}

// Kill ends the server at once, as a crash of it does, and returns when it is gone.
// Killing a dead server does nothing.
func (s *NATSServer) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	err := s.proc.stop(syscall.SIGKILL)
	s.proc = nil
	return err
}

// close ends the server for good.
func (s *NATSServer) close() error {
	return errors.Join(s.Kill(), s.folder.remove())
}
