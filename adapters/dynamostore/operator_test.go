package dynamostore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

// listAll reads a list to its end, in pages.
func listAll(t *testing.T, s *dynamostore.Store, filter onlyonce.ListFilter) (values []string, pages int) {
	t.Helper()
	for {
		page, err := s.List(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range page.Records {
			values = append(values, rec.Key.Value)
		}
		pages++
		if filter.After = page.Next; filter.After == "" {
			slices.Sort(values)
			return values, pages
		}
	}
}

// X: every list shows what is there once, whatever the size of its pages, by the index
// and through the table.
func TestListInPages(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, _ := migrated(t, dynamostore.Config{Now: c.Now})
	want := map[onlyonce.State][]string{}
	ends := map[onlyonce.State]func(onlyonce.Owner) (bool, error){
		onlyonce.InProgress: func(onlyonce.Owner) (bool, error) { return true, nil },
		onlyonce.InDoubt: func(o onlyonce.Owner) (bool, error) {
			return s.Park(t.Context(), onlyonce.ParkRequest{Owner: o, Reason: "r"})
		},
		onlyonce.FailedRetryable: func(o onlyonce.Owner) (bool, error) { return s.Release(t.Context(), o, "r") },
		onlyonce.Completed:       func(o onlyonce.Owner) (bool, error) { return completes(t)(s, o) },
	}
	complete(t, s, owner(t, s, request("expired")), "x")
	c.advance(retention)
	for i := range 24 {
		state := []onlyonce.State{onlyonce.InProgress, onlyonce.InDoubt, onlyonce.FailedRetryable, onlyonce.Completed}[i%4]
		req := request(fmt.Sprintf("%02d", i))
		if i%3 == 0 {
			req = stepsOf(req.Key.Value) // has another place in the index
		}
		held, err := ends[state](owner(t, s, req))
		hold(t, held, err)
		want[state] = append(want[state], req.Key.Value)
		want[""] = append(want[""], req.Key.Value)
	}
	for state, values := range want {
		for _, limit := range []int{1, 4, 6, 100} {
			got, pages := listAll(t, s, onlyonce.ListFilter{State: state, Limit: limit})
			if !slices.Equal(got, values) || pages != (len(values)+limit-1)/limit {
				t.Errorf("%q in pages of %d: %q in %d pages, want %q", state, limit, got, pages, values)
			}
		}
	}
	if got, _ := listAll(t, s, onlyonce.ListFilter{Scope: "other", Limit: 5}); len(got) != 0 {
		t.Errorf("of another scope: %q", got)
	}
}

// A cursor counts for the kind of list that gave it out.
func TestForeignCursors(t *testing.T) {
	t.Parallel()
	s, _ := migrated(t, dynamostore.Config{})
	for i := range 3 {
		want(t, s, request(fmt.Sprint(i)), onlyonce.Won)
	}
	cursors := map[onlyonce.State]string{}
	for _, state := range []onlyonce.State{"", onlyonce.InProgress} {
		page, err := s.List(t.Context(), onlyonce.ListFilter{State: state, Limit: 1})
		if err != nil || page.Next == "" {
			t.Fatal(page, err)
		}
		cursors[state] = page.Next
	}
	for state, cursor := range map[onlyonce.State][]string{
		"":                  {"x", "0011", cursors[onlyonce.InProgress], strings.Repeat("zz", 16)},
		onlyonce.InProgress: {"x", cursors[""], cursors[""] + ".", cursors[""] + ".x"},
	} {
		for _, after := range cursor {
			if _, err := s.List(t.Context(), onlyonce.ListFilter{State: state, After: after}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
				t.Errorf("%q after %q: %v, want a configuration error", state, after, err)
			}
		}
	}
}

// The index lags: what it says of a key is looked up before anybody is told.
func TestTheIndexDecidesNothing(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, tb := migrated(t, dynamostore.Config{Now: c.Now})
	o := owner(t, s, stepsOf("k"))
	held, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: o, Reason: "r"})
	hold(t, held, err)
	// An item that only the index has: as if the record had been completed a moment ago.
	stale := tb.items(t, "record")[0]
	complete(t, s, o, "x")
	late := tb.items(t, "record")[0]
	late["open"], late["at"] = stale["open"], stale["at"]
	if _, err := s.Client().PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(tb.name), Item: late}); err != nil {
		t.Fatal(err)
	}
	c.advance(retention / 2)
	if got, _ := listAll(t, s, onlyonce.ListFilter{State: onlyonce.InDoubt}); len(got) != 0 {
		t.Errorf("in doubt: %q", got)
	}
	if due, err := s.Due(t.Context(), onlyonce.DueRequest{Limit: 10}); err != nil || len(due) != 0 {
		t.Errorf("due: %+v, %v", due, err)
	}
	if r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10}); err != nil || r != (onlyonce.SweepResult{}) {
		t.Errorf("sweep: %+v, %v", r, err)
	}
	want(t, s, stepsOf("k"), onlyonce.Replay)
}

// X3: an audit is read in order and to its end, however long.
func TestLongAudit(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, tb := migrated(t, dynamostore.Config{Now: c.Now})
	other := tb.open(t, dynamostore.Config{Now: c.Now})
	const entries = 12
	for i := range entries {
		by := s
		if i >= entries/2 {
			by = other
			c.advance(1000)
		}
		e := onlyonce.AuditEntry{Key: keyOf("k"), Action: fmt.Sprint(i), Actor: "op\xff", Reason: strings.Repeat("r", 200_000)}
		if err := by.AddAudit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Audit(t.Context(), keyOf("k"))
	if err != nil || len(got) != entries {
		t.Fatalf("%d entries, %v", len(got), err)
	}
	for i, e := range got {
		if e.Action != fmt.Sprint(i) || e.Key != keyOf("k") || e.Actor != "op\ufffd" || len(e.Reason) != 200_000 {
			t.Errorf("entry %d: %s by %q", i, e.Action, e.Actor)
		}
	}
	if tb.count("Query") < 2 {
		t.Error("it was read in one page: the test proves nothing about the others")
	}
}

// F7: of many processes that add a setting at once all get the same.
func TestSettingRace(t *testing.T) {
	t.Parallel()
	_, tb := migrated(t, dynamostore.Config{})
	const workers = 12
	got := make([]string, workers)
	together(workers, func(i int) {
		v, err := tb.open(t, dynamostore.Config{}).AddSetting(t.Context(), "secret", "1", fmt.Append(nil, "value of ", i))
		if err != nil {
			t.Error(err)
		}
		got[i] = string(v)
	})
	if got[0] == "" || len(slices.Compact(got)) != 1 {
		t.Errorf("settings %q, want one", got)
	}
}
