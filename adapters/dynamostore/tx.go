package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
)

// Tx collects a caller's writes, in any tables of the account and region, which are
// sent together with the store's own in one TransactWriteItems when the function it
// was given to has returned. It is safe for concurrent use by that function.
//
// Nothing is read in it: read with a client of your own, consistently, and repeat in
// a condition of the write what was relied upon. Use Check for what is only relied
// upon. No two writes may be of the same item, and none of the store's own. There
// is room for 96 writes: the store adds one to four.
type Tx struct {
	store *Store
	// own: it is the caller's own transaction, by Do.
	own bool

	mu          sync.Mutex
	ended       bool
	items       []types.TransactWriteItem
	completions []*txCompletion
}

// Store is the store the transaction is on.
func (t *Tx) Store() *Store { return t.store }

// maxWrites is how many writes a caller may add.
const maxWrites = maxItems - 4

// Put adds a PutItem. The error is that of Append.
func (t *Tx) Put(p *types.Put) error { return t.Append(types.TransactWriteItem{Put: p}) }

// Update adds an UpdateItem. The error is that of Append.
func (t *Tx) Update(u *types.Update) error { return t.Append(types.TransactWriteItem{Update: u}) }

// Delete adds a DeleteItem. The error is that of Append.
func (t *Tx) Delete(d *types.Delete) error { return t.Append(types.TransactWriteItem{Delete: d}) }

// Check adds a condition on an item that is not written. The error is that of Append.
func (t *Tx) Check(c *types.ConditionCheck) error {
	return t.Append(types.TransactWriteItem{ConditionCheck: c})
}

// Append adds writes. The error is CodeConfig when there are too many for one
// transaction, and onlyonce.ErrTxEnded when the transaction's function has returned;
// nothing is added then.
func (t *Tx) Append(items ...types.TransactWriteItem) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return t.hasEnded("add write")
	}
	if len(t.items)+len(items) > maxWrites {
		return configError("transaction", "has room for %d writes, got %d: write fewer", maxWrites, len(t.items)+len(items))
	}
	t.items = append(t.items, items...)
	return nil
}

// hasEnded is the error of what comes when the transaction's function has returned.
func (t *Tx) hasEnded(op string) error {
	return &onlyonce.Error{Code: onlyonce.CodeTxEnded, Op: op, Hint: "write before the transaction's function returns"}
}

// end gives what was collected; nothing is added any more.
func (t *Tx) end() ([]types.TransactWriteItem, []*txCompletion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	return t.items, t.completions
}

// collect runs fn and gives its result and its writes. A context that has ended counts
// as fn's failure: nothing has been sent.
func collect[T any](ctx context.Context, s *Store, fn func(context.Context, *Tx) (T, error)) (result T, with []types.TransactWriteItem, err error) {
	tx := &Tx{store: s}
	defer tx.end() // also when fn panics
	got, err := fn(ctx, tx)
	if err != nil {
		return result, nil, err
	}
	if err := ctx.Err(); err != nil {
		return result, nil, fmt.Errorf("run transaction: %w", err)
	}
	with, _ = tx.end()
	return got, with, nil
}

// Atomic claims the key, runs fn and completes, in one TransactWriteItems that is sent
// when fn has returned. Nobody sees the claim before: transactions of one key run side
// by side, and one of them commits. Another's fn has then run for nothing; its
// caller is told what stands, or ErrConflict. A crash leaves nothing.
//
// When a condition of fn's own writes fails, everything is rolled back and the error
// is a *RefusedError that has DynamoDB's reasons.
func (s *Store) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[*Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	if err := errors.Join(checkClaim(req), req.ValidateAtomic()); err != nil {
		return onlyonce.Claim{}, onlyonce.Settled{}, err
	}
	a := &transacting{store: s, req: req, done: completing{store: s}}
	old, err := s.load(ctx, opAtomic, req.Key)
	if err != nil {
		return onlyonce.Claim{}, onlyonce.Settled{}, err
	}
	if decided, err := a.open(ctx, old); decided || err != nil {
		return a.claim, onlyonce.Settled{}, err
	}
	answer, with, err := collect(ctx, s, fn)
	if err != nil || answer == nil {
		return a.claim, onlyonce.Settled{}, err
	}
	a.done.answer = *answer
	err = s.changeFrom(ctx, changing{op: opAtomic, key: req.Key, old: old, with: with}, a.decide)
	settled, err := a.done.end(ctx, err)
	return a.claim, settled, err
}

const opAtomic = "run transaction"

// transacting is an Atomic on its way.
type transacting struct {
	store   *Store
	req     onlyonce.ClaimRequest
	claim   onlyonce.Claim
	expired *holder
	done    completing
	// sent: a write was decided upon before, and has met another.
	sent bool
}

// open decides whether fn is to run.
func (a *transacting) open(ctx context.Context, old row) (decided bool, err error) {
	s := a.store
	j := s.judge(old, a.req)
	if !j.verdict.Owns() {
		a.claim, decided, err = s.told(ctx, opAtomic, j)
		return decided, err
	}
	if j.resource != "" && !old.Holds {
		if busy, err := a.meetHolder(ctx, j); busy || err != nil {
			return busy, err
		}
	}
	a.claimed(j)
	return false, nil
}

// meetHolder decides by who holds the resource that the key had before it was freed.
// Where the key's row has changed meanwhile, the commit will tell.
func (a *transacting) meetHolder(ctx context.Context, j judged) (busy bool, err error) {
	s := a.store
	h, held, err := s.holderOf(ctx, opAtomic, a.req.Key.Scope, j.resource)
	if err != nil || !held {
		return false, err
	}
	if s.holdsNothing(h) {
		a.expired = &h
		return false, nil
	}
	current, err := s.load(ctx, opAtomic, a.req.Key)
	if err != nil || current.writer != j.row.writer {
		return false, err
	}
	a.claim = s.resourceBusy(h)
	return true, nil
}

// claimed is the row that the claim makes of the one that was judged; it is never
// written as it is.
func (a *transacting) claimed(j judged) row {
	next := j.row
	a.claim = onlyonce.Claim{Verdict: j.verdict, Remaining: j.remaining()}
	if j.write {
		next = claimed(a.req, j)
		a.claim.Remaining = next.lease
	}
	if j.verdict == onlyonce.Resumed {
		a.claim.From = next.from
	}
	a.claim.Record = next.shared()
	return next
}

// decide completes the row, if the claim still stands. Somebody else's answer, or
// claim, is told as it is; where the claim could be made again, fn has to run again.
func (a *transacting) decide(ctx context.Context, old row) (*write, error) {
	s := a.store
	j := s.judge(old, a.req)
	a.done.settled = onlyonce.Settled{}
	switch {
	case !j.verdict.Owns():
		var err error
		a.claim, _, err = s.told(ctx, opAtomic, j)
		return nil, err
	case j.write && a.sent:
		return nil, &onlyonce.Error{Code: onlyonce.CodeConflict, Op: opAtomic, Hint: "the key was changed while the transaction was open; everything was rolled back"}
	}
	a.sent = true
	if j.write && j.verdict == onlyonce.Won && old.found {
		if err := s.archive(ctx, opAtomic, old); err != nil {
			return nil, err
		}
	}
	next := a.claimed(j)
	a.done.owner = next.Owner()
	next, err := a.done.row(ctx, next)
	if err != nil {
		return nil, err
	}
	a.done.settled = onlyonce.Settled{Held: true, ExpiresAt: next.ExpiresAt}
	a.claim.Record = next.shared()
	a.claim.Record.Answer, err = asStored(a.done.answer)
	return &write{next: next, guard: j.resource, expired: a.expired}, err
}

// Finish runs fn and completes the owner's key, in one TransactWriteItems; see Atomic.
// fn does not run when the owner has lost the key, or when an earlier Finish has
// committed. A renewal of the lease beside it does no harm.
func (s *Store) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[*Tx]) (onlyonce.Settled, error) {
	const op = "finish key"
	old, err := s.load(ctx, op, owner.Key)
	if err != nil {
		return onlyonce.Settled{}, err
	}
	if settled := standingAnswer(old, owner); settled.Held || !old.completable(owner) {
		return settled, nil
	}
	answer, with, err := collect(ctx, s, fn)
	if err != nil || answer == nil {
		return onlyonce.Settled{}, err
	}
	c := completing{store: s, owner: owner, answer: *answer}
	err = s.changeFrom(ctx, changing{op: op, key: owner.Key, old: old, with: with}, c.decide)
	return c.end(ctx, err)
}

// txCompletion is a completion that comes with the caller's transaction, and the row
// it was judged by.
type txCompletion struct {
	completing
	old row
}

// CompleteTx completes the owner's key with the caller's own transaction, which must
// be one of Do; onlyonce.ErrTxEnded means that its function has returned. When Held is
// false, or an error is returned, the caller must return an error from there:
// Settled.Earlier tells that an earlier transaction of this owner has completed the
// key, so that what this one writes is there already. Of several completions of one key
// in a transaction the first stands.
func (s *Store) CompleteTx(ctx context.Context, tx *Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	if !tx.own || tx.store != s {
		return onlyonce.Settled{}, configError("tx", "must be one that Do of this store has begun")
	}
	old, err := s.load(ctx, opComplete, owner.Key)
	if err != nil {
		return onlyonce.Settled{}, err
	}
	if before := standingAnswer(old, owner); before.Held {
		return onlyonce.Settled{Earlier: true, ExpiresAt: before.ExpiresAt}, nil
	}
	c := &txCompletion{completing: completing{store: s, owner: owner, answer: answer}, old: old}
	if w, err := c.decide(ctx, old); err != nil || w == nil {
		return c.end(ctx, err)
	}
	settled, used, err := tx.complete(c)
	if !used {
		s.dropAnswer(ctx, owner.Key, c.stored)
	}
	return settled, err
}

// complete adds a completion, unless the key has one already or the transaction has
// ended.
func (t *Tx) complete(c *txCompletion) (settled onlyonce.Settled, used bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return onlyonce.Settled{}, false, t.hasEnded(opComplete)
	}
	at := slices.IndexFunc(t.completions, func(before *txCompletion) bool { return before.owner.Key == c.owner.Key })
	if at >= 0 {
		return t.completions[at].settled, false, nil
	}
	t.completions = append(t.completions, c)
	return c.settled, true, nil
}

// Do runs fn as a transaction of the caller's own and sends what it has collected,
// unless fn returns an error. The error is ErrConflict, and nothing has happened, when
// a key that CompleteTx was to complete has been taken over or settled meanwhile, or
// when other transactions were in the way each time it was sent; *RefusedError when a
// condition of the caller's did not hold; ErrUncertain when nobody knows. Then all of
// it must be repeated: CompleteTx tells whether it has happened. Without a completion
// nothing does, and what is not safe to write twice needs a condition.
func (s *Store) Do(ctx context.Context, fn func(tx *Tx) error) error {
	tx := &Tx{store: s, own: true}
	defer tx.end() // also when fn panics
	err := fn(tx)
	items, completions := tx.end()
	if err == nil && len(items)+len(completions) > 0 {
		err = s.commit(ctx, items, completions)
	}
	if err != nil && !errors.Is(err, onlyonce.ErrUncertain) {
		for _, c := range completions {
			s.dropAnswer(ctx, c.owner.Key, c.stored)
		}
	}
	return err
}

const opCommit = "commit transaction"

// commit sends a caller's transaction with its completions, again if a row was
// changed that is still its owner's: a lease was renewed.
func (s *Store) commit(ctx context.Context, with []types.TransactWriteItem, completions []*txCompletion) error {
	for try := range maxTries {
		t := transaction{op: opCommit, with: with}
		var writes []write
		for _, c := range completions {
			w, err := c.again(ctx)
			if err != nil {
				return err
			}
			ours, err := s.items(w)
			if err != nil {
				return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: opCommit, Err: err}
			}
			t.ours, writes = append(t.ours, ours), append(writes, w)
		}
		_, err := s.transact(ctx, t)
		if err == nil {
			for _, w := range writes {
				s.settled(ctx, w)
			}
			return nil
		}
		if goOn, err := s.reread(ctx, completions, err); !goOn {
			return err
		}
		if err := pause(ctx, opCommit, try); err != nil {
			return err
		}
	}
	return conflict(opCommit, nil)
}

// again is the completion of the row as it was last read.
func (c *txCompletion) again(ctx context.Context) (write, error) {
	if !c.old.completable(c.owner) {
		return write{}, &onlyonce.Error{Code: onlyonce.CodeConflict, Op: opCommit, Hint: "the key was changed while the transaction was open; everything was rolled back"}
	}
	next, err := c.row(ctx, c.old)
	next.rev, next.writer = c.old.rev+1, newWriter()
	return write{op: opCommit, old: c.old, next: next}, err
}

// reread reads the rows of a transaction that was cancelled; false if it is no use to
// send it again.
func (s *Store) reread(ctx context.Context, completions []*txCompletion, why error) (bool, error) {
	_, stale := asStale(why)
	_, refused := errors.AsType[*RefusedError](why)
	if onlyonce.CodeOf(why) == onlyonce.CodeConflict {
		return true, why
	}
	if !stale && !refused {
		return false, why
	}
	changed := false
	for _, c := range completions {
		current, err := s.load(ctx, opCommit, c.owner.Key)
		if err != nil {
			return false, err
		}
		changed = changed || current.writer != c.old.writer
		c.old = current
	}
	return changed || stale, why
}
