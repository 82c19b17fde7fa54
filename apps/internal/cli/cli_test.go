package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce/apps/internal/cli"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) {
	// DynamoDB's client is told of its account by the environment, which all tests share.
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_CA_BUNDLE": ""} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	testscript.Main(leaks{m}, map[string]func(){
		"onlyonce": func() {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			code := cli.Run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
			stop()
			os.Exit(code)
		},
	})
}

// leaks runs the tests and looks for goroutines they left.
type leaks struct{ m *testing.M }

func (l leaks) Run() int {
	code := testserver.Run(l.m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			// Else the race detector keeps every process for a second when it has ended.
			env.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"charge":  charge,
			"order":   order,
			"ledger":  ledger,
			"exits":   exits,
			"taken":   taken,
			"consume": consume,
		},
	})
}

// exits runs a command and checks its exit code: exits CODE onlyonce ….
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if err != nil {
		if _, after, ok := strings.Cut(err.Error(), "exit status "); ok {
			code = int(after[0] - '0')
		}
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// taken runs a command with a port that is in use, and checks that it fails and
// says so: taken onlyonce … --listen.
func taken(ts *testscript.TestScript, _ bool, args []string) {
	var lc net.ListenConfig
	listener, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	ts.Check(err)
	defer listener.Close()
	exits(ts, false, append([]string{"1"}, append(args, listener.Addr().String())...))
	if text := ts.ReadFile("stderr"); !strings.Contains(text, "in use") || !strings.Contains(text, "hint: is something else listening there?") {
		ts.Fatalf("it says %q", text)
	}
}

// charge starts the service on the store test.db, sends charges to it and
// stops it: charge KEY SOURCE STATUS ….
func charge(ts *testscript.TestScript, _ bool, args []string) {
	serving(ts, func(c *client) {
		for i := 0; i+2 < len(args); i += 3 {
			c.send(http.MethodPost, "/charges", args[i], `{"amount":1500,"currency":"ARS","source":"`+args[i+1]+`"}`, args[i+2])
		}
	})
}

// order does the same with an order and a charge that pays it: order ORDER KEY
// SOURCE STATUS.
func order(ts *testscript.TestScript, _ bool, args []string) {
	serving(ts, func(c *client) {
		c.send(http.MethodPut, "/orders/"+args[0], "", `{"lines":[{"product":"prod_mate","quantity":1}]}`, "")
		c.send(http.MethodPost, "/charges", args[1], `{"amount":1500,"currency":"ARS","source":"`+args[2]+`","order":"`+args[0]+`"}`, args[3])
	})
}

// ledger starts the service, and counts the transfers it has written: ledger N.
func ledger(ts *testscript.TestScript, _ bool, args []string) {
	serving(ts, func(c *client) {
		resp, err := c.http.Get(c.url + "/ledger")
		ts.Check(err)
		defer resp.Body.Close()
		var page struct {
			Data []json.RawMessage `json:"data"`
		}
		ts.Check(json.NewDecoder(resp.Body).Decode(&page))
		if fmt.Sprint(len(page.Data)) != args[0] {
			ts.Fatalf("the ledger has %d transfers, want %s", len(page.Data), args[0])
		}
	})
}

// client sends requests to a service that a script has started.
type client struct {
	ts   *testscript.TestScript
	url  string
	http *http.Client
}

// send checks the status of the answer, unless none is wanted.
func (c *client) send(method, path, key, body, status string) {
	r, err := http.NewRequestWithContext(context.Background(), method, c.url+path, strings.NewReader(body))
	c.ts.Check(err)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.http.Do(r)
	c.ts.Check(err)
	_ = resp.Body.Close()
	if status != "" && fmt.Sprint(resp.StatusCode) != status {
		c.ts.Fatalf("%s %s: %s, want %s", path, key, resp.Status, status)
	}
}

// serving runs the service on the store test.db for fn, with a processor that
// promises nothing. It checks the first line it prints.
func serving(ts *testscript.TestScript, fn func(*client)) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	reader, writer := io.Pipe()
	done := make(chan int, 1)
	go func() {
		defer writer.Close()
		done <- cli.Run(ctx, []string{
			"serve", "--listen", "127.0.0.1:0", "--store", "sqlite:" + ts.MkAbs("test.db"), "--processor-timeout", "200ms",
			"--processor-memory=0", "--no-processor-lookup", // so that nobody but an operator finds out
		}, cli.Streams{In: strings.NewReader(""), Out: writer, Err: io.Discard})
	}()
	out := bufio.NewReader(reader)
	line, err := out.ReadString('\n')
	ts.Check(err)
	url, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "onlyonce: listening on ")
	if !ok {
		ts.Fatalf("the first line is %q", line)
	}
	go io.Copy(io.Discard, out)
	c := &client{ts: ts, url: url, http: &http.Client{Transport: &http.Transport{}}}
	defer c.http.CloseIdleConnections()
	fn(c)
	stop()
	if code := <-done; code != 0 {
		ts.Fatalf("serve ended with %d", code)
	}
}
