package sqlitestore_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// The test binary plays other processes on the same file: childEnv holds the
// part, childPath the file. Parts talk by lines on standard input and output.
const (
	childEnv  = "ONLYONCE_SQLITE_CHILD"
	childPath = "ONLYONCE_SQLITE_PATH"
)

// runChild plays the part this process was started for, if any, and exits.
func runChild() {
	part := os.Getenv(childEnv)
	if part == "" {
		return
	}
	parts := map[string]func(ctx context.Context, path string) error{
		"claim":    childClaims,
		"resource": childClaimsResources,
		"recover":  childRecovers,
		"step":     childStepTx,
		"atomic":   childAtomic,
		"complete": childCompletes,
		"hold":     childHolds,
		"open":     childOpens,
	}
	maps.Copy(parts, systemParts())
	play, ok := parts[part]
	if !ok {
		play = func(context.Context, string) error { return errors.New("no such part: " + part) }
	}
	if err := play(context.Background(), os.Getenv(childPath)); err != nil {
		fmt.Println("error", onlyonce.CodeOf(err), err)
		os.Exit(1)
	}
	os.Exit(0)
}

// say tells the parent; hear waits for it. The parent's death ends the wait.
func say(words ...any) { fmt.Println(words...) }

func hear() { bufio.NewReader(os.Stdin).ReadString('\n') }

// childClaims claims a hundred keys at the parent's word, the odd processes
// backwards, and says which it owns.
func childClaims(ctx context.Context, path string) error {
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	say("ready")
	hear()
	for i := range claimedKeys {
		if os.Getpid()%2 == 1 {
			i = claimedKeys - 1 - i
		}
		c, err := s.Claim(ctx, claimOf(fmt.Sprint(i)))
		if err != nil {
			return err
		}
		if c.Verdict.Owns() {
			say("own", i)
		}
	}
	say("end")
	return nil
}

const claimedKeys = 100

// childAtomic stays in the middle of a transaction.
func childAtomic(ctx context.Context, path string) error {
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Config{})
	if err != nil {
		return err
	}
	_, _, err = s.Atomic(ctx, claimOf("k"), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		if err := write(ctx, tx, "k"); err != nil {
			return nil, err
		}
		say("inside")
		hear()
		return nil, errors.New("the parent was to kill this process")
	})
	return err
}

// childCompletes stays when it has completed a key.
func childCompletes(ctx context.Context, path string) error {
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Config{})
	if err != nil {
		return err
	}
	c, err := s.Claim(ctx, claimOf("k"))
	if err != nil {
		return err
	}
	if _, err := s.Complete(ctx, c.Record.Owner(), answerOf("done")); err != nil {
		return err
	}
	say("completed")
	hear()
	return nil
}

// childHolds holds the file's write lock until it hears something.
func childHolds(ctx context.Context, path string) error {
	db, err := sql.Open("sqlite", path+"?_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	say("held")
	hear()
	if err := tx.Rollback(); err != nil {
		return err
	}
	say("let go")
	return nil
}

// childOpens opens the store at the parent's word and claims a key.
func childOpens(ctx context.Context, path string) error {
	say("ready")
	hear()
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Claim(ctx, claimOf(fmt.Sprint(os.Getpid()))); err != nil {
		return err
	}
	say("opened")
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
func start(t *testing.T, part, path string, adjust ...func(*exec.Cmd)) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+part, childPath+"="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range adjust {
		f(cmd)
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

// C1, C3: one owner per key among real processes.
func TestProcessesShareAFile(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	owns := owners(t, "claim", path, 4)
	for i := range claimedKeys {
		if n := owns[fmt.Sprint(i)]; n != 1 {
			t.Errorf("key %d has %d owners", i, n)
		}
	}
	page, err := s.List(t.Context(), onlyonce.ListFilter{Limit: 2 * claimedKeys})
	if err != nil || len(page.Records) != claimedKeys {
		t.Errorf("%d records, %v", len(page.Records), err)
	}
}

// O: a crash in the middle of an atomic attempt leaves nothing.
func TestKillInsideAtomic(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	c := start(t, "atomic", path)
	c.expect("inside")
	c.kill()
	if _, found, err := s.Get(t.Context(), keyOf("k")); found || err != nil {
		t.Errorf("a killed transaction left a record: %v, %v", found, err)
	}
	if n := count(t, s, "k"); n != 0 {
		t.Errorf("a killed transaction left %d rows", n)
	}
	claim, settled, err := s.Atomic(t.Context(), claimOf("k"), writes("k"))
	if err != nil || claim.Verdict != onlyonce.Won || !settled.Held {
		t.Errorf("the next attempt: %v, %+v, %v", claim.Verdict, settled, err)
	}
	if n := count(t, s, "k"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// C3: what Complete has confirmed survives a kill.
func TestKillAfterComplete(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	c := start(t, "complete", path)
	c.expect("completed")
	c.kill()
	claim, err := s.Claim(t.Context(), claimOf("k"))
	if err != nil || claim.Verdict != onlyonce.Replay || string(claim.Record.Answer.Body) != "done" {
		t.Errorf("after the kill: %v, %+v, %v", claim.Verdict, claim.Record.Answer, err)
	}
}

// Two processes may make and migrate one file at once.
func TestProcessesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/new.db"
	var children []*child
	for range 4 {
		c := start(t, "open", path)
		c.expect("ready")
		children = append(children, c)
	}
	for _, c := range children {
		c.tell()
	}
	for _, c := range children {
		c.expect("opened")
	}
	s := openAt(t, path, sqlitestore.Config{})
	page, err := s.List(t.Context(), onlyonce.ListFilter{})
	if err != nil || len(page.Records) != len(children) {
		t.Errorf("%d records, %v", len(page.Records), err)
	}
}
