package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// TxBackend opens stores with transactions.
type TxBackend[Tx any] struct {
	// Open is as in Backend; both stores of the instance must be TxStore[Tx].
	// Business data, a list of names that may repeat, is empty.
	Open func(t *testing.T, now func() time.Time) Instance
	// Write adds a name to the business data inside tx.
	Write func(ctx context.Context, tx Tx, name string) error
	// Count is how often the name is in the committed business data.
	Count func(t *testing.T, in Instance, name string) int
	// Do runs fn in a transaction of the caller's own, and commits it unless
	// fn returns an error. nil skips what needs it.
	Do func(ctx context.Context, in Instance, fn func(tx Tx) error) error
}

// txBench is what a rule about transactions is checked with.
type txBench[Tx any] struct {
	bench
	TxBackend[Tx]
	tx onlyonce.TxStore[Tx]
}

type txRule[Tx any] struct {
	name, broken string
	check        func(t *testing.T, b *txBench[Tx])
}

// RunTx checks the rules that every store with transactions must keep.
func RunTx[Tx any](t *testing.T, backend TxBackend[Tx]) {
	t.Helper()
	rules := []txRule[Tx]{
		{"O_atomic_commits_all_or_nothing", "claim, business write and answer did not share one fate", checkAtomic[Tx]},
		{"O_atomic_rolls_back", "a failed transaction left a business write or a record", checkAtomicRollback[Tx]},
		{"C2_a_duplicate_of_an_open_transaction_is_busy_at_once", "a duplicate waited for, or ran beside, an uncommitted attempt", checkOpenDuplicate[Tx]},
		{"C1_of_transactions_side_by_side_one_commits", "two transactions of one key, that could not see each other, both committed (case B08)", checkOneCommits[Tx]},
		{"C1_one_of_many_transactions_commits", "several transactions of one key committed (case B08)", checkAtomicRace[Tx]},
		{"O_atomic_continues_a_freed_key", "an atomic claim on an existing row must follow the same rules as any other", checkAtomicResumes[Tx]},
		{"C6_finish_is_fenced", "a business write of an attempt that was taken over was committed (case B16)", checkFinishFenced[Tx]},
		{"O_finish_commits_all_or_nothing", "the last transaction of an attempt did not share one fate (case B54)", checkFinish[Tx]},
		{"C10_finish_is_repeatable", "an attempt whose commit's reply was lost wrote its business data twice", checkFinishRepeat[Tx]},
		{"C6_complete_in_the_callers_transaction_is_fenced", "completing in the caller's own transaction must tell whether the key is still held", checkCompleteTx[Tx]},
	}
	rules = append(rules, txRule[Tx]{"C10_completing_in_the_callers_transaction_is_repeatable", "a caller whose commit's reply was lost wrote its business data twice", checkCompleteTxRepeat[Tx]})
	rules = append(rules, besideRules[Tx]()...)
	rules = append(rules, txStepRules[Tx]()...)
	ran := newReport(t, "transactions")
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			ran.count(t)
			explain(t, r.broken)
			clock := NewClock()
			in := backend.Open(t, clock.Now)
			b := &txBench[Tx]{TxBackend: backend, tx: in.Store.(onlyonce.TxStore[Tx])} //nolint:forcetypeassert // the backend's promise
			b.bench = bench{Instance: in, ctx: t.Context(), clock: clock, store: in.Store}
			r.check(t, b)
		})
	}
}

// writes is business code that adds a name and answers.
func (b *txBench[Tx]) writes(name string) onlyonce.TxFunc[Tx] {
	return func(ctx context.Context, tx Tx) (*onlyonce.Answer, error) {
		answer := created()
		return &answer, b.Write(ctx, tx, name)
	}
}

func (b *txBench[Tx]) count(t *testing.T, name string, want int) {
	t.Helper()
	if got := b.Count(t, b.Instance, name); got != want {
		t.Errorf("%s: %d business rows, want %d", name, got, want)
	}
}

func (b *txBench[Tx]) atomic(t *testing.T, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[Tx]) (onlyonce.Claim, onlyonce.Settled) {
	t.Helper()
	c, s, err := b.tx.Atomic(b.ctx, req, fn)
	if err != nil {
		t.Fatalf("atomic %s: %v", req.Key.Value, err)
	}
	return c, s
}

func checkAtomic[Tx any](t *testing.T, b *txBench[Tx]) {
	req := request("k")
	c, s := b.atomic(t, req, b.writes("k"))
	if c.Verdict != onlyonce.Won || !s.Held || !s.ExpiresAt.Equal(b.clock.Now().Add(retention)) {
		t.Fatalf("atomic: %v, %+v", c.Verdict, s)
	}
	b.count(t, "k", 1)
	replay, _ := b.atomic(t, again(req), b.writes("k"))
	if replay.Verdict != onlyonce.Replay || string(replay.Record.Answer.Body) != string(created().Body) {
		t.Errorf("duplicate: %v", replay.Verdict)
	}
	own, _ := b.atomic(t, req, b.writes("k"))
	if own.Verdict != onlyonce.Replay || own.Record.Attempt != req.Attempt {
		t.Errorf("an attempt must find its own committed answer, got %v", own.Verdict)
	}
	other := again(req)
	other.Fingerprint = fingerprintOf("b")
	if m, _ := b.atomic(t, other, b.writes("k")); m.Verdict != onlyonce.Mismatch {
		t.Errorf("another request: %v", m.Verdict)
	}
	b.count(t, "k", 1)
}

var errBusiness = errors.New("business failure")

func checkAtomicRollback[Tx any](t *testing.T, b *txBench[Tx]) {
	ends := map[string]onlyonce.TxFunc[Tx]{
		"error": func(ctx context.Context, tx Tx) (*onlyonce.Answer, error) {
			return nil, errors.Join(b.Write(ctx, tx, "error"), errBusiness)
		},
		"no answer": func(ctx context.Context, tx Tx) (*onlyonce.Answer, error) {
			return nil, b.Write(ctx, tx, "no answer")
		},
		"panic": func(ctx context.Context, tx Tx) (*onlyonce.Answer, error) {
			if err := b.Write(ctx, tx, "panic"); err != nil {
				return nil, err
			}
			panic(errBusiness)
		},
	}
	for name, fn := range ends {
		req := request(name)
		s, err := b.atomicOrPanic(req, fn)
		if s.Held {
			t.Errorf("%s: the key is held", name)
		}
		if name != "no answer" && !errors.Is(err, errBusiness) {
			t.Errorf("%s: the handler's error must come back as it is, got %v", name, err)
		}
		b.count(t, name, 0)
		if _, found, err := b.store.Get(b.ctx, req.Key); found || err != nil {
			t.Errorf("%s: a rolled-back claim left a record: %v, %v", name, found, err)
		}
		c, _ := b.atomic(t, again(req), b.writes(name))
		if c.Verdict != onlyonce.Won {
			t.Errorf("%s: the next attempt got %v", name, c.Verdict)
		}
		b.count(t, name, 1)
	}
}

func (b *txBench[Tx]) atomicOrPanic(req onlyonce.ClaimRequest, fn onlyonce.TxFunc[Tx]) (s onlyonce.Settled, err error) {
	defer func() {
		if v := recover(); v != nil {
			err, _ = v.(error)
		}
	}()
	_, s, err = b.tx.Atomic(b.ctx, req, fn)
	return s, err
}

func checkOpenDuplicate[Tx any](t *testing.T, b *txBench[Tx]) {
	if b.store.Features().CommitDecides {
		t.Skip("not promised: a duplicate of an open transaction is told so; the commit decides")
	}
	req, other := request("k"), request("k")
	other.Fingerprint = fingerprintOf("b")
	ran := false
	c, _ := b.atomic(t, req, func(ctx context.Context, tx Tx) (*onlyonce.Answer, error) {
		ran = true
		b.want(t, again(req), onlyonce.Busy)
		d, _ := b.atomic(t, again(req), b.writes("k"))
		if d.Verdict != onlyonce.Busy {
			t.Errorf("atomic duplicate: %v, want busy", d.Verdict)
		}
		want := onlyonce.Busy
		if b.store.Features().SeesUncommitted {
			want = onlyonce.Mismatch
		}
		b.want(t, other, want)
		return b.writes("k")(ctx, tx)
	})
	if !ran || c.Verdict != onlyonce.Won {
		t.Fatalf("atomic: ran %v, %v", ran, c.Verdict)
	}
	b.count(t, "k", 1)
	b.want(t, other, onlyonce.Mismatch)
}

// checkOneCommits has a second transaction of the key run beside an open one,
// through a handle of its own. Either is told that the key is busy, or both run and
// one is rolled back.
func checkOneCommits[Tx any](t *testing.T, b *txBench[Tx]) {
	if !b.store.Features().CommitDecides {
		t.Skip("not promised: the commit decides between transactions")
	}
	second := b.tx
	if b.Another != nil {
		if other, ok := onlyonce.TransactionsOf[Tx](b.Another); ok {
			second = other
		}
	}
	req := request("k")
	var beside onlyonce.Settled
	c, first, err := b.tx.Atomic(b.ctx, req, func(ctx context.Context, tx Tx) (*onlyonce.Answer, error) {
		answer, err := b.writes("k")(ctx, tx)
		duplicate, s, dupErr := second.Atomic(ctx, again(req), b.writes("k"))
		if beside = s; !s.Held && duplicate.Verdict != onlyonce.Busy && !errors.Is(dupErr, onlyonce.ErrConflict) {
			t.Errorf("the duplicate: %v, %v", duplicate.Verdict, dupErr)
		}
		return answer, err
	})
	if err != nil && !errors.Is(err, onlyonce.ErrConflict) {
		t.Fatalf("atomic: %v", err)
	}
	if first.Held == beside.Held {
		t.Errorf("held: the first %v (%v), the duplicate %v; exactly one must commit", first.Held, c.Verdict, beside.Held)
	}
	b.count(t, "k", 1)
	b.want(t, again(req), onlyonce.Replay)
}

func checkAtomicRace[Tx any](t *testing.T, b *txBench[Tx]) {
	const contenders, keys = 8, 4
	var wg sync.WaitGroup
	gate := make(chan struct{})
	errs := make(chan error, contenders*keys)
	for i := range contenders * keys {
		wg.Go(func() {
			<-gate
			name := fmt.Sprint(i % keys)
			errs <- b.untilDecided(again(request(name)), name)
		})
	}
	close(gate)
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	for i := range keys {
		b.count(t, fmt.Sprint(i), 1)
	}
}

// untilDecided runs a contender of a race until it has committed or meets the
// answer, as an engine would.
func (b *txBench[Tx]) untilDecided(req onlyonce.ClaimRequest, name string) error {
	for range 10_000 {
		c, s, err := b.tx.Atomic(b.ctx, req, b.writes(name))
		switch {
		case errors.Is(err, onlyonce.ErrConflict):
		case err != nil:
			return err
		case c.Verdict == onlyonce.Replay || s.Held:
			return nil
		case c.Verdict != onlyonce.Busy:
			return fmt.Errorf("atomic: %v", c.Verdict)
		}
		// Losers must not take the processor from the winner they wait for.
		select {
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return errors.New("a contender was never decided")
}

func checkAtomicResumes[Tx any](t *testing.T, b *txBench[Tx]) {
	free, over, hold, doubtful, old := request("freed"), request("over"), request("hold"), request("doubt"), request("expired")
	hold.Abandon = onlyonce.AbandonHold
	b.complete(t, b.want(t, old, onlyonce.Won).Record.Owner(), created())
	b.clock.Advance(retention)
	first := b.want(t, free, onlyonce.Won)
	b.release(t, first.Record.Owner())
	steps := stepRequest("steps")
	b.release(t, b.want(t, steps, onlyonce.Won).Record.Owner())
	steps.Abandon = onlyonce.AbandonRerun // its steps can be continued by steps only
	zombie := b.want(t, over, onlyonce.Won).Record.Owner()
	b.want(t, hold, onlyonce.Won)
	b.park(t, b.want(t, doubtful, onlyonce.Won).Record.Owner(), false)
	b.clock.Advance(lease)
	want := map[string]onlyonce.Verdict{
		"freed": onlyonce.Resumed, "over": onlyonce.Resumed, "hold": onlyonce.Abandoned, "doubt": onlyonce.Doubtful, "expired": onlyonce.Won,
		"steps": onlyonce.Doubtful,
	}
	for _, req := range []onlyonce.ClaimRequest{free, over, hold, doubtful, old, steps} {
		c, s := b.atomic(t, again(req), b.writes(req.Key.Value))
		v := want[req.Key.Value]
		if c.Verdict != v || s.Held != v.Owns() {
			t.Errorf("%s: %v, held %v; want %v", req.Key.Value, c.Verdict, s.Held, v)
		}
		rows := 0
		if v.Owns() {
			rows = 1
		}
		b.count(t, req.Key.Value, rows)
	}
	if b.complete(t, zombie, created()).Held {
		t.Error("the taken-over attempt completed")
	}
	own := request("own")
	b.want(t, own, onlyonce.Won)
	if c, s := b.atomic(t, own, b.writes("own")); c.Verdict != onlyonce.Won || !s.Held {
		t.Errorf("an attempt that had claimed before: %v, held %v", c.Verdict, s.Held)
	}
	b.count(t, "own", 1)
	if rec := b.get(t, free.Key); rec.Fence <= first.Record.Fence || rec.Origin != first.Record.Origin || rec.Attempts != 2 {
		t.Errorf("freed, then atomic: %+v", rec)
	}
}

func (b *txBench[Tx]) finish(t *testing.T, owner onlyonce.Owner, fn onlyonce.TxFunc[Tx]) onlyonce.Settled {
	t.Helper()
	s, err := b.tx.Finish(b.ctx, owner, fn)
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	return s
}

func checkFinishFenced[Tx any](t *testing.T, b *txBench[Tx]) {
	req := request("k")
	zombie := b.want(t, req, onlyonce.Won).Record.Owner()
	b.clock.Advance(lease)
	owner := b.want(t, again(req), onlyonce.Resumed).Record.Owner()
	if b.finish(t, zombie, b.writes("zombie")).Held {
		t.Error("a fenced attempt finished")
	}
	b.count(t, "zombie", 0)
	if !b.finish(t, owner, b.writes("owner")).Held {
		t.Error("the owner could not finish")
	}
	if b.finish(t, zombie, b.writes("zombie")).Held {
		t.Error("a fenced attempt finished after the owner")
	}
	b.count(t, "zombie", 0)
	b.count(t, "owner", 1)
}

func checkFinish[Tx any](t *testing.T, b *txBench[Tx]) {
	req := request("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	_, err := b.tx.Finish(b.ctx, owner, func(ctx context.Context, tx Tx) (*onlyonce.Answer, error) {
		return nil, errors.Join(b.Write(ctx, tx, "k"), errBusiness)
	})
	if !errors.Is(err, errBusiness) {
		t.Errorf("the handler's error must come back as it is, got %v", err)
	}
	b.count(t, "k", 0)
	if rec := b.get(t, req.Key); rec.State != onlyonce.InProgress {
		t.Errorf("a rolled-back finish changed the key to %q", rec.State)
	}
	if s := b.finish(t, owner, b.writes("k")); !s.Held || !s.ExpiresAt.Equal(b.clock.Now().Add(retention)) {
		t.Errorf("finish: %+v", s)
	}
	b.count(t, "k", 1)
	b.want(t, again(req), onlyonce.Replay)
}

func checkFinishRepeat[Tx any](t *testing.T, b *txBench[Tx]) {
	req := request("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	first := b.finish(t, owner, b.writes("k"))
	b.clock.Advance(time.Minute)
	if s := b.finish(t, owner, b.writes("k")); !s.Held || !s.ExpiresAt.Equal(first.ExpiresAt) {
		t.Errorf("repeated finish: %+v, want %+v", s, first)
	}
	b.count(t, "k", 1)
	// Business data is often unique: the second write would fail on the first.
	s := b.finish(t, owner, func(context.Context, Tx) (*onlyonce.Answer, error) { return nil, errBusiness })
	if !s.Held {
		t.Errorf("finish of a committed attempt: %+v", s)
	}
}

func checkCompleteTx[Tx any](t *testing.T, b *txBench[Tx]) {
	if b.Do == nil {
		t.Skip("not given: a transaction of the caller's own")
	}
	req := request("k")
	zombie := b.want(t, req, onlyonce.Won).Record.Owner()
	b.clock.Advance(lease)
	owner := b.want(t, again(req), onlyonce.Resumed).Record.Owner()
	for name, o := range map[string]onlyonce.Owner{"zombie": zombie, "owner": owner} {
		var s onlyonce.Settled
		err := b.Do(b.ctx, b.Instance, func(tx Tx) error {
			var err error
			if err = b.Write(b.ctx, tx, name); err != nil {
				return err
			}
			if s, err = b.tx.CompleteTx(b.ctx, tx, o, created()); err != nil || s.Held {
				return err
			}
			return errBusiness
		})
		if held := name == "owner"; s.Held != held || (err == nil) != held {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	b.count(t, "zombie", 0)
	b.count(t, "owner", 1)
	if c := b.want(t, again(req), onlyonce.Replay); string(c.Record.Answer.Body) != string(created().Body) {
		t.Errorf("replay: %q", c.Record.Answer.Body)
	}
}

// checkCompleteTxRepeat: the caller repeats its transaction, since it does not know
// what became of the first commit.
func checkCompleteTxRepeat[Tx any](t *testing.T, b *txBench[Tx]) {
	if b.Do == nil {
		t.Skip("not given: a transaction of the caller's own")
	}
	req := request("k")
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	var expires time.Time
	for try := range 3 {
		var s onlyonce.Settled
		err := b.Do(b.ctx, b.Instance, func(tx Tx) error {
			if err := b.Write(b.ctx, tx, "k"); err != nil {
				return err
			}
			var err error
			if s, err = b.tx.CompleteTx(b.ctx, tx, owner, created()); err != nil || s.Held {
				return err
			}
			return errBusiness
		})
		first := try == 0
		if s.Held != first || s.Earlier == first || (err == nil) != first {
			t.Errorf("try %d: %+v, %v", try, s, err)
		}
		if first {
			expires = s.ExpiresAt
		} else if !s.ExpiresAt.Equal(expires) {
			t.Errorf("try %d: expires %v, want %v", try, s.ExpiresAt, expires)
		}
	}
	b.count(t, "k", 1)
}
