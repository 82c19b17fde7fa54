package filejournal_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/filejournal"
)

// The test binary plays other processes on the same folder: childEnv holds the part,
// childDir the folder. Parts talk by lines on standard input and output.
const (
	childEnv = "ONLYONCE_FILEJOURNAL_CHILD"
	childDir = "ONLYONCE_FILEJOURNAL_DIR"
)

// runChild plays the part this process was started for, if any, and exits.
func runChild() {
	part := os.Getenv(childEnv)
	if part == "" {
		return
	}
	parts := map[string]func(ctx context.Context, dir string) error{
		"hold": childHolds, "write": childWrites, "begin": childBegins,
	}
	maps.Copy(parts, systemParts())
	play, ok := parts[part]
	if !ok {
		play = func(context.Context, string) error { return errors.New("no such part: " + part) }
	}
	if err := play(context.Background(), os.Getenv(childDir)); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// say tells the parent; hear waits for it. The parent's death ends the wait.
func say(words ...any) { fmt.Println(words...) }

func hear() { bufio.NewReader(os.Stdin).ReadString('\n') }

// childHolds stays with an entry in its hands.
func childHolds(ctx context.Context, dir string) error {
	j, err := filejournal.Open(dir)
	if err != nil {
		return err
	}
	if _, _, err := j.Lock(ctx, "i"); err != nil {
		return err
	}
	say("locked")
	hear()
	return errors.New("the parent was to kill this process")
}

// bulk is a body that takes a while to write, different in every entry and version.
func bulk(words ...any) []byte { return bytes.Repeat([]byte(fmt.Sprintln(words...)), 4000) }

// childWrites begins and saves entries without end, and says what is confirmed.
func childWrites(ctx context.Context, dir string) error {
	j, err := filejournal.Open(dir)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		e := entryOf(fmt.Sprint(i))
		e.Body = bulk("request", i)
		if _, _, err := j.Begin(ctx, e); err != nil {
			return err
		}
		say("begun", i)
		l, e, err := j.Lock(ctx, e.Intent)
		if err != nil {
			return err
		}
		for attempt := 1; attempt <= 2; attempt++ {
			e.Attempts = attempt
			e.Answer = &onceclient.Answer{Status: 503, Body: bulk("answer", i, attempt)}
			if err := l.Save(ctx, e); err != nil {
				return err
			}
			say("saved", i, attempt)
		}
		if i%2 == 0 {
			if err := l.Unlock(); err != nil {
				return err
			}
		}
	}
}

const contended = 20

// childBegins begins the same entries as others, at the parent's word, and says which
// it made.
func childBegins(ctx context.Context, dir string) error {
	j, err := filejournal.Open(dir)
	if err != nil {
		return err
	}
	say("ready")
	hear()
	for i := range contended {
		e := entryOf(fmt.Sprint(i))
		e.Key = fmt.Sprint("key of ", os.Getpid())
		stands, made, err := j.Begin(ctx, e)
		if err != nil {
			return err
		}
		say(i, made, stands.Key)
	}
	say("end")
	return nil
}

// child is another process.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// start starts a process for a part; it is killed with the test at the latest.
func start(t *testing.T, part, dir string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+part, childDir+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(c.kill)
	return c
}

// kill is kill -9, and waits for the process to be gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// line is the next line the process says.
func (c *child) line() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("the process said nothing more: %v", c.out.Err())
	}
	return c.out.Text()
}

// expect waits for a line.
func (c *child) expect(want string) {
	c.t.Helper()
	if got := c.line(); got != want {
		c.t.Fatalf("the process said %q, want %q", got, want)
	}
}

// tell lets the process go on.
func (c *child) tell() {
	c.t.Helper()
	if _, err := io.WriteString(c.in, "go\n"); err != nil {
		c.t.Fatal(err)
	}
}

// B24: a killed holder's entry is free at once.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	begin(t, j, "i")
	c := start(t, "hold", dir)
	c.expect("locked")
	if _, _, err := j.Lock(t.Context(), "i"); !errors.Is(err, onceclient.ErrLocked) {
		t.Errorf("what another process holds: %v", err)
	}
	c.kill()
	l, e := lock(t, j, "i")
	if err := l.Save(t.Context(), answered(e)); err != nil {
		t.Error(err)
	}
}

// B100: killed while it writes, a process leaves every entry whole: what it had
// confirmed is there, and what it had not is there or not.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, lines := range []int{1, 2, 3, 7, 12, 20} {
		killWriter(t, dir+fmt.Sprint("/", lines), lines)
	}
}

func killWriter(t *testing.T, dir string, lines int) {
	t.Helper()
	c := start(t, "write", dir)
	confirmed := map[int]int{} // the last attempt that was saved, by entry
	note := func(line string) {
		var i, attempt int
		if n, _ := fmt.Sscanf(line, "saved %d %d", &i, &attempt); n == 2 {
			confirmed[i] = attempt
		} else if n, _ := fmt.Sscanf(line, "begun %d", &i); n == 1 {
			confirmed[i] = 0
		} else {
			t.Fatalf("the process said %q", line)
		}
	}
	for range lines {
		note(c.line())
	}
	_ = c.cmd.Process.Kill()
	for c.out.Scan() { // what was said before it died
		note(c.out.Text())
	}
	c.kill()
	j := open(t, dir)
	intents, err := j.Pending(t.Context(), "", 1000)
	if err != nil || len(intents) < len(confirmed) || len(intents) > len(confirmed)+1 {
		t.Fatalf("%d entries of %d, %v", len(intents), len(confirmed), err)
	}
	for _, intent := range intents {
		_, e := lock(t, j, intent)
		var i int
		fmt.Sscan(intent, &i)
		if e.Attempts < confirmed[i] || e.Attempts > confirmed[i]+1 || !bytes.Equal(e.Body, bulk("request", i)) {
			t.Errorf("entry %d: %d attempts of %d, %d bytes", i, e.Attempts, confirmed[i], len(e.Body))
		}
		if e.Attempts > 0 && !bytes.Equal(e.Answer.Body, bulk("answer", i, e.Attempts)) {
			t.Errorf("entry %d: answer of %d bytes", i, len(e.Answer.Body))
		}
	}
	if left := files(t, dir, "tmp"); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// L1: of several processes that begin an intent, one makes it, and all learn its key.
func TestProcessesBegin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var children []*child
	for range 3 {
		c := start(t, "begin", dir)
		c.expect("ready")
		children = append(children, c)
	}
	for _, c := range children {
		c.tell()
	}
	makers, keys := map[string]int{}, map[string]string{}
	for _, c := range children {
		for line := c.line(); line != "end"; line = c.line() {
			i, rest, _ := strings.Cut(line, " ")
			made, key, _ := strings.Cut(rest, " ")
			if made == "true" {
				makers[i]++
			}
			if first, ok := keys[i]; ok && first != key {
				t.Errorf("entry %s has the keys %q and %q", i, first, key)
			}
			keys[i] = key
		}
	}
	for i := range contended {
		if n := makers[fmt.Sprint(i)]; n != 1 {
			t.Errorf("entry %d was made by %d", i, n)
		}
	}
}
