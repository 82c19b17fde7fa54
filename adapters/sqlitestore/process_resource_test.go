package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

const claimedResources = 50

// childClaimsResources claims resources at the parent's word, each with a key of
// this process alone, the odd processes backwards, and says which it owns.
func childClaimsResources(ctx context.Context, path string) error {
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	say("ready")
	hear()
	for i := range claimedResources {
		if os.Getpid()%2 == 1 {
			i = claimedResources - 1 - i
		}
		resource := fmt.Sprint(i)
		c, err := s.Claim(ctx, on(resource, fmt.Sprint(os.Getpid(), "-", i)))
		switch {
		case err != nil:
			return err
		case c.Verdict.Owns():
			say("own", resource)
		case c.Verdict != onlyonce.ResourceBusy || c.Record.Resource != resource || !c.Record.Holds:
			return fmt.Errorf("resource %s: %s, held by %+v", resource, c.Verdict, c.Record)
		}
	}
	say("end")
	return nil
}

// childRecovers takes what is due by a clock that is ahead, at the parent's word,
// until nothing is, and says what it was given.
func childRecovers(ctx context.Context, path string) error {
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Config{Now: ahead})
	if err != nil {
		return err
	}
	defer s.Close()
	say("ready")
	hear()
	for {
		due, err := s.Due(ctx, onlyonce.DueRequest{Limit: 3, Grace: time.Minute, Pause: 24 * time.Hour, MaxPause: 24 * time.Hour})
		if err != nil {
			return err
		}
		for _, d := range due {
			say("own", d.Record.Key.Value)
		}
		if len(due) == 0 {
			say("end")
			return nil
		}
	}
}

// ahead is an hour later, when every lease of the tests is over.
func ahead() time.Time { return time.Now().Add(time.Hour) }

// childStepTx stays in the middle of a step's transaction.
func childStepTx(ctx context.Context, path string) error {
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Config{})
	if err != nil {
		return err
	}
	c, err := s.Claim(ctx, on("r", "k"))
	if err != nil {
		return err
	}
	_, _, err = s.StepTx(ctx, c.Record.Owner(), reserve, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		if err := write(ctx, tx, "k"); err != nil {
			return nil, err
		}
		say("inside")
		hear()
		return nil, errors.New("the parent was to kill this process")
	})
	return err
}

// owners lets processes play a part at once and counts who owns what.
func owners(t *testing.T, part, path string, processes int) map[string]int {
	t.Helper()
	var children []*child
	for range processes {
		c := start(t, part, path)
		c.expect("ready")
		children = append(children, c)
	}
	for _, c := range children {
		c.tell()
	}
	owns := map[string]int{}
	for _, c := range children {
		for line := c.line(); line != "end"; line = c.line() {
			what, ok := strings.CutPrefix(line, "own ")
			if !ok {
				t.Fatal(line)
			}
			owns[what]++
		}
	}
	return owns
}

// C12: one owner per resource among real processes, whose keys all differ.
func TestProcessesShareResources(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	owns := owners(t, "resource", path, 4)
	for i := range claimedResources {
		if n := owns[fmt.Sprint(i)]; n != 1 {
			t.Errorf("resource %d has %d owners", i, n)
		}
	}
	page, err := s.List(t.Context(), onlyonce.ListFilter{Limit: 4 * claimedResources})
	if err != nil || len(page.Records) != claimedResources {
		t.Errorf("%d records, %v: who was refused left something", len(page.Records), err)
	}
}

// X1: each turn goes to one recoverer among real processes.
func TestProcessesShareTurns(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	const keys = 40
	for i := range keys {
		mustClaim(t, s, keeping(fmt.Sprint(i)), onlyonce.Won)
	}
	owns := owners(t, "recover", path, 3)
	for i := range keys {
		if n := owns[fmt.Sprint(i)]; n != 1 {
			t.Errorf("key %d was given %d times", i, n)
		}
	}
}

// D: a crash in the middle of a step's transaction leaves nothing of it. Its key
// holds its resource until somebody has gone on.
func TestKillInsideStepTx(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	c := start(t, "step", path)
	c.expect("inside")
	c.kill()
	if n := count(t, s, "k"); n != 0 {
		t.Errorf("a killed transaction left %d rows", n)
	}
	if steps, err := s.Steps(t.Context(), keyOf("k")); len(steps) != 0 || err != nil {
		t.Errorf("a killed transaction left %+v, %v", steps, err)
	}
	mustClaim(t, s, on("r", "other"), onlyonce.ResourceBusy)
	later := openAt(t, path, sqlitestore.Config{Now: ahead})
	owner := mustClaim(t, later, on("r", "k"), onlyonce.Resumed).Record.Owner()
	noStep(t, later, owner, "k")
	if settled, err := later.Complete(t.Context(), owner, answerOf("done")); !settled.Held || err != nil {
		t.Errorf("complete: %+v, %v", settled, err)
	}
	mustClaim(t, later, on("r", "other"), onlyonce.Won)
}
