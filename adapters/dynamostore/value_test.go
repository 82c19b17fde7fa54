package dynamostore_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

// large is so many bytes that differ.
func large(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i/251)
	}
	return b
}

// O8, O9: an answer is never too large for the table: what does not fit in one item
// of 400 KB is kept in several, byte for byte.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	tb.addBusiness(t)
	for _, size := range []int{8 << 10, 8<<10 + 1, 384 << 10, 384<<10 + 1, 1_500_000} {
		req := request(fmt.Sprint(size))
		body := large(size)
		header := map[string][]string{"Link": {strings.Repeat("x", size%20_000)}}
		if settled, err := s.Complete(t.Context(), owner(t, s, req), onlyonce.Answer{Status: 201, Body: body, Header: header}); !settled.Held || err != nil {
			t.Fatalf("%d bytes: %+v, %v", size, settled, err)
		}
		a := want(t, s, again(req), onlyonce.Replay).Record.Answer
		if !bytes.Equal(a.Body, body) || a.Header["Link"][0] != header["Link"][0] {
			t.Errorf("%d bytes came back as %d", size, len(a.Body))
		}
	}
	body := large(900_000)
	c, settled, err := s.Atomic(t.Context(), request("atomic"), func(_ context.Context, tx *dynamostore.Tx) (*onlyonce.Answer, error) {
		return &onlyonce.Answer{Status: 201, Body: body}, tx.Put(tb.put("atomic"))
	})
	if err != nil || !settled.Held || !bytes.Equal(c.Record.Answer.Body, body) {
		t.Fatalf("atomic: %+v, %v", settled, err)
	}
	rec, _, err := s.Get(t.Context(), keyOf("atomic"))
	if err != nil || !bytes.Equal(rec.Answer.Body, body) {
		t.Errorf("atomic: %v", err)
	}
	page, err := s.List(t.Context(), onlyonce.ListFilter{State: onlyonce.Completed})
	if err != nil || len(page.Records) != 6 || len(page.Records[0].Answer.Body) < 8<<10 {
		t.Errorf("list: %d records, %v", len(page.Records), err)
	}
}

// D2, D6: what is kept for others is never too large either.
func TestLargeRequestsAndSteps(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	tb.addBusiness(t)
	req := stepsOf("k")
	req.Keep = large(1_000_000)
	o := owner(t, s, req)
	in := intent("charge")
	in.Request = large(500_000)
	held, err := s.BeginStep(t.Context(), o, in)
	hold(t, held, err)
	held, err = s.EndStep(t.Context(), o, onlyonce.StepEnd{Name: "charge", State: onlyonce.StepDone, Result: large(450_000)})
	hold(t, held, err)
	_, held, err = s.StepTx(t.Context(), o, onlyonce.TxStep{Name: "reserve"}, func(_ context.Context, tx *dynamostore.Tx) ([]byte, error) {
		return large(5000), tx.Put(tb.put("k"))
	})
	hold(t, held, err)
	kept, found, err := s.Kept(t.Context(), o.Key)
	hold(t, found, err)
	steps, err := s.Steps(t.Context(), o.Key)
	if err != nil || len(steps) != 2 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	if !bytes.Equal(kept, req.Keep) || !bytes.Equal(steps[0].Request, in.Request) || len(steps[0].Result) != 450_000 || len(steps[1].Result) != 5000 {
		t.Error("what was kept came back changed")
	}
	result, held, err := s.StepTx(t.Context(), o, onlyonce.TxStep{Name: "reserve"}, nil)
	if !held || err != nil || !bytes.Equal(result, large(5000)) {
		t.Errorf("repeated: %d bytes, %v, %v", len(result), held, err)
	}
}

// What nothing refers to any more is deleted: the request of a settled key, the
// answer of a life that was replaced, what a loser had stored.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, tb := migrated(t, dynamostore.Config{Now: c.Now})
	parts := func(what string, want int) {
		t.Helper()
		if n := len(tb.items(t, "value#")); n != want {
			t.Errorf("%s: %d parts, want %d", what, n, want)
		}
	}
	req := stepsOf("k")
	req.Keep = large(500_000)
	o := owner(t, s, req)
	parts("claimed", 2)
	want(t, s, again(req), onlyonce.Busy)
	mismatch := again(req)
	mismatch.Fingerprint.Sum[0]++
	want(t, s, mismatch, onlyonce.Mismatch)
	parts("after losers", 2)
	if settled, err := s.Complete(t.Context(), o, onlyonce.Answer{Status: 200, Body: large(1_000_000)}); !settled.Held || err != nil {
		t.Fatal(settled, err)
	}
	parts("completed", 3)
	stranger := o
	stranger.Fence++
	if settled, err := s.Complete(t.Context(), stranger, onlyonce.Answer{Status: 200, Body: large(1_000_000)}); settled.Held || err != nil {
		t.Fatal(settled, err)
	}
	parts("after a stranger's answer", 3)
	if settled, err := s.Complete(t.Context(), o, onlyonce.Answer{Status: 200, Body: large(1_000_000)}); !settled.Held || err != nil {
		t.Fatal(settled, err)
	}
	parts("after the same answer again", 3)
	c.advance(retention)
	small := request("k")
	complete(t, s, owner(t, s, small), "small")
	parts("replaced", 0)

	held, err := s.Release(t.Context(), owner(t, s, func() onlyonce.ClaimRequest { r := req; r.Key.Value = "freed"; return again(r) }()), "r")
	hold(t, held, err)
	parts("freed", 0)
}

// A large request that could be written in part leaves nothing behind.
func TestPartOfALargeRequest(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	req := stepsOf("k")
	req.Keep = large(900_000)
	tb.add(fault{op: "PutItem", words: []string{"#000001"}, before: true, times: 3, status: http.StatusBadRequest, answer: apiError("AccessDeniedException", "no")})
	if _, err := s.Claim(t.Context(), req); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("claim: %v", err)
	}
	if n := len(tb.items(t, "")); n != 0 {
		t.Errorf("%d items are left", n)
	}
}

// T2: the large requests and results of a completed key's steps go when its record does;
// not while it may still go on.
func TestLargeStepsOfACompletedKeyExpire(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	o := owner(t, s, stepsOf("k"))
	in := intent("charge")
	in.Request = large(500_000)
	held, err := s.BeginStep(t.Context(), o, in)
	hold(t, held, err)
	held, err = s.EndStep(t.Context(), o, onlyonce.StepEnd{Name: "charge", State: onlyonce.StepDone, Result: large(5000)})
	hold(t, held, err)
	ttls := func() (ttls []string) {
		t.Helper()
		for _, item := range tb.items(t, "value#") {
			if n, ok := item["ttl"].(*types.AttributeValueMemberN); ok {
				ttls = append(ttls, n.Value)
			}
		}
		return ttls
	}
	if got := ttls(); len(got) != 0 {
		t.Errorf("in progress: %q", got)
	}
	complete(t, s, o, "done")
	at, _ := ttlOf(t, tb)
	if got, want := ttls(), fmt.Sprint(at.Unix()); len(got) != 3 || got[0] != want || got[1] != want || got[2] != want {
		t.Errorf("completed: %q, want 3 times %s", got, want)
	}
	if steps, err := s.Steps(t.Context(), o.Key); err != nil || len(steps) != 1 || !bytes.Equal(steps[0].Request, in.Request) {
		t.Errorf("%d steps, %v", len(steps), err)
	}
}

// An operation with more steps than an item can hold is told so before the next one
// begins; what has begun can be ended, and the operation be answered.
func TestManySteps(t *testing.T) {
	t.Parallel()
	s, _ := migrated(t, dynamostore.Config{})
	o := owner(t, s, stepsOf("k"))
	in := intent("charge")
	in.Request, in.Reference = large(1<<10), strings.Repeat("r", 8<<10)
	begun := 0
	for ; begun < 100; begun++ {
		in.Occurrence = begun
		held, err := s.BeginStep(t.Context(), o, in)
		if err != nil {
			if onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || !strings.Contains(err.Error(), "split") {
				t.Fatalf("step %d: %v", begun, err)
			}
			break
		}
		hold(t, held, err)
	}
	if begun < 20 || begun == 100 {
		t.Fatalf("%d steps of 10 KB were taken", begun)
	}
	if _, _, err := s.StepTx(t.Context(), o, onlyonce.TxStep{Name: in.Reference + in.Reference}, func(context.Context, *dynamostore.Tx) ([]byte, error) { return nil, nil }); err == nil {
		t.Error("a step in a transaction was taken that has no room")
	}
	for i := range begun {
		held, err := s.EndStep(t.Context(), o, onlyonce.StepEnd{Name: "charge", Occurrence: i, State: onlyonce.StepDone, Result: large(1 << 10)})
		hold(t, held, err)
	}
	if settled, err := s.Complete(t.Context(), o, onlyonce.Answer{Status: 200, Body: large(8 << 10), Header: map[string][]string{"Link": {strings.Repeat("x", 8000)}}}); !settled.Held || err != nil {
		t.Errorf("complete: %+v, %v", settled, err)
	}
	if steps, err := s.Steps(t.Context(), o.Key); err != nil || len(steps) != begun {
		t.Errorf("%d steps, %v", len(steps), err)
	}
}

// A part that is gone is no empty answer.
func TestMissingPart(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	req := request("k")
	if _, err := s.Complete(t.Context(), owner(t, s, req), onlyonce.Answer{Status: 200, Body: large(800_000)}); err != nil {
		t.Fatal(err)
	}
	tb.expire(t, tb.items(t, "value#")[1])
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if rec, found, err := s.Get(ctx, req.Key); err == nil {
		t.Errorf("get: %v, %+v", found, rec.Answer)
	}
	if c, err := s.Claim(t.Context(), again(req)); err == nil {
		t.Errorf("claim: %v", c.Verdict)
	}
}

// A retry that finds its first write carried out keeps the parts that it refers to.
func TestUncertainAnswerKeepsItsParts(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	req := request("k")
	o := owner(t, s, req)
	tb.add(fault{op: "PutItem", words: []string{`"completed"`}, times: 1})
	tb.add(fault{op: "PutItem", words: []string{`"completed"`}, times: 2, before: true, status: http.StatusInternalServerError, answer: apiError("InternalServerError", "no")})
	body := large(500_000)
	if _, err := s.Complete(t.Context(), o, onlyonce.Answer{Status: 200, Body: body}); onlyonce.CodeOf(err) != onlyonce.CodeUncertain {
		t.Fatalf("complete: %v, want uncertain", err)
	}
	if settled, err := s.Complete(t.Context(), o, onlyonce.Answer{Status: 200, Body: large(400_000)}); !settled.Held || err != nil {
		t.Fatal(settled, err)
	}
	if a := want(t, s, again(req), onlyonce.Replay).Record.Answer; !bytes.Equal(a.Body, body) {
		t.Errorf("%d bytes, want those of the first", len(a.Body))
	}
}

// K3: names that DynamoDB would change are refused, others come back as they were.
func TestNames(t *testing.T) {
	t.Parallel()
	s, _ := migrated(t, dynamostore.Config{})
	o := owner(t, s, stepsOf("k"))
	in := intent("größe/#\x00\u2028")
	in.Reference = strings.Repeat("я", 200)
	held, err := s.BeginStep(t.Context(), o, in)
	hold(t, held, err)
	if steps, err := s.Steps(t.Context(), o.Key); err != nil || steps[0].Name != in.Name || steps[0].Reference != in.Reference {
		t.Errorf("%+v, %v", steps, err)
	}
	bad := "\xff"
	broken := request("bad")
	broken.Operation = bad
	for name, err := range map[string]error{
		"operation": func() error { _, err := s.Claim(t.Context(), broken); return err }(),
		"step":      func() error { _, err := s.BeginStep(t.Context(), o, onlyonce.Intent{Name: bad}); return err }(),
		"tx step": func() error {
			_, _, err := s.StepTx(t.Context(), o, onlyonce.TxStep{Name: bad}, nil)
			return err
		}(),
		"setting":       func() error { _, err := s.AddSetting(t.Context(), bad, "i", nil); return err }(),
		"large setting": func() error { _, err := s.AddSetting(t.Context(), "k", "i", large(400<<10)); return err }(),
		"lease":         func() error { _, err := s.Renew(t.Context(), o, 0); return err }(),
		"sweep":         func() error { _, err := s.Sweep(t.Context(), onlyonce.SweepRequest{}); return err }(),
	} {
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%s: %v, want a configuration error", name, err)
		}
	}
	long := strings.Repeat("r", 500<<10)
	held, err = s.Release(t.Context(), owner(t, s, request("long")), long)
	hold(t, held, err)
	if rec, _, err := s.Get(t.Context(), keyOf("long")); err != nil || len(rec.Reason) == 0 || !strings.HasPrefix(long, rec.Reason) {
		t.Errorf("a reason of %d bytes, %v", len(rec.Reason), err)
	}
	held, err = s.Park(t.Context(), onlyonce.ParkRequest{Owner: o, Reason: "said \xff"})
	hold(t, held, err)
	if rec, _, err := s.Get(t.Context(), o.Key); err != nil || rec.Reason != "said \ufffd" {
		t.Errorf("reason %q, %v", rec.Reason, err)
	}
}
