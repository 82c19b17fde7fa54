package dynamostore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
)

const (
	// maxTries is how often a key is decided upon anew because others write it.
	maxTries = 40
	// conflictTries is how often a write is sent again that has met a transaction.
	conflictTries = 8
)

// write is one conditional change of a key's row, and what goes with it.
type write struct {
	op string
	// old is the row as it was read: the condition. next takes its place.
	old, next row
	// remove deletes the row instead.
	remove bool
	// guard names a resource that no other key may hold, where next is not to
	// hold it either.
	guard string
	// expired is who still holds next's resource and has expired: it lets go.
	expired *holder
}

// staleError is a write that was refused because a row is not as it was read, or
// because somebody else holds the resource. Nothing has happened.
type staleError struct {
	key bool // the key's row has changed
}

func (e *staleError) Error() string { return "the item is not as it was read" }

func asStale(err error) (*staleError, bool) { return errors.AsType[*staleError](err) }

// load reads a key's row. A row of another key under the same digest is an error:
// it must never be answered from, nor be written over.
func (s *Store) load(ctx context.Context, op string, key onlyonce.Key) (row, error) {
	r, err := s.loadDigest(ctx, op, key.Digest())
	if err == nil && r.found && r.Key != key {
		return row{}, &onlyonce.Error{
			Code: onlyonce.CodeStoreUnavailable, Op: op, Err: errDamaged,
			Hint: "the item " + key.Operation() + " belongs to another key: the digests of two keys are equal, or the table was changed by hand",
		}
	}
	return r, err
}

func (s *Store) loadDigest(ctx context.Context, op string, d onlyonce.Digest) (row, error) {
	in := &dynamodb.GetItemInput{TableName: &s.table, Key: primaryKey(keyPartition(d), recordName), ConsistentRead: aws.Bool(true)}
	out, err := call(ctx, reading(op), s.client.GetItem, in)
	if err != nil {
		return row{}, err
	}
	return decoded(op, out.Item)
}

func decoded(op string, item attributes) (row, error) {
	r, err := decode(item)
	if err != nil {
		return row{}, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Err: err}
	}
	return r, nil
}

// incomplete is the error of a row a value of which is gone; nil when the row has
// changed meanwhile, which is why.
func (s *Store) incomplete(ctx context.Context, op string, r row) error {
	current, err := s.load(ctx, op, r.Key)
	if err != nil || !current.found || current.writer != r.writer {
		return err
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeStoreUnavailable, Op: op, Hint: "the table was changed by hand, or restored in part",
		Err: fmt.Errorf("read item %s: %w: %w", keyPartition(r.Key.Digest()), errDamaged, errPartMissing),
	}
}

// decideFunc says what is to become of a row: nil for nothing.
type decideFunc func(ctx context.Context, old row) (*write, error)

// change reads a key's row, has it decided upon and writes what was decided, again
// if the row was changed in between.
func (s *Store) change(ctx context.Context, op string, key onlyonce.Key, decide decideFunc) error {
	c := changing{op: op, key: key}
	if c.old, c.remembered = s.recent.get(key.Digest()); !c.remembered {
		var err error
		if c.old, err = s.load(ctx, op, key); err != nil {
			return err
		}
	}
	return s.changeFrom(ctx, c, decide)
}

// changing is a row that was read, and what a caller writes with its change.
type changing struct {
	op   string
	key  onlyonce.Key
	old  row
	with []types.TransactWriteItem
	// remembered: the row was not read. It may be written upon, since that is
	// conditional, and proves nothing else.
	remembered bool
}

func (s *Store) changeFrom(ctx context.Context, c changing, decide decideFunc) error {
	for try := range maxTries {
		w, err := decide(ctx, c.old)
		if err == nil && w == nil && c.remembered {
			c.remembered = false
			if c.old, err = s.load(ctx, c.op, c.key); err == nil {
				w, err = decide(ctx, c.old)
			}
		}
		if err != nil || w == nil {
			return err
		}
		w.op, w.old = c.op, c.old
		done, current, err := s.apply(ctx, *w, c.with)
		if err != nil {
			current, err = s.blamed(ctx, c, err)
		}
		if err != nil || done {
			return err
		}
		c.old, c.remembered = current, false
		if err := pause(ctx, c.op, try); err != nil {
			return err
		}
	}
	return conflict(c.op, nil)
}

// blamed reads the row again when something other than it was refused: the row
// comes first. The error is what stands in the way all the same.
func (s *Store) blamed(ctx context.Context, c changing, err error) (row, error) {
	_, stale := asStale(err)
	_, refused := errors.AsType[*RefusedError](err)
	if !stale && !refused {
		return row{}, err
	}
	current, lerr := s.load(ctx, c.op, c.key)
	switch {
	case lerr != nil:
		return row{}, lerr
	case refused && current.writer == c.old.writer:
		return row{}, err
	default:
		return current, nil
	}
}

// apply writes w together with the caller's writes. When the row had changed it
// gives the one that stands; a write that was repeated by the SDK and finds itself
// is done. Who holds the resource is the caller's question: *staleError.
func (s *Store) apply(ctx context.Context, w write, with []types.TransactWriteItem) (done bool, current row, err error) {
	w.next.rev, w.next.writer = w.old.rev+1, newWriter()
	for try := range conflictTries {
		item, err := s.send(ctx, w, with)
		stale, isStale := asStale(err)
		switch {
		case err == nil:
			s.settled(ctx, w)
			return true, w.next, nil
		case isStale && !stale.key:
			return false, w.old, err
		case isStale:
			return s.standing(ctx, w, item)
		case onlyonce.CodeOf(err) != onlyonce.CodeConflict:
			return false, row{}, err
		}
		if perr := pause(ctx, w.op, try); perr != nil {
			return false, row{}, perr
		}
	}
	return false, row{}, conflict(w.op, nil)
}

// newWriter marks one write, and its repeats.
func newWriter() string { return rand.Text() }

// standing reads the row that a write has met, unless the server has sent it. Where
// it cannot be read nobody knows whose it is: the write may have been carried out,
// and refused when the SDK repeated it.
func (s *Store) standing(ctx context.Context, w write, item attributes) (bool, row, error) {
	key := w.key()
	current, err := decoded(w.op, item)
	if err == nil && !current.found {
		current, err = s.load(ctx, w.op, key)
	}
	if errors.Is(err, errDamaged) {
		return false, row{}, err // whatever stands there is not what was to be written
	}
	if err != nil {
		return false, row{}, &onlyonce.Error{Code: onlyonce.CodeUncertain, Op: w.op, Hint: "what stands could not be read", Err: err}
	}
	if current.found && current.writer == w.next.writer {
		s.settled(ctx, w)
		return true, current, nil
	}
	return false, current, nil
}

func (w write) key() onlyonce.Key {
	if w.old.found {
		return w.old.Key
	}
	return w.next.Key
}

// settled notes what this handle has written: its own claims and renewals count as
// seen, and what nothing refers to any more goes.
func (s *Store) settled(ctx context.Context, w write) {
	if w.remove {
		s.watch.Forget(w.old.Key.Digest())
		s.recent.note(w.old.Key.Digest(), row{})
	} else {
		s.seen(w.next)
		s.seenSteps(w.next)
		s.recent.note(w.next.Key.Digest(), w.next)
	}
	next := w.next
	if w.remove {
		next = row{}
	}
	if w.old.found && (w.remove || next.Origin != w.old.Origin) {
		next.steps = append(slices.Clone(next.steps), w.old.steps...) // they are kept apart
	}
	if w.old.found {
		s.dropUnused(ctx, w.old, next)
	}
	if !w.remove && next.State == onlyonce.Completed {
		s.expireSteps(ctx, w.next)
	}
}

// seen has the handle watch a key in progress, and forget any other; it tells how
// much of the lease is left to watch.
func (s *Store) seen(r row) time.Duration {
	if r.State == onlyonce.InProgress {
		return s.watch.Remaining(r.sight())
	}
	s.watch.Forget(r.Key.Digest())
	return 0
}

// send sends a write: by itself, or as a transaction when it is of more than one
// item. Of a write that was refused it gives the item that stood in the way, if the
// server has sent it.
func (s *Store) send(ctx context.Context, w write, with []types.TransactWriteItem) (attributes, error) {
	ours, err := s.items(w)
	if err != nil {
		return nil, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: w.op, Err: err}
	}
	if len(with) > 0 || len(ours) > 1 {
		return s.transact(ctx, transaction{op: w.op, with: with, ours: [][]types.TransactWriteItem{ours}})
	}
	if d := ours[0].Delete; d != nil {
		_, err = call(ctx, writing(w.op), s.client.DeleteItem, &dynamodb.DeleteItemInput{
			TableName: d.TableName, Key: d.Key, ConditionExpression: d.ConditionExpression,
			ExpressionAttributeNames: d.ExpressionAttributeNames, ExpressionAttributeValues: d.ExpressionAttributeValues,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
	} else {
		p := ours[0].Put
		_, err = call(ctx, writing(w.op), s.client.PutItem, &dynamodb.PutItemInput{
			TableName: p.TableName, Item: p.Item, ConditionExpression: p.ConditionExpression,
			ExpressionAttributeNames: p.ExpressionAttributeNames, ExpressionAttributeValues: p.ExpressionAttributeValues,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
	}
	if refused, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return refused.Item, &staleError{key: true}
	}
	return nil, err
}

// items are the writes that w is made of, the key's own first.
func (s *Store) items(w write) ([]types.TransactWriteItem, error) {
	c := unchanged(w.old)
	var own types.TransactWriteItem
	if w.remove {
		own.Delete = &types.Delete{
			TableName: &s.table, Key: primaryKey(keyPartition(w.old.Key.Digest()), recordName),
			ConditionExpression: c.expression, ExpressionAttributeNames: c.names, ExpressionAttributeValues: c.values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}
	} else {
		item, err := w.next.encode()
		if err != nil {
			return nil, err
		}
		own.Put = &types.Put{
			TableName: &s.table, Item: item,
			ConditionExpression: c.expression, ExpressionAttributeNames: c.names, ExpressionAttributeValues: c.values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}
	}
	holders, err := s.holderItems(w)
	return append([]types.TransactWriteItem{own}, holders...), err
}

// condition is an expression that must hold of an item.
type condition struct {
	expression *string
	names      map[string]string
	values     attributes
}

// unchanged holds of the item that a row was read from, as long as nobody has
// written it. The revision alone would do; fence, token, state and renewal are what
// the contract is about.
func unchanged(old row) condition {
	if !old.found {
		return condition{expression: aws.String("attribute_not_exists(#pk)"), names: map[string]string{"#pk": "pk"}}
	}
	return condition{
		expression: aws.String("#fence = :fence AND #attempt = :attempt AND #state = :state AND #renewal = :renewal AND #rev = :rev"),
		names: map[string]string{
			"#fence": "fence", "#attempt": "attempt", "#state": "state", "#renewal": "renewal", "#rev": "rev",
		},
		values: attributes{
			":fence": number(old.Fence), ":attempt": bytesOf(old.Attempt[:]), ":state": text(string(old.State)),
			":renewal": number(old.renewal), ":rev": number(old.rev),
		},
	}
}

// pause waits a little before another try, longer each time.
func pause(ctx context.Context, op string, try int) error {
	limit := min(time.Millisecond<<min(try, 10), 100*time.Millisecond)
	t := time.NewTimer(time.Duration(mathrand.Int64N(int64(limit)) + 1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", op, ctx.Err())
	}
}

// transaction is one TransactWriteItems: a caller's writes, then ours, by write.
type transaction struct {
	op   string
	with []types.TransactWriteItem
	ours [][]types.TransactWriteItem
}

// maxItems is DynamoDB's limit of a transaction.
const maxItems = 100

// transact sends a transaction. A *staleError means that a condition of ours
// failed, a *RefusedError that only the caller's did; nothing has happened then.
//
// The request has a name drawn for it alone, under which the server does not carry it
// out a second time for ten minutes: the SDK's repeats are harmless, and two
// transactions that write the same are two.
func (s *Store) transact(ctx context.Context, t transaction) (attributes, error) {
	items := slices.Concat(t.with, slices.Concat(t.ours...))
	if len(items) > maxItems {
		return nil, configError("transaction", "has %d items with the store's own %d, DynamoDB takes %d: write fewer", len(items), len(items)-len(t.with), maxItems)
	}
	in := &dynamodb.TransactWriteItemsInput{TransactItems: items, ClientRequestToken: aws.String(rand.Text())}
	_, err := call(ctx, writing(t.op), s.client.TransactWriteItems, in)
	if cancelled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		return t.cancelled(cancelled)
	}
	switch codeOf(err) {
	case codeMismatch: // another request bears this name: nobody knows its fate
		return nil, &onlyonce.Error{Code: onlyonce.CodeUncertain, Op: t.op, Err: err}
	case codeInvalid:
		return nil, &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: t.op, Err: err,
			Hint: "DynamoDB refuses the transaction as it is: it takes each item once, 100 items and 4 MB in all, 400 KB an item",
		}
	}
	return nil, err
}

// cancelled says who cancelled a transaction. The server need not name all that
// stood in its way: a refusal of the caller's write alone does not prove that the
// key's row is as it was.
func (t transaction) cancelled(err *types.TransactionCanceledException) (attributes, error) {
	reasons := err.CancellationReasons
	at := len(t.with)
	for _, ours := range t.ours {
		for i := range ours {
			if at+i < len(reasons) && aws.ToString(reasons[at+i].Code) == "ConditionalCheckFailed" {
				return reasons[at+i].Item, &staleError{key: i == 0}
			}
		}
		at += len(ours)
	}
	for _, r := range reasons {
		switch code := aws.ToString(r.Code); code {
		case "TransactionConflict":
			return nil, conflict(t.op, err)
		case "ThrottlingError", "ProvisionedThroughputExceeded":
			return nil, refusal(t.op, "ThrottlingException", err)
		}
	}
	if len(t.with) == 0 {
		return nil, refusal(t.op, codeInvalid, err)
	}
	return nil, &RefusedError{Reasons: reasons[:min(len(t.with), len(reasons))], Err: err}
}

// RefusedError is a transaction that DynamoDB has cancelled because of what the
// caller wrote in it: a condition of the caller's own did not hold, an item is too
// large. Nothing of the transaction has happened; the key is as it was before.
type RefusedError struct {
	// Reasons has one entry for each write of the caller's, in their order; what
	// was not at fault has the code "None".
	Reasons []types.CancellationReason
	// Err is DynamoDB's error, a *types.TransactionCanceledException.
	Err error
}

// Error names the reasons' codes in the order of the writes.
func (e *RefusedError) Error() string {
	codes := make([]string, len(e.Reasons))
	for i, r := range e.Reasons {
		codes[i] = aws.ToString(r.Code)
	}
	return fmt.Sprintf("transaction cancelled because of its own writes %v: %v", codes, e.Err)
}

// Unwrap gives DynamoDB's error.
func (e *RefusedError) Unwrap() error { return e.Err }
