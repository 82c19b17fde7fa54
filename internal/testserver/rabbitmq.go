package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// rabbitNode is the name of every node: each has an epmd of its own, where it is the
// only one.
const rabbitNode = "rabbit@127.0.0.1"

// RabbitMQServer is a private RabbitMQ node with its own folder, ports, cookie and
// epmd. Its methods may be called from several goroutines.
type RabbitMQServer struct {
	programs rabbitPrograms
	folder   *folder
	cookie   string
	port     int // of AMQP
	distPort int // of Erlang's distribution, by which vhosts are made
	epmdPort int

	mu   sync.Mutex
	epmd *process // lives as long as the server is not closed
	proc *process // nil while the server is down
}

// RabbitMQ makes a fresh, empty virtual host for the test and returns its URL, of the
// form amqp://guest:guest@host:port/vhost. All tests of a binary share one node, which
// [Run] stops. The virtual host and what is in it are deleted when the test ends.
// Without RabbitMQ the test is skipped.
func RabbitMQ(tb testing.TB) string {
	tb.Helper()
	s, err := start(&shared, "rabbitmq", startRabbitMQ)
	if err != nil {
		unavailable(tb, err)
	}
	return s.VHost(tb)
}

// NewRabbitMQ starts a node for one test, to kill and to start again, and stops it
// when the test ends. It takes some seconds. Without RabbitMQ the test is skipped.
func NewRabbitMQ(tb testing.TB) *RabbitMQServer {
	tb.Helper()
	s, err := startRabbitMQ()
	if err != nil {
		unavailable(tb, err)
	}
	tb.Cleanup(func() {
		if err := s.close(); err != nil {
			tb.Errorf("stop rabbitmq: %v", err)
		}
	})
	return s
}

// startRabbitMQ makes a node and starts it on free ports.
func startRabbitMQ() (*RabbitMQServer, error) {
	programs, err := findRabbitMQ()
	if err != nil {
		return nil, err
	}
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	s := &RabbitMQServer{programs: programs, folder: f, cookie: databaseName()}
	for range startTries {
		if err = s.takePorts(); err != nil {
			break
		}
		if err = s.configure(); err != nil {
			break
		}
		if err = s.Start(); err == nil {
			return s, nil
		}
		err = errors.Join(err, s.stopEpmd())
	}
	return nil, errors.Join(err, f.remove())
}

func (s *RabbitMQServer) takePorts() (err error) {
	for _, port := range []*int{&s.port, &s.distPort, &s.epmdPort} {
		if *port, err = freePort(); err != nil {
			return err
		}
	}
	return nil
}

// configure writes the node's settings, its list of plugins, which is empty, and the
// cookie without which nobody may command it.
func (s *RabbitMQServer) configure() error {
	files := map[string]string{
		"rabbitmq.conf": strings.Join([]string{
			"listeners.tcp.default = " + address(s.port),
			"disk_free_limit.absolute = 1MB", // else a full disk stops all publishers
			"log.console.level = warning",
			"default_user_tags.administrator = false",
		}, "\n") + "\n",
		"plugins":        "[].\n",
		".erlang.cookie": s.cookie,
	}
	for name, text := range files {
		path := s.folder.join(name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("configure rabbitmq: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o400); err != nil {
			return fmt.Errorf("configure rabbitmq: %w", err)
		}
		if err := s.folder.account.own(path); err != nil {
			return err
		}
	}
	return nil
}

// environment points the node's scripts at the folder instead of the system's.
func (s *RabbitMQServer) environment() []string {
	dir := s.folder.path
	return []string{
		"HOME=" + dir,
		"ERL_EPMD_PORT=" + strconv.Itoa(s.epmdPort),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=" + rabbitNode,
		"RABBITMQ_USE_LONGNAME=true",
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(s.distPort),
		"RABBITMQ_CONFIG_FILE=" + filepath.Join(dir, "rabbitmq.conf"),
		"RABBITMQ_CONF_ENV_FILE=" + filepath.Join(dir, "none"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + filepath.Join(dir, "none"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(dir, "plugins"),
		"RABBITMQ_MNESIA_BASE=" + filepath.Join(dir, "mnesia"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + filepath.Join(dir, "generated"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_LOG_BASE=" + filepath.Join(dir, "logs"),
		"ERL_CRASH_DUMP_BYTES=0",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_SCHEDULER_BIND_TYPE=u", // nodes side by side would all be bound to the same cores
		// The script then becomes the node instead of waiting for it, so that a kill hits
		// the node.
		"RUNNING_UNDER_SYSTEMD=true",
	}
}

// URL is the URL of the virtual host that every node has, "/". It stays the same over
// Kill and Start.
func (s *RabbitMQServer) URL() string { return s.url("%2f") }

func (s *RabbitMQServer) url(vhost string) string {
	return "amqp://guest:guest@" + address(s.port) + "/" + vhost
}

// VHost makes a fresh, empty virtual host and returns its URL. It is deleted when the
// test ends, if the server then runs.
func (s *RabbitMQServer) VHost(tb testing.TB) string {
	tb.Helper()
	name := databaseName()
	_, err := s.eval(tb.Context(), fmt.Sprintf(`ok = rabbit_vhost:add(<<"%[1]s">>, <<"test">>),
		ok = rabbit_auth_backend_internal:set_permissions(<<"guest">>, <<"%[1]s">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>)`, name))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if !s.running() {
			return
		}
		if _, err := s.eval(context.WithoutCancel(tb.Context()), fmt.Sprintf(`rabbit_vhost:delete(<<"%s">>, <<"test">>)`, name)); err != nil {
			tb.Errorf("delete the test's virtual host: %v", err)
		}
	})
	return s.url(name)
}

// eval has the node run Erlang expressions and returns the last one's value.
func (s *RabbitMQServer) eval(ctx context.Context, expressions string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// Each call has a name of its own (-h): two of one name at once are refused.
	cmd := s.folder.command(ctx, s.programs.call, "-h", databaseName(), "-c", s.cookie, "-address", address(s.distPort), "-e")
	cmd.Env = append(cmd.Env, s.environment()...)
	cmd.Stdin = strings.NewReader(expressions + ".\n")
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("ask rabbitmq: %w: %s", err, text)
	}
	value, ok := strings.CutPrefix(text, "{ok, ")
	if !ok {
		return "", fmt.Errorf("ask rabbitmq: %s", text)
	}
	return strings.TrimSuffix(value, "}"), nil
}

// Start starts the node on its data and its ports, and returns when it takes
// connections. Starting a running server does nothing.
func (s *RabbitMQServer) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && !s.proc.ended() {
		return nil
	}
	if err := s.startEpmd(); err != nil {
		return err
	}
	cmd := s.folder.command(context.Background(), s.programs.server)
	cmd.Env = append(cmd.Env, s.environment()...)
	proc, err := startProcess(cmd, s.folder.join("rabbitmq.log"))
	if err != nil {
		return err
	}
	if err := proc.waitReady(s.ready); err != nil {
		return errors.Join(err, proc.stop(syscall.SIGKILL))
	}
	s.proc = proc
	return nil
}

// startEpmd starts Erlang's name server, by which a node looks whether its name is
// taken. Were it missing, the node would start one that outlives it.
func (s *RabbitMQServer) startEpmd() error {
	if s.epmd != nil && !s.epmd.ended() {
		return nil
	}
	cmd := s.folder.command(context.Background(), s.programs.epmd, "-port", strconv.Itoa(s.epmdPort), "-address", "127.0.0.1")
	proc, err := startProcess(cmd, s.folder.join("epmd.log"))
	if err != nil {
		return err
	}
	if err := proc.waitReady(func() bool { return epmdAnswers(s.epmdPort) }); err != nil {
		return errors.Join(err, proc.stop(syscall.SIGKILL))
	}
	s.epmd = proc
	return nil
}

func (s *RabbitMQServer) stopEpmd() error {
	if s.epmd == nil {
		return nil
	}
	err := s.epmd.stop(syscall.SIGKILL)
	s.epmd = nil
	return err
}

// epmdAnswers tells whether somebody takes connections at the port.
func epmdAnswers(port int) bool {
	conn, err := net.DialTimeout("tcp4", address(port), pollInterval*50)
	return err == nil && conn.Close() == nil
}

// ready tells whether AMQP is answered, and by this very node.
func (s *RabbitMQServer) ready() bool {
	if !speaksAMQP(s.port) {
		return false
	}
	running, err := s.eval(context.Background(), "rabbit:is_running()")
	return err == nil && running == "true"
}

// speaksAMQP tells whether a server answers the header of AMQP 0-9-1 with a method.
func speaksAMQP(port int) bool {
	conn, err := net.DialTimeout("tcp4", address(port), pollInterval*50)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	if conn.SetDeadline(time.Now().Add(pollInterval*500)) != nil {
		return false
	}
	if _, err := io.WriteString(conn, "AMQP\x00\x00\x09\x01"); err != nil {
		return false
	}
	first := make([]byte, 1)
	_, err = io.ReadFull(conn, first)
	return err == nil && first[0] == 1
}

func (s *RabbitMQServer) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && !s.proc.ended()
}

// settle has the node write what it knows of virtual hosts and queues. It is lazy with
// that: a queue that was declared seconds before a kill may be gone, or without a
// leader, afterwards. Messages and acks are not touched by it.
const settle = "mnesia:sync_log(), [dets:sync(T) || T <- dets:all()]"

// Kill ends the node at once, as a crash of it does, and returns when it is gone. What was
// declared is written before; messages and acks are as a crash leaves them. Killing a
// dead server does nothing.
func (s *RabbitMQServer) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	if !s.proc.ended() {
		if _, err := s.eval(context.Background(), settle); err != nil {
			return err
		}
	}
	err := s.proc.stop(syscall.SIGKILL)
	s.proc = nil
	return err
}

// close ends the server for good.
func (s *RabbitMQServer) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.proc != nil {
		err = s.proc.stop(syscall.SIGKILL)
		s.proc = nil
	}
	return errors.Join(err, s.stopEpmd(), s.folder.remove())
}

// rabbitPrograms are the programs that a node needs.
type rabbitPrograms struct {
	server string // the script that becomes the node
	epmd   string
	call   string // erl_call, which commands a node
}

// findRabbitMQ returns the programs' paths. The script in PATH is a wrapper that
// insists on the account rabbitmq, so the one behind it is looked for first.
func findRabbitMQ() (rabbitPrograms, error) {
	packaged, err := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
	if err != nil {
		return rabbitPrograms{}, err
	}
	var p rabbitPrograms
	servers := append(packaged, "/usr/lib/rabbitmq/bin/rabbitmq-server", "/opt/homebrew/sbin/rabbitmq-server", "rabbitmq-server")
	for _, want := range []struct {
		path  *string
		names []string
	}{
		{&p.server, servers},
		{&p.epmd, []string{"epmd", "/usr/bin/epmd"}},
		{&p.call, []string{"erl_call", "/usr/bin/erl_call"}},
	} {
		for _, name := range want.names {
			if path, err := exec.LookPath(name); err == nil {
				*want.path = path
				break
			}
		}
		if *want.path == "" {
			return p, &missingError{what: want.names[len(want.names)-1] + " not found", hint: "install rabbitmq-server, or run make servers"}
		}
	}
	return p, nil
}
