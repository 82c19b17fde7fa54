package dynamostore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce"
)

// List gives records in an order of the table's own, not that of digests. What is in
// doubt or in progress is found by the index, which lags by less than a second as a
// rule, and read again with strong consistency. Any other list reads through the
// table, a page of its own making at a time: dear where the table is large. Records
// that come and go between pages may be missed or seen. Config.Logger is told of one
// that cannot be read, and is passed over.
func (s *Store) List(ctx context.Context, filter onlyonce.ListFilter) (onlyonce.ListPage, error) {
	byIndex := filter.State == onlyonce.InDoubt || filter.State == onlyonce.InProgress
	after, err := parseCursor(filter.After, byIndex)
	if err != nil {
		return onlyonce.ListPage{}, err
	}
	l := listing{store: s, filter: filter, limit: filter.Limit, now: s.now()}
	if l.limit <= 0 {
		l.limit = 100
	}
	if byIndex {
		err = l.open(ctx, after)
	} else {
		err = l.all(ctx, after)
	}
	if err != nil {
		return onlyonce.ListPage{}, err
	}
	return l.page, nil
}

// cursor is a place in a list: behind a key. Only the index knows at.
type cursor struct {
	partition string
	at        int64
}

// parseCursor reads what String has written; the empty cursor is the beginning.
func parseCursor(text string, byIndex bool) (cursor, error) {
	if text == "" {
		return cursor{}, nil
	}
	digest, at, indexed := strings.Cut(text, ".")
	d, ok := parseDigest(digest)
	n, err := int64(0), error(nil)
	if indexed {
		n, err = strconv.ParseInt(at, 10, 64)
	}
	if !ok || err != nil || indexed != byIndex {
		return cursor{}, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "list keys", Hint: "the cursor is not one this store gave out for such a list", Err: err}
	}
	return cursor{partition: keyPartition(d), at: n}, nil
}

func parseDigest(text string) (onlyonce.Digest, bool) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(onlyonce.Digest{}) {
		return onlyonce.Digest{}, false
	}
	return onlyonce.Digest(b), true
}

// listing is a page in the making.
type listing struct {
	store  *Store
	filter onlyonce.ListFilter
	limit  int
	now    time.Time
	page   onlyonce.ListPage
	last   string // cursor of the page's last record
}

// add takes a row into the page, if it is asked for; true: the page is full, and the
// row belongs to the next one.
func (l *listing) add(ctx context.Context, r row, place string) (full bool, err error) {
	if !r.found || r.Expired(l.now) || (l.filter.State != "" && r.State != l.filter.State) || (l.filter.Scope != "" && r.Key.Scope != l.filter.Scope) {
		return false, nil
	}
	if len(l.page.Records) == l.limit {
		l.page.Next = l.last
		return true, nil
	}
	rec, err := l.store.answered(ctx, r)
	if errors.Is(err, errPartMissing) {
		return false, l.pass(ctx, l.store.incomplete(ctx, opList, r))
	}
	if err != nil {
		return false, err
	}
	l.page.Records, l.last = append(l.page.Records, rec), place
	return false, nil
}

const opList = "list keys"

// pass passes over what is damaged: the row is then not found.
func (l *listing) pass(ctx context.Context, err error) error {
	if !errors.Is(err, errDamaged) {
		return err
	}
	l.store.damaged(ctx, opList, err)
	return nil
}

// open lists by the index, one part after the other.
func (l *listing) open(ctx context.Context, after cursor) error {
	first := 0
	var from attributes
	if after.partition != "" {
		first = strings.IndexByte(parts, partOf(after.partition)[0])
		from = openKey(candidate(after))
	}
	for i := first; i < len(parts); i++ {
		for {
			page, err := l.store.open(ctx, opList, openQuery{part: parts[i], until: never, from: from, limit: l.limit + 1})
			if err != nil {
				return err
			}
			if full, err := l.candidates(ctx, page.found); full || err != nil {
				return err
			}
			if from = page.next; from == nil {
				break
			}
		}
	}
	return nil
}

func (l *listing) candidates(ctx context.Context, found []candidate) (bool, error) {
	for _, c := range found {
		r, err := l.store.loadCandidate(ctx, opList, c)
		if err = l.pass(ctx, err); err != nil {
			return false, err
		}
		place := fmt.Sprintf("%s.%d", strings.TrimPrefix(c.partition, "key#"), c.at)
		if full, err := l.add(ctx, r, place); full || err != nil {
			return full, err
		}
	}
	return false, nil
}

// all lists by reading through the table.
func (l *listing) all(ctx context.Context, after cursor) error {
	in := &dynamodb.ScanInput{
		TableName: &l.store.table, ConsistentRead: aws.Bool(true),
		FilterExpression:         aws.String("attribute_exists(#state)"),
		ExpressionAttributeNames: map[string]string{"#state": "state"},
	}
	if after.partition != "" {
		in.ExclusiveStartKey = primaryKey(after.partition, recordName)
	}
	for {
		out, err := call(ctx, reading(opList), l.store.client.Scan, in)
		if err != nil {
			return err
		}
		for _, item := range out.Items {
			r, err := decoded(opList, item)
			if err = l.pass(ctx, err); err != nil {
				return err
			}
			d := r.Key.Digest()
			if full, err := l.add(ctx, r, hex.EncodeToString(d[:])); full || err != nil {
				return err
			}
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			return nil
		}
	}
}

// auditItem is an operator's act, in the partition of its key.
type auditItem struct {
	PK     string `dynamodbav:"pk"`
	SK     string `dynamodbav:"sk"`
	Scope  string `dynamodbav:"scope"`
	Key    string `dynamodbav:"key"`
	Action string `dynamodbav:"action"`
	Actor  string `dynamodbav:"actor"`
	Reason string `dynamodbav:"why"`
	Fence  int64  `dynamodbav:"fence"`
	At     int64  `dynamodbav:"made"`
}

// AddAudit keeps an entry for good; its time is this process's. An entry whose reply
// was lost may be there twice when it is added again.
func (s *Store) AddAudit(ctx context.Context, entry onlyonce.AuditEntry) error {
	at := microsOf(s.now())
	it := auditItem{
		PK: keyPartition(entry.Key.Digest()), SK: fmt.Sprintf("%s%020d#%010d#%s", auditPrefix, at, s.audits.Add(1), rand.Text()),
		Scope: entry.Key.Scope, Key: entry.Key.Value,
		Action: valid(entry.Action), Actor: valid(entry.Actor), Reason: valid(entry.Reason), Fence: entry.Fence, At: at,
	}
	item, err := attributevalue.MarshalMap(it)
	if err != nil {
		return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "add audit entry", Err: err}
	}
	_, err = call(ctx, writing("add audit entry"), s.client.PutItem, &dynamodb.PutItemInput{TableName: &s.table, Item: item})
	return err
}

// valid is text as DynamoDB keeps it.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// Audit lists the entries of a key, oldest first, with strong consistency.
func (s *Store) Audit(ctx context.Context, key onlyonce.Key) ([]onlyonce.AuditEntry, error) {
	in := &dynamodb.QueryInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:   aws.String("#pk = :pk AND #sk BETWEEN :first AND :last"),
		ExpressionAttributeNames: map[string]string{"#pk": "pk", "#sk": "sk"},
		ExpressionAttributeValues: attributes{
			":pk": text(keyPartition(key.Digest())), ":first": text(auditPrefix), ":last": text(auditPrefix + "~"),
		},
	}
	var entries []onlyonce.AuditEntry
	for {
		out, err := call(ctx, reading("read audit"), s.client.Query, in)
		if err != nil {
			return nil, err
		}
		for _, item := range out.Items {
			var it auditItem
			if err := attributevalue.UnmarshalMap(item, &it); err != nil {
				return nil, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "read audit", Err: err}
			}
			entries = append(entries, onlyonce.AuditEntry{
				Key: onlyonce.Key{Scope: it.Scope, Value: it.Key}, Action: it.Action, Actor: it.Actor, Reason: it.Reason, Fence: it.Fence, At: timeOf(it.At),
			})
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			return entries, nil
		}
	}
}
