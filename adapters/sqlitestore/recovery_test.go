package sqlitestore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// keeping is a claim by a new attempt whose request is kept.
func keeping(value string) onlyonce.ClaimRequest {
	req := on("", value)
	req.Keep = []byte("request of " + value)
	return req
}

// turns asks for what is due.
func turns(limit int) onlyonce.DueRequest {
	return onlyonce.DueRequest{Limit: limit, Grace: time.Minute, Pause: time.Minute, MaxPause: time.Hour}
}

func wantDue(t *testing.T, s *sqlitestore.Store, limit int, want ...string) []onlyonce.Due {
	t.Helper()
	due, err := s.Due(t.Context(), turns(limit))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range due {
		got = append(got, d.Record.Key.Value)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("due: %q, want %q", got, want)
	}
	return due
}

// X1: with nothing due a recoverer waits for no writer; with something due it
// gives no turn without the lock.
func TestIdleDueTakesNoLock(t *testing.T) {
	t.Parallel()
	clock := newClock()
	_, path := open(t)
	s := openAt(t, path, sqlitestore.Config{Now: clock.Now, BusyTimeout: 20 * time.Millisecond})
	mustClaim(t, s, keeping("k"), onlyonce.Won)
	other := start(t, "hold", path)
	other.expect("held")
	wantDue(t, s, 10)
	clock.advance(time.Hour)
	_, err := s.Due(t.Context(), turns(10))
	wantUnavailable(t, err, "write lock")
	if kept, found, err := s.Kept(t.Context(), keyOf("k")); string(kept) != "request of k" || !found || err != nil {
		t.Errorf("kept %q, %v, %v", kept, found, err)
	}
	other.tell()
	other.expect("let go")
	if due := wantDue(t, s, 10, "k"); due[0].Turn != 1 {
		t.Errorf("turn %d, want the first", due[0].Turn)
	}
	wantDue(t, s, 10)
}

// X1: of what is due at once, a batch takes those that waited longest, and the
// next batch the rest.
func TestDueInBatches(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := openAt(t, t.TempDir()+"/once.db", sqlitestore.Config{Now: clock.Now})
	for _, value := range []string{"c", "a", "d", "b", "e"} {
		mustClaim(t, s, keeping(value), onlyonce.Won)
		clock.advance(time.Second)
	}
	clock.advance(time.Hour)
	wantDue(t, s, 2, "c", "a")
	wantDue(t, s, 2, "d", "b")
	if found, err := s.Requeue(t.Context(), keyOf("d")); !found || err != nil {
		t.Fatal(found, err)
	}
	wantDue(t, s, 2, "d", "e") // due since ever
	wantDue(t, s, 2)
}

func TestDueNeedsALimit(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for _, limit := range []int{0, -1} {
		if _, err := s.Due(t.Context(), turns(limit)); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

// D6: empty is kept, nothing is NULL; settled keys keep neither.
func TestKeepColumn(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	const what = "typeof(keep) || ' ' || typeof(due_us) || ' ' || turn"
	for value, c := range map[string]struct {
		keep []byte
		want string
	}{"nil": {nil, "null null 0"}, "empty": {[]byte{}, "blob integer 0"}, "binary": {[]byte{0, 0xff}, "blob integer 0"}} {
		req := keeping(value)
		req.Keep = c.keep
		owner := mustClaim(t, s, req, onlyonce.Won).Record.Owner()
		if got := column(t, s, what, value); got != c.want {
			t.Errorf("%s: %s, want %s", value, got, c.want)
		}
		kept, found, err := s.Kept(t.Context(), req.Key)
		if string(kept) != string(c.keep) || found != (c.keep != nil) || err != nil {
			t.Errorf("%s: kept %q, %v, %v", value, kept, found, err)
		}
		if settled, err := s.Complete(t.Context(), owner, answerOf("x")); !settled.Held || err != nil {
			t.Fatal(settled, err)
		}
		if got := column(t, s, what, value); got != "null null 0" {
			t.Errorf("%s: %s once it is answered", value, got)
		}
	}
}

// X1: a new life begins with its own request and its first turn.
func TestNewLifeHasItsOwnTurns(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := openAt(t, t.TempDir()+"/once.db", sqlitestore.Config{Now: clock.Now})
	owner := mustClaim(t, s, keeping("k"), onlyonce.Won).Record.Owner()
	begin(t, s, owner)
	release(t, s, owner)
	for range 3 {
		clock.advance(2 * time.Hour)
		wantDue(t, s, 1, "k")
	}
	clock.advance(onlyonce.FreedStepRetention)
	wantDue(t, s, 1) // expired
	second := keeping("k")
	second.Keep = []byte("second")
	mustClaim(t, s, second, onlyonce.Won)
	clock.advance(time.Hour)
	if due := wantDue(t, s, 1, "k"); due[0].Turn != 1 || string(due[0].Keep) != "second" {
		t.Errorf("turn %d, kept %q", due[0].Turn, due[0].Keep)
	}
}

// X1: what a freed key did in the store alone is not looked at again and again.
func TestFreedWithoutCallHasNoTurn(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := openAt(t, t.TempDir()+"/once.db", sqlitestore.Config{Now: clock.Now})
	businessTable(t, s)
	req := keeping("k")
	owner := mustClaim(t, s, req, onlyonce.Won).Record.Owner()
	for range 2 {
		if _, held, err := s.StepTx(t.Context(), owner, reserve, reserves("k")); !held || err != nil {
			t.Fatal(held, err)
		}
		release(t, s, owner)
		clock.advance(time.Hour)
		if got := column(t, s, "due_us < 0 AND keep IS NOT NULL", "k"); got != "1" {
			t.Error("a turn comes without a claim")
		}
		wantDue(t, s, 1)
		owner = mustClaim(t, s, anotherOf(req), onlyonce.Resumed).Record.Owner()
	}
	release(t, s, owner)
	if found, err := s.Requeue(t.Context(), req.Key); !found || err != nil {
		t.Error(found, err)
	}
	wantDue(t, s, 1)
	mustClaim(t, s, anotherOf(req), onlyonce.Resumed)
	clock.advance(time.Hour)
	wantDue(t, s, 1, "k")
}

// X1: no claim makes a turn come earlier, however the attempt between two of them
// ended.
func TestClaimsKeepThePause(t *testing.T) {
	t.Parallel()
	ends := map[string]func(t *testing.T, s *sqlitestore.Store, owner onlyonce.Owner){
		"abandoned": func(*testing.T, *sqlitestore.Store, onlyonce.Owner) {},
		"freed":     release,
		"behind a call": func(t *testing.T, s *sqlitestore.Store, owner onlyonce.Owner) {
			t.Helper()
			begin(t, s, owner)
			release(t, s, owner)
		},
		"behind a write": func(t *testing.T, s *sqlitestore.Store, owner onlyonce.Owner) {
			t.Helper()
			if _, held, err := s.StepTx(t.Context(), owner, reserve, reserves("k")); !held || err != nil {
				t.Fatal(held, err)
			}
			release(t, s, owner)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			s := openAt(t, t.TempDir()+"/once.db", sqlitestore.Config{Now: clock.Now})
			businessTable(t, s)
			mustClaim(t, s, keeping("k"), onlyonce.Won)
			clock.advance(time.Hour)
			long := turns(1)
			long.Pause = 30 * time.Minute
			if due, err := s.Due(t.Context(), long); len(due) != 1 || err != nil {
				t.Fatal(due, err)
			}
			end(t, s, mustClaim(t, s, keeping("k"), onlyonce.Resumed).Record.Owner())
			clock.advance(time.Minute)
			mustClaim(t, s, keeping("k"), onlyonce.Resumed)
			clock.advance(30*time.Minute - time.Microsecond)
			wantDue(t, s, 1)
			clock.advance(time.Microsecond)
			if due := wantDue(t, s, 1, "k"); len(due) == 1 && due[0].Turn != 2 {
				t.Errorf("turn %d, want the second", due[0].Turn)
			}
		})
	}
}
