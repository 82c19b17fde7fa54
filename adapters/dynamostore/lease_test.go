package dynamostore_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

// C4, C5: a process that was cut off and finds its own claim again may not trust it
// for longer than since it was made: others have watched it meanwhile.
func TestOwnClaimFoundLate(t *testing.T) {
	t.Parallel()
	c := newClock()
	base, tb := migrated(t, dynamostore.Config{Now: c.Now})
	lossy := tb.open(t, dynamostore.Config{Now: c.Now}, once)
	req := request("k")
	tb.add(fault{op: "PutItem", times: 1})
	if _, err := lossy.Claim(t.Context(), req); onlyonce.CodeOf(err) != onlyonce.CodeUncertain {
		t.Fatalf("claim: %v, want uncertain", err)
	}
	want(t, base, again(req), onlyonce.Busy) // begins to watch
	c.advance(20 * time.Second)
	if claim := want(t, lossy, req, onlyonce.Won); claim.Remaining != 10*time.Second {
		t.Errorf("remaining %v, want 10s", claim.Remaining)
	}
	c.advance(10 * time.Second)
	want(t, base, again(req), onlyonce.Resumed)
}

// C4: clocks of two processes that are an hour apart take no key from its owner.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	here, there := newClock(), newClock()
	there.advance(time.Hour)
	s, tb := migrated(t, dynamostore.Config{Now: here.Now})
	ahead := tb.open(t, dynamostore.Config{Now: there.Now})
	req := request("k")
	o := owner(t, s, req)
	for range 3 {
		want(t, ahead, again(req), onlyonce.Busy)
		here.advance(20 * time.Second)
		there.advance(20 * time.Second)
		held, err := s.Renew(t.Context(), o, lease)
		hold(t, held, err)
	}
	want(t, ahead, again(req), onlyonce.Busy)
	there.advance(lease)
	second := want(t, ahead, again(req), onlyonce.Resumed).Record
	if second.Fence <= o.Fence {
		t.Errorf("fence %d after %d", second.Fence, o.Fence)
	}
	// Back on the slow clock the fence still rises.
	held, err := ahead.Release(t.Context(), second.Owner(), "r")
	hold(t, held, err)
	if third := want(t, s, again(req), onlyonce.Resumed).Record; third.Fence != second.Fence+1 {
		t.Errorf("fence %d after %d, want the next", third.Fence, second.Fence)
	}
}

// X1, C4: a recoverer that has just started meets a key for the first time.
func TestDueMustHaveWatched(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, tb := migrated(t, dynamostore.Config{Now: c.Now})
	other := tb.open(t, dynamostore.Config{Now: c.Now})
	req := onlyonce.DueRequest{Limit: 10, Grace: time.Minute, Pause: time.Minute, MaxPause: time.Hour}
	want(t, s, stepsOf("k"), onlyonce.Won)
	c.advance(time.Hour)
	if due, err := other.Due(t.Context(), req); err != nil || len(due) != 0 {
		t.Errorf("met for the first time: %+v, %v", due, err)
	}
	c.advance(lease + time.Minute)
	if due, err := other.Due(t.Context(), req); err != nil || len(due) != 1 || string(due[0].Keep) != "request of k" {
		t.Errorf("watched: %+v, %v", due, err)
	}
}

// X1: what cannot be decided yet does not hide for ever what is behind it.
func TestDueGoesOnBehindWhatIsNotDue(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, _ := migrated(t, dynamostore.Config{Now: c.Now})
	// A part's look takes 100 keys: these are all of one part, and alive.
	var owners []onlyonce.Owner
	for i := 0; len(owners) < 101; i++ {
		req := stepsOf(strconv.Itoa(i))
		if d := req.Key.Digest(); d[0]>>5 == 3 {
			owners = append(owners, owner(t, s, req))
		}
	}
	c.advance(time.Second)
	last := owners[len(owners)-1]
	held, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: last, Reason: "r"})
	hold(t, held, err)
	c.advance(time.Hour)
	for _, o := range owners[:len(owners)-1] {
		held, err := s.Renew(t.Context(), o, lease)
		hold(t, held, err)
	}
	req := onlyonce.DueRequest{Limit: 10, Pause: time.Minute, MaxPause: time.Hour}
	var given []onlyonce.Due
	for range 3 {
		due, err := s.Due(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		given = append(given, due...)
	}
	if len(given) != 1 || given[0].Record.Key != last.Key {
		t.Errorf("given %d turns", len(given))
	}
}

// ttlOf is when DynamoDB may delete a key's item; false: never.
func ttlOf(t *testing.T, tb *tables) (time.Time, bool) {
	t.Helper()
	items := tb.items(t, "record")
	if len(items) != 1 {
		t.Fatalf("%d records, want 1", len(items))
	}
	n, ok := items[0]["ttl"].(*types.AttributeValueMemberN)
	if !ok {
		return time.Time{}, false
	}
	s, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(s, 0), true
}

// T2: DynamoDB may delete only what nobody looks at any more: what is settled, an hour
// after it has expired, with steps 90 days later.
func TestTimeToLive(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		end   func(s *dynamostore.Store, o onlyonce.Owner) (bool, error)
		steps bool
		after time.Duration // 0: never
	}{
		"in progress": {end: func(*dynamostore.Store, onlyonce.Owner) (bool, error) { return true, nil }},
		"in doubt": {end: func(s *dynamostore.Store, o onlyonce.Owner) (bool, error) {
			return s.Park(t.Context(), onlyonce.ParkRequest{Owner: o})
		}},
		"completed":            {end: completes(t), after: retention + time.Hour},
		"completed with steps": {end: completes(t), steps: true, after: retention + time.Hour + onlyonce.FreedStepRetention},
		"freed": {end: func(s *dynamostore.Store, o onlyonce.Owner) (bool, error) {
			return s.Release(t.Context(), o, "r")
		}, after: retention + time.Hour},
	}
	for name, tt := range tests {
		c := newClock()
		s, tb := migrated(t, dynamostore.Config{Now: c.Now})
		o := owner(t, s, stepsOf("k"))
		if tt.steps {
			held, err := s.BeginStep(t.Context(), o, intent("s"))
			hold(t, held, err)
		}
		held, err := tt.end(s, o)
		hold(t, held, err)
		ttl, found := ttlOf(t, tb)
		if found != (tt.after > 0) {
			t.Errorf("%s: time to live %v", name, found)
		}
		if lag := ttl.Sub(c.Now().Add(tt.after)); found && (lag < 0 || lag > 2*time.Second) {
			t.Errorf("%s: %v later than expected", name, lag)
		}
	}
}

func completes(t *testing.T) func(s *dynamostore.Store, o onlyonce.Owner) (bool, error) {
	t.Helper()
	return func(s *dynamostore.Store, o onlyonce.Owner) (bool, error) {
		settled, err := s.Complete(t.Context(), o, answerOf("x"))
		return settled.Held, err
	}
}

// T2: no answer depends on when DynamoDB deletes; a new claim of a key whose item it
// has deleted, or not yet, is the same.
func TestDeletedByTimeToLive(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, tb := migrated(t, dynamostore.Config{Now: c.Now})
	var last int64
	for _, deleted := range []bool{false, true, false} {
		req := request("k")
		claim := want(t, s, req, onlyonce.Won)
		if claim.Record.Fence <= last || claim.Record.Attempts != 1 {
			t.Errorf("deleted %v: fence %d after %d", deleted, claim.Record.Fence, last)
		}
		last = claim.Record.Fence
		complete(t, s, claim.Record.Owner(), "x")
		c.advance(retention)
		if deleted {
			tb.expire(t, tb.items(t, "record")[0])
		}
	}
}

// C12, T2: a resource whose holder DynamoDB has deleted, because it had expired, is
// free, and so is that of a holder that has only expired.
func TestHolderDeletedByTimeToLive(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{true, false} {
		c := newClock()
		s, tb := migrated(t, dynamostore.Config{Now: c.Now})
		req := on("order/1", "first")
		req.Abandon = onlyonce.AbandonResume
		o := owner(t, s, req)
		held, err := s.BeginStep(t.Context(), o, intent("s"))
		hold(t, held, err)
		held, err = s.Release(t.Context(), o, "r")
		hold(t, held, err)
		want(t, s, on("order/1", "second"), onlyonce.ResourceBusy)
		c.advance(onlyonce.FreedStepRetention)
		if deleted {
			tb.expire(t, tb.items(t, "record")[0])
		}
		second := owner(t, s, on("order/1", "second"))
		if claim := want(t, s, again(req), onlyonce.ResourceBusy); claim.Record.Key != second.Key {
			t.Errorf("deleted %v: held by %q", deleted, claim.Record.Key.Value)
		}
		complete(t, s, second, "x")
		want(t, s, again(req), onlyonce.Won)
	}
}

// X2: an expired key that may not begin anew, since another holds its resource, keeps
// its steps once.
func TestStepsBehindATakenResource(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, tb := migrated(t, dynamostore.Config{Now: c.Now})
	first := stepsOf("first")
	o := owner(t, s, first)
	held, err := s.BeginStep(t.Context(), o, intent("s"))
	hold(t, held, err)
	complete(t, s, o, "x")
	c.advance(91 * 24 * time.Hour)
	second := owner(t, s, on("order/1", "second"))
	anew := again(first)
	anew.Resource = "order/1"
	want(t, s, anew, onlyonce.ResourceBusy)
	if n := len(tb.items(t, "life#")); n != 0 {
		t.Errorf("the steps were put aside %d times", n)
	}
	complete(t, s, second, "x")
	want(t, s, anew, onlyonce.Won)
	if n := len(tb.items(t, "life#")); n != 1 {
		t.Errorf("the steps were put aside %d times, want once", n)
	}
}

// C12: the same holds of a transaction that goes on with a key which has a resource.
func TestAtomicBehindAnExpiredHolder(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{true, false} {
		c := newClock()
		s, tb := migrated(t, dynamostore.Config{Now: c.Now})
		tb.addBusiness(t)
		holding := on("order/1", "holding")
		holding.Abandon = onlyonce.AbandonResume
		long := on("order/1", "long")
		long.Retention = 2 * onlyonce.FreedStepRetention
		held, err := s.Release(t.Context(), owner(t, s, long), "r")
		hold(t, held, err)
		o := owner(t, s, holding)
		held, err = s.BeginStep(t.Context(), o, intent("s"))
		hold(t, held, err)
		held, err = s.Release(t.Context(), o, "r")
		hold(t, held, err)
		bare := again(long)
		bare.Resource = ""
		if claim, _, err := s.Atomic(t.Context(), bare, tb.writes("k")); err != nil || claim.Verdict != onlyonce.ResourceBusy {
			t.Errorf("deleted %v: %v, %v; want resource busy", deleted, claim.Verdict, err)
		}
		c.advance(onlyonce.FreedStepRetention)
		if deleted {
			for _, item := range tb.items(t, "record") {
				if item["key"].(*types.AttributeValueMemberS).Value == "holding" {
					tb.expire(t, item)
				}
			}
		}
		claim, settled, err := s.Atomic(t.Context(), bare, tb.writes("k"))
		if err != nil || claim.Verdict != onlyonce.Resumed || !settled.Held {
			t.Errorf("deleted %v: %v, %+v, %v", deleted, claim.Verdict, settled, err)
		}
		if n := tb.rows(t, "k"); n != 1 {
			t.Errorf("deleted %v: %d rows, want 1", deleted, n)
		}
		want(t, s, on("order/1", "third"), onlyonce.Won)
	}
}

// X2: the steps of a life that is over are kept apart when its record goes.
func TestDeadStepsAreKept(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, tb := migrated(t, dynamostore.Config{Now: c.Now})
	for range 2 {
		o := owner(t, s, stepsOf("k"))
		in := intent("s")
		in.Request = large(5000)
		held, err := s.BeginStep(t.Context(), o, in)
		hold(t, held, err)
		complete(t, s, o, "x")
		c.advance(retention)
	}
	if lives, parts := len(tb.items(t, "life#")), len(tb.items(t, "value#")); lives != 1 || parts != 2 {
		t.Errorf("%d dead lives and %d parts, want 1 and 2", lives, parts)
	}
	sweep := onlyonce.SweepRequest{Limit: 10, StepRetention: 24 * time.Hour}
	for i, want := range []onlyonce.SweepResult{{Deleted: 1}, {Steps: 2}, {}} {
		if r, err := s.Sweep(t.Context(), sweep); err != nil || r != want {
			t.Errorf("sweep %d: %+v, %v; want %+v", i, r, err, want)
		}
		c.advance(25 * time.Hour)
	}
	for _, prefix := range []string{"life#", "record"} {
		if n := len(tb.items(t, prefix)); n != 0 {
			t.Errorf("%d items of %s are left", n, prefix)
		}
	}
	if n := len(tb.items(t, "value#")); n != 0 {
		t.Errorf("%d parts are left", n)
	}
}

// T3: with time to live a sweep leaves what has expired to DynamoDB, and still decides
// what was abandoned.
func TestSweepWithTimeToLive(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, tb := migrated(t, dynamostore.Config{Now: c.Now})
	client := tb.connect(t)
	byTTL, err := dynamostore.New(client, dynamostore.Config{Table: tb.name, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	complete(t, s, owner(t, s, request("done")), "x")
	want(t, byTTL, request("abandoned"), onlyonce.Won)
	c.advance(retention)
	if r, err := byTTL.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10, Grace: time.Minute}); err != nil || r != (onlyonce.SweepResult{Freed: 1}) {
		t.Errorf("sweep: %+v, %v", r, err)
	}
	if n := tb.count("Scan"); n != 0 {
		t.Errorf("it read the table %d times", n)
	}
	if n := len(tb.items(t, "record")); n != 2 {
		t.Errorf("%d records, want 2", n)
	}
}

// T3: a sweep of a large table is bounded, and goes on where it was.
func TestSweepGoesOn(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, tb := migrated(t, dynamostore.Config{Now: c.Now})
	const keys = 30
	for i := range keys {
		req := request(fmt.Sprint(i))
		if _, err := s.Complete(t.Context(), owner(t, s, req), onlyonce.Answer{Status: 200, Body: large(200_000)}); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(retention + 2*time.Hour)
	deleted := 0
	for more := true; more; {
		r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 7})
		if err != nil || r.Deleted > 7 {
			t.Fatalf("%+v, %v", r, err)
		}
		deleted, more = deleted+r.Deleted, r.More
	}
	if left := len(tb.items(t, "")); deleted != keys || left != 0 {
		t.Errorf("%d deleted, want %d; %d items are left", deleted, keys, left)
	}
}
