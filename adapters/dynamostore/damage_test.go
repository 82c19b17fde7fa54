package dynamostore_test

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

// noted is a log that can be read.
type noted struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *noted) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

// says tells whether the log has the words, and forgets them.
func (n *noted) says(words string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.text.Reset()
	return strings.Contains(n.text.String(), words)
}

// watchedTable is a store that reports damage to a log, and its clock.
func watchedTable(t *testing.T) (*dynamostore.Store, *tables, *noted, *clock) {
	t.Helper()
	c, log := newClock(), &noted{}
	s, tb := migrated(t, dynamostore.Config{Now: c.Now, Logger: slog.New(slog.NewTextHandler(log, nil))})
	return s, tb, log, c
}

// putItem writes an item by hand.
func (tb *tables) putItem(t *testing.T, item map[string]types.AttributeValue) {
	t.Helper()
	if _, err := tb.connect(t).PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(tb.name), Item: item}); err != nil {
		t.Fatal(err)
	}
}

// recordOf is the item of a key.
func (tb *tables) recordOf(t *testing.T, value string) map[string]types.AttributeValue {
	t.Helper()
	for _, item := range tb.items(t, "record") {
		if k, ok := item["key"].(*types.AttributeValueMemberS); ok && k.Value == value {
			return item
		}
	}
	t.Fatalf("no record of %s", value)
	return nil
}

// T3, X: an item that is not of the store's making keeps nobody from seeing and sweeping
// the others, and is reported.
func TestForeignItemsArePassedOver(t *testing.T) {
	t.Parallel()
	s, tb, log, c := watchedTable(t)
	for _, value := range []string{"a", "b", "c"} {
		complete(t, s, owner(t, s, request(value)), "x")
	}
	c.advance(retention / 2)
	complete(t, s, owner(t, s, request("live")), "x")
	open := stepsOf("open")
	want(t, s, open, onlyonce.Won)
	for digit, part := range map[string]string{"0": "0", "f": "7"} { // before the others, and behind them
		for name, digits := range map[string]int{"record": 32, "life#0": 64} {
			tb.putItem(t, map[string]types.AttributeValue{
				"pk": str("key#" + strings.Repeat(digit, digits)), "sk": str(name), "state": str("in_progress"), "steps": str("none"),
				"open": str(part), "at": &types.AttributeValueMemberN{Value: "1"},
			})
		}
	}
	moved := tb.recordOf(t, "live") // a row of one key in another's place
	moved["pk"] = str("key#" + strings.Repeat("e", 32))
	tb.putItem(t, moved)
	for _, state := range []onlyonce.State{"", onlyonce.Completed, onlyonce.InProgress} {
		values, _ := listAll(t, s, onlyonce.ListFilter{State: state, Limit: 2})
		if n := map[onlyonce.State]int{"": 5, onlyonce.Completed: 4, onlyonce.InProgress: 1}[state]; len(values) != n || !log.says("list keys") {
			t.Errorf("list of %q: %q, want %d and a report", state, values, n)
		}
	}
	c.advance(retention / 2)
	if r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10, StepRetention: time.Hour}); err != nil || r.Deleted != 3 || r.Freed != 1 || !log.says("ffff") {
		t.Errorf("sweep: %+v, %v; want 3 deleted, 1 freed and a report", r, err)
	}
}

// X1: a damaged row keeps no other from its turn; where there is no other it is the
// error, each time.
func TestDueAmongDamagedRows(t *testing.T) {
	t.Parallel()
	s, tb, log, c := watchedTable(t)
	for _, value := range []string{"sound", "foreign"} {
		held, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: owner(t, s, stepsOf(value)), Reason: "r"})
		hold(t, held, err)
	}
	gone := stepsOf("gone")
	gone.Keep = large(20_000)
	held, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: owner(t, s, gone), Reason: "r"})
	hold(t, held, err)
	tb.expire(t, tb.items(t, "value#")[0])
	item := tb.recordOf(t, "foreign")
	item["sum"] = str("x")
	tb.putItem(t, item)
	c.advance(time.Hour)
	req := onlyonce.DueRequest{Limit: 10, Pause: time.Minute, MaxPause: time.Hour}
	if due, err := s.Due(t.Context(), req); err != nil || len(due) != 1 || due[0].Record.Key.Value != "sound" || !log.says("give turns") {
		t.Errorf("due: %+v, %v; want the sound one and a report", due, err)
	}
	for range 2 {
		due, err := s.Due(t.Context(), req)
		if len(due) != 0 || err == nil || strings.Count(err.Error(), "read item") != 2 {
			t.Errorf("due: %+v, %v; want both damaged ones as the error", due, err)
		}
	}
	if _, found, err := s.Kept(t.Context(), gone.Key); found || onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("kept: %v, %v", found, err)
	}
}

// A size that cannot be is an error, not a panic.
func TestImpossibleSizes(t *testing.T) {
	t.Parallel()
	s, tb, _, _ := watchedTable(t)
	req := request("k")
	if _, err := s.Complete(t.Context(), owner(t, s, req), onlyonce.Answer{Status: 200, Body: large(20_000)}); err != nil {
		t.Fatal(err)
	}
	sound := tb.recordOf(t, "k")
	for name, n := range map[string]string{"size": "-1", "parts": "0"} {
		item := maps.Clone(sound)
		answer := maps.Clone(item["answer"].(*types.AttributeValueMemberM).Value)
		body := maps.Clone(answer["body"].(*types.AttributeValueMemberM).Value)
		body[name] = &types.AttributeValueMemberN{Value: n}
		answer["body"] = &types.AttributeValueMemberM{Value: body}
		item["answer"] = &types.AttributeValueMemberM{Value: answer}
		tb.putItem(t, item)
		if _, found, err := s.Get(t.Context(), req.Key); found || onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
			t.Errorf("%s %s: %v, %v", name, n, found, err)
		}
	}
}

// C10: a write that stands, whose reply was lost, whose repeat by the SDK was refused
// and which cannot be read, is uncertain; what it refers to is left alone.
func TestStandsButCannotBeRead(t *testing.T) {
	t.Parallel()
	// Each looks once before it writes.
	down := fault{op: "GetItem", skip: 1, before: true, times: 3, status: http.StatusInternalServerError, answer: apiError("InternalServerError", "down")}
	for _, status := range []int{http.StatusInternalServerError, http.StatusBadRequest} {
		s, tb := migrated(t, dynamostore.Config{})
		down.status = status
		req := stepsOf("k")
		req.Keep = large(20_000)
		tb.add(fault{op: "PutItem", words: []string{`"in_progress"`}, times: 1})
		tb.add(down)
		if _, err := s.Claim(t.Context(), req); !errors.Is(err, onlyonce.ErrUncertain) {
			t.Errorf("claim: %v, want uncertain", err)
		}
		tb.mend()
		o := owner(t, s, req)
		if keep, found, err := s.Kept(t.Context(), req.Key); !found || !bytes.Equal(keep, req.Keep) {
			t.Errorf("kept: %d bytes, %v, %v", len(keep), found, err)
		}
		tb.add(fault{op: "PutItem", words: []string{`"completed"`}, times: 1})
		tb.add(down)
		body := large(30_000)
		if _, err := s.Complete(t.Context(), o, onlyonce.Answer{Status: 201, Body: body}); !errors.Is(err, onlyonce.ErrUncertain) {
			t.Errorf("complete: %v, want uncertain", err)
		}
		tb.mend()
		complete(t, s, o, "another")
		if a := want(t, s, again(req), onlyonce.Replay).Record.Answer; !bytes.Equal(a.Body, body) {
			t.Errorf("%d bytes were stored, want those of the first", len(a.Body))
		}
	}
}
