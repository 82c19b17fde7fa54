package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce/apps/internal/cli"
)

func TestMain(m *testing.M) {
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
	code := l.m.Run()
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
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"charge": charge,
			"exits":  exits,
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

// charge starts the service on the store test.db, sends charges to it and
// stops it: charge KEY SOURCE STATUS …. It checks the first line it prints.
func charge(ts *testscript.TestScript, _ bool, args []string) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	reader, writer := io.Pipe()
	done := make(chan int, 1)
	go func() {
		defer writer.Close()
		done <- cli.Run(ctx, []string{
			"serve", "--listen", "127.0.0.1:0", "--store", "sqlite:" + ts.MkAbs("test.db"), "--processor-timeout", "200ms",
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
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := 0; i+2 < len(args); i += 3 {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", strings.NewReader(`{"amount":1500,"currency":"ARS","source":"`+args[i+1]+`"}`))
		ts.Check(err)
		r.Header.Set("Idempotency-Key", args[i])
		resp, err := client.Do(r)
		ts.Check(err)
		_ = resp.Body.Close()
		if fmt.Sprint(resp.StatusCode) != args[i+2] {
			ts.Fatalf("charge %s: %s, want %s", args[i], resp.Status, args[i+2])
		}
	}
	stop()
	if code := <-done; code != 0 {
		ts.Fatalf("serve ended with %d", code)
	}
}
