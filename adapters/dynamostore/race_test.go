package dynamostore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

// together runs n functions at once.
func together(n int, fn func(i int)) {
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-gate
			fn(i)
		})
	}
	close(gate)
	wg.Wait()
}

// C1: 16 workers with handles of their own claim the same 40 keys; each key has one
// owner.
func TestClaimRace(t *testing.T) {
	t.Parallel()
	const workers, keys = 16, 40
	_, tb := migrated(t, dynamostore.Config{})
	stores := make([]*dynamostore.Store, workers)
	for i := range stores {
		stores[i] = tb.open(t, dynamostore.Config{})
	}
	var mu sync.Mutex
	owners := map[int]int{}
	together(workers, func(i int) {
		for n := range keys {
			n = (n + i) % keys
			c, err := stores[i].Claim(t.Context(), request(fmt.Sprint(n)))
			if err != nil || (!c.Verdict.Owns() && c.Verdict != onlyonce.Busy) {
				t.Errorf("claim: %v, %v", c.Verdict, err)
			}
			if c.Verdict.Owns() {
				mu.Lock()
				owners[n]++
				mu.Unlock()
			}
		}
	})
	for n := range keys {
		if owners[n] != 1 {
			t.Errorf("key %d has %d owners", n, owners[n])
		}
	}
}

// C1: 16 workers run 40 transactions that each make one business row that there can be
// one of; each is made, and everybody gets its answer.
func TestAtomicRace(t *testing.T) {
	t.Parallel()
	const workers, keys = 16, 40
	_, tb := migrated(t, dynamostore.Config{})
	tb.addBusiness(t)
	var mu sync.Mutex
	held := map[int]int{}
	together(workers, func(i int) {
		s := tb.open(t, dynamostore.Config{})
		for n := range keys {
			n = (n + i*5) % keys
			req := request(fmt.Sprint(n))
			for {
				c, settled, err := s.Atomic(t.Context(), req, answering(func(tx *dynamostore.Tx) error { return tx.Put(tb.putOnce(fmt.Sprint("row ", n))) }))
				if errors.Is(err, onlyonce.ErrConflict) {
					continue
				}
				if err != nil || (!settled.Held && c.Verdict != onlyonce.Replay) {
					t.Errorf("atomic: %v, %+v, %v", c.Verdict, settled, err)
				}
				if settled.Held {
					mu.Lock()
					held[n]++
					mu.Unlock()
				}
				break
			}
		}
	})
	for n := range keys {
		if rows := tb.rows(t, fmt.Sprint("row ", n)); rows != 1 || held[n] != 1 {
			t.Errorf("key %d: %d rows, held by %d", n, rows, held[n])
		}
	}
}

// An operation may do its steps side by side, and renew beside them: each is recorded.
func TestStepsSideBySide(t *testing.T) {
	t.Parallel()
	s, _ := migrated(t, dynamostore.Config{})
	o := owner(t, s, stepsOf("k"))
	const steps = 16
	together(steps+1, func(i int) {
		if i == steps {
			for range 10 {
				if err := must(s.Renew(t.Context(), o, lease)); err != nil {
					t.Error(err)
				}
			}
			return
		}
		in := intent("s")
		in.Occurrence = i
		if err := must(s.BeginStep(t.Context(), o, in)); err != nil {
			t.Errorf("begin %d: %v", i, err)
		}
		if err := must(s.EndStep(t.Context(), o, onlyonce.StepEnd{Name: "s", Occurrence: i, State: onlyonce.StepDone, Result: []byte{byte(i)}})); err != nil {
			t.Errorf("end %d: %v", i, err)
		}
	})
	recorded, err := s.Steps(t.Context(), o.Key)
	if err != nil || len(recorded) != steps {
		t.Fatalf("%d steps, %v", len(recorded), err)
	}
	for _, st := range recorded {
		if st.State != onlyonce.StepDone || st.Sends != 1 || st.Result[0] != byte(st.Occurrence) {
			t.Errorf("step %d: %+v", st.Occurrence, st)
		}
	}
}

// C7: of many handles that have all watched a lease to its end, and a sweeper, one
// decides.
func TestTakeoverRace(t *testing.T) {
	t.Parallel()
	c := newClock()
	base, tb := migrated(t, dynamostore.Config{Now: c.Now})
	const contenders = 12
	req := request("k")
	first := owner(t, base, req)
	stores := make([]*dynamostore.Store, contenders)
	for i := range stores {
		stores[i] = tb.open(t, dynamostore.Config{Now: c.Now})
		want(t, stores[i], again(req), onlyonce.Busy)
	}
	c.advance(lease)
	var mu sync.Mutex
	got := map[onlyonce.Verdict]int{}
	late := onlyonce.Settled{}
	together(contenders+1, func(i int) {
		if i == contenders {
			s, err := base.Complete(t.Context(), first, answerOf("late"))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			late = s
			return
		}
		claim, err := stores[i].Claim(t.Context(), again(req))
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got[claim.Verdict]++
	})
	if late.Held != (got[onlyonce.Resumed] == 0) || got[onlyonce.Resumed] > 1 {
		t.Errorf("the late owner: %v, contenders: %v", late.Held, got)
	}
}

// Round trips are what a call costs.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	tb.addBusiness(t)
	other := tb.open(t, dynamostore.Config{})
	req, kept := request("k"), stepsOf("steps")
	var o, k onlyonce.Owner
	costs := func(what, calls string, fn func()) {
		t.Helper()
		tb.reset()
		fn()
		var made []string
		for _, op := range []string{"GetItem", "PutItem", "Query", "Scan", "TransactWriteItems"} {
			if n := tb.count(op); n > 0 {
				made = append(made, fmt.Sprint(n, " ", op))
			}
		}
		if got := strings.Join(made, ", "); got != calls {
			t.Errorf("%s: %s, want %s", what, got, calls)
		}
	}
	tb.sendsItems = true
	costs("claim", "1 PutItem", func() { o = owner(t, s, req) })
	costs("claim of a resource", "1 TransactWriteItems", func() { k = owner(t, s, func() onlyonce.ClaimRequest { r := kept; r.Resource = "r"; return r }()) })
	costs("busy", "1 PutItem", func() { want(t, other, again(req), onlyonce.Busy) })
	costs("renew", "1 PutItem", func() { hold2(t)(s.Renew(t.Context(), o, lease)) })
	costs("renew by another handle", "1 GetItem, 1 PutItem", func() { hold2(t)(other.Renew(t.Context(), o, lease)) })
	costs("complete after another's renewal", "2 PutItem", func() { complete(t, s, o, "x") })
	costs("replay", "1 PutItem", func() { want(t, other, again(req), onlyonce.Replay) })
	costs("begin step", "1 PutItem", func() { hold2(t)(s.BeginStep(t.Context(), k, intent("s"))) })
	costs("end step", "1 PutItem", func() {
		hold2(t)(s.EndStep(t.Context(), k, onlyonce.StepEnd{Name: "s", State: onlyonce.StepDone}))
	})
	costs("step in a transaction", "1 GetItem, 1 TransactWriteItems", func() {
		_, held, err := s.StepTx(t.Context(), k, onlyonce.TxStep{Name: "reserve"}, stepping(tb, "step"))
		hold(t, held, err)
	})
	costs("complete with a resource", "1 TransactWriteItems", func() { complete(t, s, k, "x") })
	costs("atomic", "1 GetItem, 1 TransactWriteItems", func() {
		_, settled, err := s.Atomic(t.Context(), request("atomic"), tb.writes("atomic"))
		hold(t, settled.Held, err)
	})
	costs("atomic replay", "1 GetItem", func() {
		if c, _, err := s.Atomic(t.Context(), request("atomic"), tb.writes("atomic")); err != nil || c.Verdict != onlyonce.Replay {
			t.Error(c.Verdict, err)
		}
	})
	costs("get", "1 GetItem", func() { _, held, err := s.Get(t.Context(), req.Key); hold(t, held, err) })
	costs("due", "8 Query", func() {
		if _, err := s.Due(t.Context(), onlyonce.DueRequest{Limit: 1, Grace: time.Hour}); err != nil {
			t.Error(err)
		}
	})
	costs("mismatch", "1 PutItem", func() {
		r := again(req)
		r.Fingerprint.Sum[0]++
		want(t, s, r, onlyonce.Mismatch)
	})
	tb.sendsItems = false
	costs("replay where the server does not send the item", "1 GetItem, 1 PutItem", func() { want(t, other, again(req), onlyonce.Replay) })
}

func hold2(t *testing.T) func(bool, error) {
	t.Helper()
	return func(held bool, err error) {
		t.Helper()
		hold(t, held, err)
	}
}
