package sqljournal_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/adapters/sqljournal"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// The test binary plays other processes on the same database, of which the environment
// says all. Parts talk by lines on standard output.
const (
	childPart    = "ONLYONCE_SQLJOURNAL_CHILD"
	childDialect = "ONLYONCE_SQLJOURNAL_DIALECT"
	childDriver  = "ONLYONCE_SQLJOURNAL_DRIVER"
	childDSN     = "ONLYONCE_SQLJOURNAL_DSN"
)

// runChild plays the part this process was started for, if any, and exits.
func runChild() {
	part := os.Getenv(childPart)
	if part == "" {
		return
	}
	play, ok := map[string]func(ctx context.Context, j *sqljournal.Journal) error{
		"hold": childHolds, "write": childWrites,
	}[part]
	if !ok {
		play = func(context.Context, *sqljournal.Journal) error { return errors.New("no such part: " + part) }
	}
	err := func() error {
		ctx := context.Background()
		db, err := sql.Open(os.Getenv(childDriver), os.Getenv(childDSN))
		if err != nil {
			return err
		}
		j, err := sqljournal.New(ctx, db, sqljournal.Config{Dialect: sqljournal.Dialect(os.Getenv(childDialect)), Lease: shortLease})
		if err != nil {
			return err
		}
		return play(ctx, j)
	}()
	fmt.Println("error", err)
	os.Exit(1)
}

// shortLease is the shortest there is.
const shortLease = time.Second

func say(words ...any) { fmt.Println(words...) }

// childHolds stays with an entry in its hands.
func childHolds(ctx context.Context, j *sqljournal.Journal) error {
	if _, _, err := j.Lock(ctx, "i"); err != nil {
		return err
	}
	say("locked")
	_, err := io.ReadAll(os.Stdin)
	return errors.Join(err, errors.New("the parent was to kill this process"))
}

// bulk is a body that takes a while to write, different in every entry and version.
func bulk(words ...any) []byte { return bytes.Repeat([]byte(fmt.Sprintln(words...)), 4000) }

// childWrites begins and saves entries without end, and says what is confirmed.
func childWrites(ctx context.Context, j *sqljournal.Journal) error {
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
		if err := l.Unlock(); err != nil {
			return err
		}
	}
}

// child is another process.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Scanner
}

// start starts a process for a part; it is killed with the test at the latest.
func start(t *testing.T, part string, p place) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), exe)
	cmd.Env = append(os.Environ(), childPart+"="+part, childDialect+"="+string(p.dialect), childDriver+"="+p.driver, childDSN+"="+p.dsn)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // it ends with this process
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, out: bufio.NewScanner(out)}
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

// B10, B17: a holder that lives keeps its entry for longer than the lease; one that was
// killed keeps it no longer than that.
func TestKilledHolder(t *testing.T) {
	t.Parallel()
	for name, fresh := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fresh(t)
			j, db := p.open(t), p.pool(t)
			begin(t, j, "i")
			c := start(t, "hold", p)
			if got := c.line(); got != "locked" {
				t.Fatalf("the process said %q", got)
			}
			first := one[int64](t, db, `SELECT locked_until_us FROM onlyonce_journal`)
			until(t, "the lease is renewed beyond its first end", func() bool {
				if _, _, err := j.Lock(t.Context(), "i"); !errors.Is(err, onceclient.ErrLocked) {
					t.Fatalf("what another process holds: %v", err)
				}
				return one[int64](t, db, `SELECT locked_until_us FROM onlyonce_journal`) > first+shortLease.Microseconds()
			})
			c.kill()
			var l onceclient.Lock
			until(t, "the entry of a killed holder is free", func() bool {
				var err error
				l, _, err = j.Lock(t.Context(), "i")
				return err == nil
			})
			defer l.Unlock()
			if err := l.Save(t.Context(), answered(entryOf("i"))); err != nil {
				t.Error(err)
			}
		})
	}
}

// B100: killed while it writes, a process leaves every entry whole: what it had
// confirmed is there, and what it had not is there or not.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	for name, fresh := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, lines := range []int{1, 5, 12} {
				killWriter(t, fresh(t), lines)
			}
		})
	}
}

func killWriter(t *testing.T, p place, lines int) {
	t.Helper()
	j := p.open(t)
	c := start(t, "write", p)
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
	intents, err := j.Pending(t.Context(), "", 1000)
	if err != nil || len(intents) < len(confirmed) || len(intents) > len(confirmed)+1 {
		t.Fatalf("%d entries of %d, %v", len(intents), len(confirmed), err)
	}
	for _, intent := range intents {
		e := stands(t, j, intent)
		var i int
		fmt.Sscan(intent, &i)
		if e.Attempts < confirmed[i] || e.Attempts > confirmed[i]+1 || !bytes.Equal(e.Body, bulk("request", i)) {
			t.Errorf("entry %d: %d attempts of %d, %d bytes", i, e.Attempts, confirmed[i], len(e.Body))
		}
		if e.Attempts > 0 && !bytes.Equal(e.Answer.Body, bulk("answer", i, e.Attempts)) {
			t.Errorf("entry %d: answer of %d bytes", i, len(e.Answer.Body))
		}
	}
}
