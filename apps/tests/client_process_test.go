package tests_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// caller is a user of `onlyonce call` with a home and a journal.
type caller struct {
	home    string
	journal string // empty: the default one
	till    *till
}

// journals are the kinds of journals, by name.
func journals(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"default": "", "folder": "journal", "sqlite": "sqlite:journal.db"}
}

func newCaller(t *testing.T, s *till, journal string) *caller {
	t.Helper()
	return &caller{home: t.TempDir(), journal: journal, till: s}
}

// charge are the words that charge an order.
func (c *caller) charge(order string) []string {
	return []string{c.till.url, "-d", orderBody(order), "--intent", order + "/charge", "-H", "X-Shop: berlin"}
}

// child is a running `onlyonce call`.
type child struct {
	cmd      *exec.Cmd
	out, log lockedLog
	done     chan struct{}
}

// start starts a call, which is killed with the test.
func (c *caller) start(t *testing.T, args ...string) *child {
	t.Helper()
	args = append([]string{"call"}, args...)
	if c.till.cacert != "" {
		args = append(args, "--cacert", c.till.cacert)
	}
	if c.journal != "" {
		args = append(args, "--journal", c.journal)
	}
	p := &child{cmd: exec.Command(program(t), args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = c.home, &p.out, &p.log
	p.cmd.Env = append(os.Environ(), "HOME="+c.home, "XDG_STATE_HOME=", "GORACE=atexit_sleep_ms=0")
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %v: %v", args, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%v\nprinted %s\nwrote %s", args, tail(p.out.String()), tail(p.log.String()))
		}
	})
	return p
}

// kill ends it as a power failure would.
func (p *child) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// wait waits for its end and gives its exit code, -1 if it was killed.
func (p *child) wait() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// says waits until it has written a text.
func (p *child) says(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(p.log.String(), text) {
		select {
		case <-p.done:
			if !strings.Contains(p.log.String(), text) {
				t.Fatalf("it ended with %d and never said %q", p.wait(), text)
			}
		case <-t.Context().Done():
			t.Fatalf("it never said %q", text)
		default:
			pause(t.Context(), 5*time.Millisecond)
		}
	}
}

// call runs a call to its end.
func (c *caller) call(t *testing.T, args ...string) (out, log string, code int) {
	t.Helper()
	p := c.start(t, args...)
	code = p.wait()
	return p.out.String(), p.log.String(), code
}

// open is what the journal says is open.
func (c *caller) open(t *testing.T) (intents []string) {
	t.Helper()
	out, log, code := c.call(t, "--list", "--json")
	var views []struct{ Intent string }
	if err := json.Unmarshal([]byte(out), &views); err != nil || code != 0 {
		t.Fatalf("list: %d, %v\n%s%s", code, err, out, log)
	}
	for _, v := range views {
		intents = append(intents, v.Intent)
	}
	return intents
}

// wantOpen checks what is open.
func (c *caller) wantOpen(t *testing.T, want ...string) {
	t.Helper()
	if got := c.open(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("open is %v, want %v", got, want)
	}
}

// wantAnswer runs a call that has to print the answer of an order.
func (c *caller) wantAnswer(t *testing.T, order string, args ...string) (log string) {
	t.Helper()
	out, log, code := c.call(t, args...)
	if want := c.till.answer(order); code != 0 || out != want || want == "" {
		t.Errorf("%v: exit code %d, printed %q, want %q\n%s", args, code, out, want, log)
	}
	return log
}

// interrupt is Ctrl-C.
func (p *child) interrupt(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// files are all bytes below a folder.
func files(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
