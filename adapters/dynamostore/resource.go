package dynamostore

import (
	"context"
	"encoding/hex"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
)

// A resource that is held has an item that names its holder. It is written in one
// transaction with the holder's row, so that the two never differ; but the row may
// have expired, or be gone for that reason, and then it holds nothing.

// holder is a key that the item of a resource names.
type holder struct {
	partition string
	row       row // as it was read; not found: it is gone
}

// holdsNothing tells whether what was found no longer counts.
func (s *Store) holdsNothing(h holder) bool { return !h.row.found || h.row.Expired(s.now()) }

// holderOf reads who holds a scope's resource; false if nobody does, or somebody who
// is just letting go.
func (s *Store) holderOf(ctx context.Context, op string, scope, resource string) (holder, bool, error) {
	in := &dynamodb.GetItemInput{TableName: &s.table, Key: primaryKey(resourcePartition(scope, resource), holderName), ConsistentRead: aws.Bool(true)}
	out, err := call(ctx, reading(op), s.client.GetItem, in)
	if err != nil {
		return holder{}, false, err
	}
	named, ok := out.Item["holder"].(*types.AttributeValueMemberS)
	if !ok {
		return holder{}, false, nil
	}
	h := holder{partition: named.Value}
	digest, err := hex.DecodeString(strings.TrimPrefix(named.Value, "key#"))
	if err != nil || len(digest) != len(onlyonce.Digest{}) {
		return holder{}, false, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Hint: "the item of a resource was changed by hand"}
	}
	if h.row, err = s.loadDigest(ctx, op, onlyonce.Digest(digest)); err != nil {
		return holder{}, false, err
	}
	if h.row.found && (!h.row.Holds || h.row.Resource != resource || h.row.Key.Scope != scope) {
		return holder{}, false, nil
	}
	return h, true, nil
}

// holderItems are the writes that go with a row which takes a resource, keeps it for
// another time, or lets it go.
func (s *Store) holderItems(w write) ([]types.TransactWriteItem, error) {
	before, after := "", ""
	if w.old.found && w.old.Holds {
		before = w.old.Resource
	}
	if !w.remove && w.next.Holds {
		after = w.next.Resource
	}
	var items []types.TransactWriteItem
	if before != "" && before != after {
		items = append(items, s.letGo(w, before))
	}
	if w.guard != "" && w.guard != before {
		items = append(items, s.letGo(w, w.guard))
	}
	if after != "" && (before != after || w.old.ttl() != w.next.ttl()) {
		items = append(items, s.take(w, after))
	}
	if w.expired == nil {
		return items, nil
	}
	released, err := s.release(*w.expired)
	return append(items, released), err
}

// mine holds of a resource's item that this key may write.
func mine(w write) condition {
	c := condition{
		expression: aws.String("attribute_not_exists(#pk) OR #holder = :me"),
		names:      map[string]string{"#pk": "pk", "#holder": "holder"},
		values:     attributes{":me": text(keyPartition(w.key().Digest()))},
	}
	if w.expired != nil {
		c.expression = aws.String("attribute_not_exists(#pk) OR #holder = :me OR #holder = :expired")
		c.values[":expired"] = text(w.expired.partition)
	}
	return c
}

func (s *Store) letGo(w write, resource string) types.TransactWriteItem {
	c := mine(w)
	return types.TransactWriteItem{Delete: &types.Delete{
		TableName: &s.table, Key: primaryKey(resourcePartition(w.key().Scope, resource), holderName),
		ConditionExpression: c.expression, ExpressionAttributeNames: c.names, ExpressionAttributeValues: c.values,
	}}
}

func (s *Store) take(w write, resource string) types.TransactWriteItem {
	c := mine(w)
	item := primaryKey(resourcePartition(w.key().Scope, resource), holderName)
	item["scope"], item["resource"], item["holder"] = text(w.key().Scope), text(resource), text(keyPartition(w.key().Digest()))
	if ttl := w.next.ttl(); ttl != 0 {
		item["ttl"] = number(ttl)
	}
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &s.table, Item: item,
		ConditionExpression: c.expression, ExpressionAttributeNames: c.names, ExpressionAttributeValues: c.values,
	}}
}

// release has a holder that has expired let go, or makes sure that it is gone.
func (s *Store) release(h holder) (types.TransactWriteItem, error) {
	c := unchanged(h.row)
	if !h.row.found {
		return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
			TableName: &s.table, Key: primaryKey(h.partition, recordName),
			ConditionExpression: c.expression, ExpressionAttributeNames: c.names,
		}}, nil
	}
	next := h.row
	next.Holds, next.rev, next.writer = false, h.row.rev+1, newWriter()
	item, err := next.encode()
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &s.table, Item: item,
		ConditionExpression: c.expression, ExpressionAttributeNames: c.names, ExpressionAttributeValues: c.values,
	}}, err
}
