package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// redisDatabases is how many databases the shared server has: one for each call of
// Redis.
const redisDatabases = 4096

// RedisServer is a private Redis server with its own folder and port. Its methods
// may be called from several goroutines.
type RedisServer struct {
	program string
	flags   []string
	folder  *folder
	port    int

	mu   sync.Mutex
	proc *process // nil while the server is down
	next int      // the next database to hand out
}

// Redis hands out a fresh, empty database of the Redis server that all tests of a
// binary share, which [Run] stops, and returns its URL. The server keeps an
// append-only file, flushed once a second. Without Redis the test is skipped.
func Redis(tb testing.TB) string {
	tb.Helper()
	s, err := start(&shared, "redis", func() (*RedisServer, error) {
		return startRedis(nil, "databases "+strconv.Itoa(redisDatabases), "appendonly yes", "appendfsync everysec")
	})
	if err != nil {
		unavailable(tb, err)
	}
	n := s.takeDatabase()
	if n >= redisDatabases {
		tb.Fatalf("all %d databases of the shared server are taken", redisDatabases)
	}
	tb.Cleanup(func() {
		if _, err := s.Do("FLUSHDB", strconv.Itoa(n)); err != nil {
			tb.Errorf("empty the test's database: %v", err)
		}
	})
	return s.URL() + "/" + strconv.Itoa(n)
}

func (s *RedisServer) takeDatabase() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return s.next - 1
}

// NewRedis starts a server for one test and stops it when the test ends. Each
// setting is a line of redis.conf that wins over ours, such as "maxmemory 8mb".
// Unless they say otherwise an append-only file takes every write before it is
// confirmed. Without Redis the test is skipped.
func NewRedis(tb testing.TB, settings ...string) *RedisServer {
	tb.Helper()
	s, err := startRedis(nil, slices.Concat([]string{"appendonly yes", "appendfsync always"}, settings)...)
	if err != nil {
		unavailable(tb, err)
	}
	s.stopWith(tb)
	return s
}

// stopWith stops the server when the test ends.
func (s *RedisServer) stopWith(tb testing.TB) {
	tb.Helper()
	tb.Cleanup(func() {
		if err := s.close(); err != nil {
			tb.Errorf("stop redis: %v", err)
		}
	})
}

// startRedis starts a server on a free port, with flags behind its file of
// settings.
func startRedis(flags []string, settings ...string) (*RedisServer, error) {
	program, err := findRedis()
	if err != nil {
		return nil, err
	}
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	s := &RedisServer{program: program, flags: flags, folder: f}
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

// findRedis returns the program's path.
func findRedis() (string, error) {
	for _, name := range []string{"redis-server", "/usr/bin/redis-server", "/usr/local/bin/redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &missingError{what: "redis-server not found", hint: "install redis-server"}
}

// configure writes the server's settings. Sentinel changes its file by itself.
func (s *RedisServer) configure(settings []string) error {
	lines := slices.Concat([]string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(s.port),
		"dir " + s.folder.path,
		"daemonize no",
		"protected-mode no",
	}, settings)
	path := s.folder.join("redis.conf")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("configure redis: %w", err)
	}
	return s.folder.account.own(path)
}

// Address is the server's host and port. It stays the same over Kill and Start.
func (s *RedisServer) Address() string { return address(s.port) }

// URL is the server's URL, without a database.
func (s *RedisServer) URL() string { return "redis://" + s.Address() }

// Do sends a command and returns the reply as text, the parts of a list one a
// line. FLUSHDB takes the number of a database.
func (s *RedisServer) Do(args ...string) (string, error) { return redisDo(s.Address(), args...) }

// Start starts the server on its data and its port, and returns when it answers
// and has loaded its data. Starting a running server does nothing.
func (s *RedisServer) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && !s.proc.ended() {
		return nil
	}
	args := append([]string{"redis.conf"}, s.flags...)
	proc, err := startProcess(s.folder.command(context.Background(), s.program, args...), s.folder.join("redis.log"))
	if err != nil {
		return err
	}
	pid := "process_id:" + strconv.Itoa(proc.cmd.Process.Pid)
	err = proc.waitReady(func() bool {
		info, err := s.Do("INFO") // LOADING is an error
		return err == nil && strings.Contains(info, pid+"\r\n") && !strings.Contains(info, "loading:1")
	})
	if err != nil {
		return errors.Join(err, proc.stop(syscall.SIGKILL))
	}
	s.proc = proc
	return nil
}

// Kill ends the server at once, as a crash of it does, and returns when it is
// gone. Killing a dead server does nothing.
func (s *RedisServer) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	err := s.proc.stop(syscall.SIGKILL)
	s.proc = nil
	return err
}

// Pause has the server do nothing until Resume: it takes connections and answers
// nobody.
func (s *RedisServer) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume ends a pause.
func (s *RedisServer) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *RedisServer) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return errors.New("signal redis: it is not running")
	}
	return s.proc.cmd.Process.Signal(sig)
}

// close ends the server for good.
func (s *RedisServer) close() error {
	return errors.Join(s.Kill(), s.folder.remove())
}
