package dynamostore

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
)

func rows() *rapid.Generator[row] {
	return rapid.Custom(func(t *rapid.T) row {
		at := func(name string) time.Time {
			return timeOf(rapid.Int64Range(0, 4_000_000_000_000_000).Draw(t, name))
		}
		bytes := rapid.SliceOfN(rapid.Byte(), 1, 40)
		r := row{found: true, rev: rapid.Int64Min(1).Draw(t, "rev"), renewal: rapid.Int64Min(0).Draw(t, "renewal"), writer: rapid.String().Draw(t, "writer")}
		r.Record = onlyonce.Record{
			Key: onlyonce.Key{Scope: rapid.StringN(1, 20, 60).Draw(t, "scope"), Value: rapid.StringN(1, 20, 60).Draw(t, "key")}, Operation: rapid.String().Draw(t, "operation"),
			Fingerprint: onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: rapid.IntRange(0, 9).Draw(t, "form"), Secret: "s"}, Parts: bytes.Draw(t, "parts")},
			State:       rapid.SampledFrom([]onlyonce.State{onlyonce.InProgress, onlyonce.Completed, onlyonce.FailedRetryable, onlyonce.InDoubt}).Draw(t, "state"),
			Fence:       rapid.Int64Min(1).Draw(t, "fence"), Origin: rapid.Int64Min(1).Draw(t, "origin"), Attempt: onlyonce.NewToken(), Attempts: rapid.IntRange(1, 9).Draw(t, "attempts"),
			Abandon: onlyonce.Abandon(rapid.IntRange(0, 2).Draw(t, "abandon")), Reason: rapid.String().Draw(t, "reason"), Resource: rapid.String().Draw(t, "resource"), Holds: rapid.Bool().Draw(t, "holds"),
			Retention: fromMicros(rapid.Int64Range(1, 1e15).Draw(t, "retention")), CreatedAt: at("created"), LeaseEnd: at("lease end"), CompletedAt: at("completed"), ExpiresAt: at("expires"),
		}
		copy(r.Fingerprint.Sum[:], bytes.Draw(t, "sum"))
		r.lease, r.claimEnd, r.from = fromMicros(rapid.Int64Range(1, 1e12).Draw(t, "lease")), at("claim end"), onlyonce.InDoubt
		r.turn, r.due = rapid.IntRange(0, 9).Draw(t, "turn"), rapid.Int64Range(0, 1e16).Draw(t, "due")
		if rapid.Bool().Draw(t, "keeps") {
			r.keep = &value{Data: bytes.Draw(t, "keep"), Size: 7}
		}
		if rapid.Bool().Draw(t, "answered") {
			r.answer = &storedAnswer{Status: 201, Header: &value{}, Body: &value{ID: "x", Parts: 3, Size: 1 << 20}}
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "steps") {
			r.steps = append(r.steps, step{Name: fmt.Sprint(i), Provider: "p", State: "begun", Request: &value{Size: 0}, Within: int64(i), Sent: 5})
		}
		return r
	})
}

// F7: every field of a row comes back from its item.
func TestItemRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := rows().Draw(rt, "row")
		item, err := r.encode()
		if err != nil {
			rt.Fatal(err)
		}
		got, err := decode(item)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(r, got, cmp.AllowUnexported(row{}), cmpopts.EquateEmpty()); diff != "" {
			rt.Errorf("(-row +item):\n%s", diff)
		}
	})
}

// T2, T3: only what is settled may be deleted, and only what is open is in the index.
func TestWhatTheItemTellsDynamoDB(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := rows().Draw(rt, "row")
		item, err := r.encode()
		if err != nil {
			rt.Fatal(err)
		}
		_, mayGo := item["ttl"]
		_, open := item["open"]
		_, at := item["at"]
		settled := r.State == onlyonce.Completed || r.State == onlyonce.FailedRetryable
		if mayGo != settled {
			rt.Errorf("%s: may be deleted %v", r.State, mayGo)
		}
		if open != at || (open && r.State == onlyonce.Completed) || (!open && !settled) {
			rt.Errorf("%s: in the index %v, with a time %v", r.State, open, at)
		}
		if mayGo && r.ttl() < r.ExpiresAt.Add(ttlSlack).Unix() {
			rt.Errorf("may be deleted at %d, expires %v", r.ttl(), r.ExpiresAt)
		}
	})
}

// C4, T1: the longest durations are cut to what an item can hold, never turned round.
func TestLongestDurations(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - 1000} {
		if got := whole(d); got <= 0 || d-got > time.Microsecond {
			t.Errorf("%d ns became %d", d, got)
		}
	}
	for _, us := range []int64{math.MaxInt64, math.MinInt64} {
		if d := fromMicros(us); (d > 0) != (us > 0) || d.Abs() < 290*365*24*time.Hour {
			t.Errorf("%d microseconds became %v", us, d)
		}
	}
	if got := whole(1001); got != 2*time.Microsecond {
		t.Errorf("1001 ns became %v", got)
	}
}

// A reason never takes the room of an item, and is not cut within a character.
func TestReasonIsCut(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]int{
		"short": 5, strings.Repeat("r", 500<<10): maxReason, "a" + strings.Repeat("я", maxReason): maxReason - 1,
	} {
		if got := reasonOf(reason); len(got) != want || !strings.HasPrefix(reason, got) {
			t.Errorf("%d bytes became %d, want %d", len(reason), len(got), want)
		}
	}
}

// What a handle remembers is bounded, and forgotten when it is not in progress.
func TestRecent(t *testing.T) {
	t.Parallel()
	var r recent
	key := func(i int) onlyonce.Key { return onlyonce.Key{Scope: "s", Value: fmt.Sprint(i)} }
	note := func(i int, state onlyonce.State) {
		r.note(key(i).Digest(), row{found: true, rev: int64(i), Record: onlyonce.Record{Key: key(i), State: state}})
	}
	for i := range recentLimit + 3 {
		note(i, onlyonce.InProgress)
	}
	for i, want := range map[int]bool{0: false, 2: false, 3: true, recentLimit + 2: true} {
		if got, ok := r.get(key(i).Digest()); ok != want || (ok && got.rev != int64(i)) {
			t.Errorf("row %d: remembered %v, want %v", i, ok, want)
		}
	}
	note(3, onlyonce.Completed)
	if _, ok := r.get(key(3).Digest()); ok || r.order.Len() != recentLimit-1 || len(r.rows) != recentLimit-1 {
		t.Errorf("a settled row is remembered: %v, %d rows", ok, r.order.Len())
	}
}
