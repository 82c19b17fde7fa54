package tests_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// built is the program, built by the first test that needs it and removed by
// TestMain.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// program is the path of the built program.
func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "onlyonce-tests"); built.err != nil { //nolint:usetesting // it outlives the test that asks first
			return
		}
		out, err := exec.Command("go", "build", "-race", "-o", built.dir, "github.com/onlyonce-go/onlyonce/apps/onlyonce").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatalf("build the program: %v", built.err)
	}
	return filepath.Join(built.dir, "onlyonce")
}

// process is a running program.
type process struct {
	URL string

	cmd  *exec.Cmd
	log  *lockedLog
	done chan struct{}
}

// lockedLog keeps what a process wrote, to be shown when a test fails.
type lockedLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs the program until it says where it listens. It is killed with the
// test.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(program(t), args...), log: &lockedLog{}, done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Stderr = p.log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %v: %v", args, err)
	}
	first := make(chan string, 1)
	go func() {
		defer close(p.done)
		r := bufio.NewReader(stdout)
		line, _ := r.ReadString('\n')
		first <- line
		_, _ = io.Copy(p.log, r)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%v wrote:\n%s", args, tail(p.log.String()))
		}
	})
	line := <-first
	_, url, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !ok {
		<-p.done
		t.Fatalf("%v said %q first, not where it listens:\n%s", args, line, p.log)
	}
	p.URL = url
	return p
}

// kill ends the process as a power failure would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func tail(s string) string {
	const most = 4000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// run runs the program to its end and gives its output and exit code.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs strings.Builder
	cmd := exec.Command(program(t), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("run %v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// answer is what a client saw.
type answer struct {
	status int
	header http.Header
	body   string
}

// post sends one attempt.
func post(ctx context.Context, client *http.Client, url, key, body string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	req.GetBody = nil // net/http must not send again by itself
	return do(client, req)
}

// get reads what is at a URL.
func get(ctx context.Context, client *http.Client, url string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return answer{}, err
	}
	return do(client, req)
}

func do(client *http.Client, req *http.Request) (answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

// pause waits as a client does that was told when to come back.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// newClient is an HTTP client of a test's own.
func newClient(t *testing.T) *http.Client {
	t.Helper()
	c := newPatientClient(t)
	c.Timeout = 10 * time.Second
	return c
}

// newPatientClient is one without a time limit.
func newPatientClient(t *testing.T) *http.Client {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}
