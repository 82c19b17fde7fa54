package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
)

// Sweep does one batch of housekeeping. It decides abandoned attempts that a bounded
// look at the index finds and whose lease this handle has watched to its end; the
// first look at a key only begins to watch. What has expired DynamoDB deletes by
// itself, steps 90 days after their key, whatever the request says; with
// Config.SweepExpired it is deleted here, by reading a part of the table.
//
// Sweepers do not exclude each other: each decision is a conditional write, so that
// several only do the same work twice. A crash leaves what is not yet done. Config.Logger
// is told of an item that cannot be read, and is passed over.
func (s *Store) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	if err := req.Validate(); err != nil {
		return onlyonce.SweepResult{}, err
	}
	b := batch{store: s, req: req, now: s.now()}
	err := b.abandoned(ctx)
	if err == nil && s.sweeps {
		err = b.scan(ctx)
	}
	return b.res, err
}

// batch is one Sweep.
type batch struct {
	store *Store
	req   onlyonce.SweepRequest
	now   time.Time
	res   onlyonce.SweepResult
}

const opSweep = "sweep"

// abandoned decides attempts as a takeover would.
func (b *batch) abandoned(ctx context.Context) error {
	s := b.store
	until := microsOf(b.now) - micros(b.req.Grace)
	found, err := s.look(ctx, looking{op: opSweep, by: &s.sweep, until: until, limit: max(b.req.Limit, 100)})
	if err != nil {
		return err
	}
	for _, c := range found {
		r, err := s.loadCandidate(ctx, opSweep, c)
		if errors.Is(err, errDamaged) {
			s.damaged(ctx, opSweep, err)
			continue
		}
		if err != nil {
			return err
		}
		if !r.found || r.State != onlyonce.InProgress || !s.over(r, b.req.Grace) {
			continue
		}
		if b.res.Freed+b.res.Parked == b.req.Limit {
			b.res.More = true
			return nil
		}
		if err := b.decide(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// decide frees what has left no effect and puts in doubt what may have. Somebody who
// was there first has decided.
func (b *batch) decide(ctx context.Context, old row) error {
	reason := ""
	switch old.Abandon {
	case onlyonce.AbandonHold:
		reason = onlyonce.ReasonAbandoned
	case onlyonce.AbandonResume:
		reason = old.trace()
	case onlyonce.AbandonRerun:
	}
	next, count := parked(old, reason), &b.res.Parked
	if reason == "" {
		next, count = b.store.freed(old, onlyonce.ReasonSweptFree), &b.res.Freed
	}
	done, _, err := b.store.apply(ctx, write{op: opSweep, old: old, next: next}, nil)
	if done {
		*count++
	}
	return err
}

// reader remembers how far a table has been read.
type reader struct {
	mu   sync.Mutex
	from attributes
}

// maxPages bounds how much of the table one Sweep reads: a page has 1 MB at most.
const maxPages = 16

// scan reads on through the table and deletes what has expired.
func (b *batch) scan(ctx context.Context) error {
	r := &b.store.read
	r.mu.Lock()
	defer r.mu.Unlock()
	for range maxPages {
		in := &dynamodb.ScanInput{TableName: &b.store.table, ExclusiveStartKey: r.from, ConsistentRead: aws.Bool(true)}
		out, err := call(ctx, reading(opSweep), b.store.client.Scan, in)
		if err != nil {
			return err
		}
		for _, item := range out.Items {
			err := b.item(ctx, item)
			if errors.Is(err, errDamaged) {
				b.store.damaged(ctx, opSweep, err)
				continue
			}
			if err != nil {
				return err
			}
		}
		if b.res.More {
			return nil // the same page again
		}
		r.from = out.LastEvaluatedKey
		if len(r.from) == 0 {
			r.from = nil
			return nil
		}
	}
	b.res.More = true
	return nil
}

// item looks at one item of the table.
func (b *batch) item(ctx context.Context, item attributes) error {
	name, _ := item["sk"].(*types.AttributeValueMemberS)
	switch {
	case name == nil:
		return nil
	case name.Value == recordName:
		return b.record(ctx, item)
	case strings.HasPrefix(name.Value, lifePrefix):
		return b.deadSteps(ctx, item)
	default:
		return b.outlived(ctx, item)
	}
}

// record deletes the record of a key that has expired; its steps are kept apart.
func (b *batch) record(ctx context.Context, item attributes) error {
	old, err := decoded(opSweep, item)
	if err != nil || !old.Expired(b.now) {
		return err
	}
	if b.res.Deleted == b.req.Limit {
		b.res.More = true
		return nil
	}
	kept := old
	var gone []*value
	kept.steps, gone = b.outlive(old.steps)
	if err := b.store.archive(ctx, opSweep, kept); err != nil {
		return err
	}
	done, _, err := b.store.apply(ctx, write{op: opSweep, old: old, next: old, remove: true}, nil)
	if _, stale := asStale(err); stale {
		return nil // whoever holds its resource has to do with it just now
	}
	if done {
		b.res.Deleted++
		b.res.Steps += len(old.steps) - len(kept.steps)
		b.store.drop(ctx, old.Key, gone...)
	}
	return err
}

// outlive parts steps that are kept from those that have outlived their retention,
// and gives the values of these.
func (b *batch) outlive(steps []step) (kept []step, gone []*value) {
	before, left := microsOf(b.now)-micros(b.req.StepRetention), b.req.Limit-b.res.Steps
	for _, st := range steps {
		switch {
		case st.Changed >= before:
			kept = append(kept, st)
		case left == 0:
			b.res.More = true
			kept = append(kept, st)
		default:
			left--
			gone = append(gone, st.Request, st.Result)
		}
	}
	return kept, gone
}

// life is the item of the steps of a life that is over.
type life struct {
	PK    string `dynamodbav:"pk"`
	SK    string `dynamodbav:"sk"`
	Scope string `dynamodbav:"scope"`
	Key   string `dynamodbav:"key"`
	Steps []step `dynamodbav:"steps"`
	TTL   int64  `dynamodbav:"ttl"`
}

// archive keeps the steps of a life that is over, for as long as steps are kept by
// default. Repeating it is harmless.
func (s *Store) archive(ctx context.Context, op string, r row) error {
	if len(r.steps) == 0 {
		return nil
	}
	l := life{
		PK: keyPartition(r.Key.Digest()), SK: fmt.Sprintf("%s%020d", lifePrefix, r.Origin), Scope: r.Key.Scope, Key: r.Key.Value,
		Steps: r.steps, TTL: stepsUntil(r.steps, onlyonce.FreedStepRetention).Add(ttlSlack).Unix() + 1,
	}
	return s.putLife(ctx, op, l)
}

func (s *Store) putLife(ctx context.Context, op string, l life) error {
	item, err := attributevalue.MarshalMap(l)
	if err != nil {
		return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Err: err}
	}
	_, err = call(ctx, writing(op), s.client.PutItem, &dynamodb.PutItemInput{TableName: &s.table, Item: item})
	return err
}

// deadSteps deletes steps of a life that is over and that have outlived their
// retention. Nobody else writes them.
func (b *batch) deadSteps(ctx context.Context, item attributes) error {
	var l life
	if err := attributevalue.UnmarshalMap(item, &l); err != nil {
		return fmt.Errorf("read item %s: %w: %w", nameOf(item), errDamaged, err)
	}
	all := len(l.Steps)
	var gone []*value
	l.Steps, gone = b.outlive(l.Steps)
	if len(l.Steps) == all {
		return nil
	}
	s := b.store
	if len(l.Steps) > 0 {
		if err := s.putLife(ctx, opSweep, l); err != nil {
			return err
		}
	} else if _, err := call(ctx, writing(opSweep), s.client.DeleteItem, &dynamodb.DeleteItemInput{TableName: &s.table, Key: primaryKey(l.PK, l.SK)}); err != nil {
		return err
	}
	b.res.Steps += all - len(l.Steps)
	s.drop(ctx, onlyonce.Key{Scope: l.Scope, Value: l.Key}, gone...)
	return nil
}

// outlived deletes any other item whose time is over.
func (b *batch) outlived(ctx context.Context, item attributes) error {
	ttl, ok := item["ttl"].(*types.AttributeValueMemberN)
	if !ok {
		return nil
	}
	if end, err := strconv.ParseInt(ttl.Value, 10, 64); err != nil || end > b.now.Unix() {
		return nil //nolint:nilerr // no number: not of this store's making
	}
	in := &dynamodb.DeleteItemInput{
		TableName: &b.store.table, Key: attributes{"pk": item["pk"], "sk": item["sk"]},
		ConditionExpression: aws.String("#ttl = :ttl"), ExpressionAttributeNames: map[string]string{"#ttl": "ttl"},
		ExpressionAttributeValues: attributes{":ttl": ttl},
	}
	_, err := call(ctx, writing(opSweep), b.store.client.DeleteItem, in)
	if codeOf(err) == codeRefused {
		return nil
	}
	return err
}
