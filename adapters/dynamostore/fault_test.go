package dynamostore_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

func answering(fn func(*dynamostore.Tx) error) onlyonce.TxFunc[*dynamostore.Tx] {
	return func(_ context.Context, tx *dynamostore.Tx) (*onlyonce.Answer, error) {
		a := answerOf("done")
		return &a, fn(tx)
	}
}

func stepping(tb *tables, name string) onlyonce.TxStepFunc[*dynamostore.Tx] {
	return func(_ context.Context, tx *dynamostore.Tx) ([]byte, error) {
		return []byte("result of " + name), tx.Put(tb.put(name))
	}
}

var errEarlier = errors.New("an earlier transaction has completed the key")

// lossy is every write of a store, each with what its request can be told by.
type lossy struct {
	what, op string
	words    []string
	run      func(s *dynamostore.Store) error
}

func (tb *tables) lossyWrites(t *testing.T, base *dynamostore.Store) []lossy {
	t.Helper()
	ctx := t.Context()
	won := request("claim")
	kept := stepsOf("steps")
	o := owner(t, base, kept)
	done := owner(t, base, request("done"))
	freed, parked := owner(t, base, request("freed")), owner(t, base, request("parked"))
	finished, atomic, holding := owner(t, base, request("finished")), request("atomic"), on("order/1", "holding")
	commits := owner(t, base, request("commits"))
	big := owner(t, base, request("big"))
	return []lossy{
		{"claim", "PutItem", []string{`"in_progress"`}, func(s *dynamostore.Store) error {
			c, err := s.Claim(ctx, won)
			return must(c.Verdict == onlyonce.Won && c.Record.Attempts == 1, err)
		}},
		{"claim of a resource", "TransactWriteItems", []string{"order/1"}, func(s *dynamostore.Store) error {
			c, err := s.Claim(ctx, holding)
			return must(c.Verdict == onlyonce.Won && c.Record.Holds, err)
		}},
		{"renew", "PutItem", []string{`"renewal":{"N":"1"}`}, func(s *dynamostore.Store) error {
			return must(s.Renew(ctx, o, lease))
		}},
		{"begin step", "PutItem", []string{`"begun"`}, func(s *dynamostore.Store) error { return must(s.BeginStep(ctx, o, intent("s"))) }},
		{"end step", "PutItem", []string{`"result"`}, func(s *dynamostore.Store) error {
			return must(s.EndStep(ctx, o, onlyonce.StepEnd{Name: "s", State: onlyonce.StepDone, Result: []byte("r")}))
		}},
		{"step in a transaction", "TransactWriteItems", []string{"reserve"}, func(s *dynamostore.Store) error {
			result, held, err := s.StepTx(ctx, o, onlyonce.TxStep{Name: "reserve"}, stepping(tb, "step"))
			return must(held && string(result) == "result of step", err)
		}},
		{"complete", "PutItem", []string{`"completed"`}, func(s *dynamostore.Store) error {
			settled, err := s.Complete(ctx, done, answerOf("done"))
			return must(settled.Held && !settled.ExpiresAt.IsZero(), err)
		}},
		{"part of an answer", "PutItem", []string{`value#`}, func(s *dynamostore.Store) error {
			settled, err := s.Complete(ctx, big, onlyonce.Answer{Status: 200, Body: make([]byte, 20<<10)})
			return must(settled.Held, err)
		}},
		{"release", "PutItem", []string{`"failed_retryable"`}, func(s *dynamostore.Store) error { return must(s.Release(ctx, freed, "r")) }},
		{"park", "PutItem", []string{`"in_doubt"`}, func(s *dynamostore.Store) error {
			return must(s.Park(ctx, onlyonce.ParkRequest{Owner: parked, Reason: "r"}))
		}},
		{"finish", "TransactWriteItems", []string{"finished"}, func(s *dynamostore.Store) error {
			settled, err := s.Finish(ctx, finished, tb.writes("finish"))
			return must(settled.Held, err)
		}},
		{"atomic", "TransactWriteItems", []string{"atomic"}, func(s *dynamostore.Store) error {
			c, _, err := s.Atomic(ctx, atomic, tb.writes("atomic"))
			return must(c.Verdict == onlyonce.Won || (c.Verdict == onlyonce.Replay && c.Record.Attempt == atomic.Attempt), err)
		}},
		{"requeue", "PutItem", []string{`"due":{"N":"0"}`}, func(s *dynamostore.Store) error { return must(s.Requeue(ctx, kept.Key)) }},
		{"setting", "PutItem", []string{"setting#kind"}, func(s *dynamostore.Store) error {
			v, err := s.AddSetting(ctx, "kind", "id", []byte("v"))
			return must(string(v) == "v", err)
		}},
		{"audit", "PutItem", []string{"audit#"}, func(s *dynamostore.Store) error {
			return s.AddAudit(ctx, onlyonce.AuditEntry{Key: kept.Key, Action: "a"})
		}},
		{"commit", "TransactWriteItems", []string{"commits"}, func(s *dynamostore.Store) error {
			err := s.Do(ctx, func(tx *dynamostore.Tx) error {
				settled, err := s.CompleteTx(ctx, tx, commits, answerOf("done"))
				if settled.Earlier {
					return errEarlier
				}
				return errors.Join(must(settled.Held, err), tx.Put(tb.put("commit")))
			})
			if errors.Is(err, errEarlier) {
				return nil // it is there, and was not written again
			}
			return err
		}},
	}
}

// C10: the server has done it and nobody hears of it. It is uncertain, and the same
// write repeated finds it done; business rows are there once.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	base, tb := migrated(t, dynamostore.Config{})
	tb.addBusiness(t)
	s := tb.open(t, dynamostore.Config{}, once)
	for _, l := range tb.lossyWrites(t, base) {
		tb.add(fault{op: l.op, words: l.words, times: 1})
		if err := l.run(s); !errors.Is(err, onlyonce.ErrUncertain) {
			t.Errorf("%s: %v, want uncertain", l.what, err)
		}
		if err := l.run(s); err != nil {
			t.Errorf("%s, repeated: %v", l.what, err)
		}
	}
	for _, name := range []string{"step", "finish", "atomic", "commit"} {
		if n := tb.rows(t, name); n != 1 {
			t.Errorf("%s: %d rows, want 1", name, n)
		}
	}
}

// C10: where the SDK repeats a write that has been carried out, the store recognises
// its own and does not take it for somebody else's.
func TestRepeatsOfTheSDK(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	tb.addBusiness(t)
	writes := tb.lossyWrites(t, s)
	for _, l := range writes {
		tb.add(fault{op: l.op, words: l.words, times: 1})
		if err := l.run(s); err != nil {
			t.Errorf("%s: %v", l.what, err)
		}
	}
	if n := tb.pending(); n != 0 {
		t.Errorf("%d replies were not lost", n)
	}
	for _, name := range []string{"step", "finish", "atomic", "commit"} {
		if n := tb.rows(t, name); n != 1 {
			t.Errorf("%s: %d rows, want 1", name, n)
		}
	}
	steps, err := s.Steps(t.Context(), keyOf("steps"))
	if err != nil || len(steps) != 2 || steps[0].Sends != 1 {
		t.Errorf("steps %+v, %v; want one send of the first", steps, err)
	}
	if entries, err := s.Audit(t.Context(), keyOf("steps")); err != nil || len(entries) != 1 {
		t.Errorf("%d audit entries, %v", len(entries), err)
	}
}

// A turn whose reply is lost is lost, unless the SDK asks again; the key comes again
// after its pause.
func TestLostTurn(t *testing.T) {
	t.Parallel()
	c := newClock()
	base, tb := migrated(t, dynamostore.Config{Now: c.Now})
	s := tb.open(t, dynamostore.Config{Now: c.Now}, once)
	turn := onlyonce.DueRequest{Limit: 10, Pause: time.Minute, MaxPause: time.Hour}
	want(t, s, stepsOf("k"), onlyonce.Won)
	c.advance(lease)
	tb.add(fault{op: "PutItem", words: []string{`"turn":{"N":"1"}`}, times: 1})
	if due, err := s.Due(t.Context(), turn); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("due: %+v, %v; want uncertain", due, err)
	}
	if due, err := s.Due(t.Context(), turn); err != nil || len(due) != 0 {
		t.Errorf("due again: %+v, %v; want nothing yet", due, err)
	}
	c.advance(time.Minute)
	if _, err := base.Due(t.Context(), turn); err != nil { // begins to watch
		t.Fatal(err)
	}
	c.advance(lease)
	tb.add(fault{op: "PutItem", words: []string{`"turn":{"N":"2"}`}, times: 1})
	if due, err := base.Due(t.Context(), turn); err != nil || len(due) != 1 || due[0].Turn != 2 {
		t.Errorf("due after the pause: %+v, %v", due, err)
	}
}

// The last error of several attempts does not tell what became of the first.
func TestUncertainThoughTheLastAttemptWasRefused(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	o := owner(t, s, request("k"))
	tb.add(fault{op: "PutItem", times: 1})
	tb.add(fault{op: "PutItem", times: 2, before: true, status: http.StatusBadRequest, answer: apiError("ThrottlingException", "slow down")})
	if _, err := s.Complete(t.Context(), o, answerOf("done")); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("complete: %v, want uncertain", err)
	}
	if rec, _, err := s.Get(t.Context(), o.Key); err != nil || rec.State != onlyonce.Completed {
		t.Errorf("it was carried out: %q, %v", rec.State, err)
	}
	complete(t, s, o, "done")
}

// Each way a server says no says how far the write got.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	tests := map[string]struct {
		status int
		code   string
		want   onlyonce.Code
		wait   bool
	}{
		"throttled":         {http.StatusBadRequest, "ThrottlingException", onlyonce.CodeStoreUnavailable, true},
		"capacity":          {http.StatusBadRequest, "ProvisionedThroughputExceededException", onlyonce.CodeStoreUnavailable, true},
		"request limit":     {http.StatusBadRequest, "RequestLimitExceeded", onlyonce.CodeStoreUnavailable, true},
		"not let in":        {http.StatusBadRequest, "AccessDeniedException", onlyonce.CodeStoreUnavailable, false},
		"no table":          {http.StatusBadRequest, "ResourceNotFoundException", onlyonce.CodeStoreUnavailable, false},
		"invalid":           {http.StatusBadRequest, "ValidationException", onlyonce.CodeStoreUnavailable, false},
		"server error":      {http.StatusInternalServerError, "InternalServerError", onlyonce.CodeUncertain, false},
		"unavailable":       {http.StatusServiceUnavailable, "ServiceUnavailable", onlyonce.CodeUncertain, false},
		"under way already": {http.StatusBadRequest, "TransactionInProgressException", onlyonce.CodeUncertain, false},
	}
	for name, tt := range tests {
		tb.add(fault{op: "PutItem", words: []string{name}, times: 3, before: true, status: tt.status, answer: apiError(tt.code, "no")})
		req := request(name)
		_, err := s.Claim(t.Context(), req)
		if onlyonce.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
		if e, ok := errors.AsType[*onlyonce.Error](err); ok && (e.RetryAfter > 0) != tt.wait {
			t.Errorf("%s: retry after %v", name, e.RetryAfter)
		}
	}
	for _, name := range []string{"throttled", "server error"} {
		tt := tests[name]
		tb.add(fault{op: "GetItem", times: 3, before: true, status: tt.status, answer: apiError(tt.code, "no")})
		if _, _, err := s.Get(t.Context(), keyOf("k")); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
			t.Errorf("read, %s: %v; want unavailable", name, err)
		}
		tb.mend()
	}
}

// A request token that the server knows with another content is nobody's proof.
func TestTokenOfAnotherRequest(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	tb.addBusiness(t)
	tb.add(fault{op: "TransactWriteItems", times: 1, before: true, status: http.StatusBadRequest, answer: apiError("IdempotentParameterMismatchException", "other")})
	req := request("k")
	if _, _, err := s.Atomic(t.Context(), req, tb.writes("k")); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("atomic: %v, want uncertain", err)
	}
	if _, settled, err := s.Atomic(t.Context(), req, tb.writes("k")); err != nil || !settled.Held {
		t.Errorf("repeated: %+v, %v", settled, err)
	}
	if n := tb.rows(t, "k"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// C10: who meets a transaction tries again, and then says that nothing happened.
func TestConflicts(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	tb.addBusiness(t)
	inTheWay := cancellation(map[string]any{"Code": "None"}, map[string]any{"Code": "TransactionConflict"})
	single := apiError("TransactionConflictException", "in the way")
	for times, wantErr := range map[int]error{3: nil, 1000: onlyonce.ErrConflict} {
		tb.add(fault{op: "TransactWriteItems", times: times, before: true, status: http.StatusBadRequest, answer: inTheWay})
		tb.add(fault{op: "PutItem", words: []string{"single"}, times: times, before: true, status: http.StatusBadRequest, answer: single})
		req := request("k")
		req.Key.Value = map[bool]string{true: "a", false: "b"}[wantErr == nil]
		if _, _, err := s.Atomic(t.Context(), req, tb.writes(req.Key.Value)); !errors.Is(err, wantErr) {
			t.Errorf("atomic, %d conflicts: %v", times, err)
		}
		if _, err := s.Claim(t.Context(), request("single "+req.Key.Value)); !errors.Is(err, wantErr) {
			t.Errorf("claim, %d conflicts: %v", times, err)
		}
		if wantErr == nil {
			continue
		}
		if _, found, err := s.Get(t.Context(), req.Key); found || err != nil {
			t.Errorf("a transaction that never came through left a record: %v, %v", found, err)
		}
	}
	if a, b := tb.rows(t, "a"), tb.rows(t, "b"); a != 1 || b != 0 {
		t.Errorf("rows %d and %d, want 1 and 0", a, b)
	}
}

// C11: what never reached a server did not happen; a context that is over sends
// nothing.
func TestNothingWasSent(t *testing.T) {
	t.Parallel()
	tb := newTables(t)
	s := tb.open(t, dynamostore.Config{}, func(o *dynamodb.Options) { o.BaseEndpoint = aws.String("http://127.0.0.1:1") })
	over, end := context.WithCancel(t.Context())
	end()
	o := onlyonce.Owner{Key: keyOf("k")}
	atomic := func(ctx context.Context) error { _, _, err := s.Atomic(ctx, request("k"), tb.writes("k")); return err }
	for name, fn := range map[string]func(ctx context.Context) error{
		"claim":    func(ctx context.Context) error { _, err := s.Claim(ctx, request("k")); return err },
		"resource": func(ctx context.Context) error { _, err := s.Claim(ctx, on("r", "k")); return err },
		"complete": func(ctx context.Context) error { _, err := s.Complete(ctx, o, answerOf("")); return err },
		"renew":    func(ctx context.Context) error { _, err := s.Renew(ctx, o, lease); return err },
		"release":  func(ctx context.Context) error { _, err := s.Release(ctx, o, "r"); return err },
		"get":      func(ctx context.Context) error { _, _, err := s.Get(ctx, o.Key); return err },
		"steps":    func(ctx context.Context) error { _, err := s.Steps(ctx, o.Key); return err },
		"begin":    func(ctx context.Context) error { _, err := s.BeginStep(ctx, o, intent("s")); return err },
		"atomic":   atomic,
		"finish":   func(ctx context.Context) error { _, err := s.Finish(ctx, o, tb.writes("k")); return err },
		"do": func(ctx context.Context) error {
			return s.Do(ctx, func(tx *dynamostore.Tx) error { return tx.Put(tb.put("k")) })
		},
		"due":     func(ctx context.Context) error { _, err := s.Due(ctx, onlyonce.DueRequest{Limit: 1}); return err },
		"sweep":   func(ctx context.Context) error { _, err := s.Sweep(ctx, onlyonce.SweepRequest{Limit: 1}); return err },
		"list":    func(ctx context.Context) error { _, err := s.List(ctx, onlyonce.ListFilter{}); return err },
		"setting": func(ctx context.Context) error { _, err := s.AddSetting(ctx, "k", "i", nil); return err },
		"migrate": s.Migrate,
		"check":   s.Check,
	} {
		if err := fn(t.Context()); !errors.Is(err, onlyonce.ErrUnreachable) {
			t.Errorf("%s without a server: %v, want unreachable", name, err)
		}
		if err := fn(over); !errors.Is(err, context.Canceled) || onlyonce.CodeOf(err) != "" {
			t.Errorf("%s with a context that is over: %v, want a plain error", name, err)
		}
	}
}

// A context that ends while a write is under way leaves it uncertain.
func TestCancelledDuringWrite(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	o := owner(t, s, request("k"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tb.hold(func() { cancel() })
	if _, err := s.Complete(ctx, o, answerOf("done")); !errors.Is(err, onlyonce.ErrUncertain) || !errors.Is(err, context.Canceled) {
		t.Errorf("complete: %v, want uncertain and cancelled", err)
	}
	complete(t, s, o, "done")
}
