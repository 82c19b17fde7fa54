package dynamostore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
)

// value is a string of bytes of any length: with the item, or in items of its own
// that are written before the item refers to them and never changed. Empty is not
// nil.
type value struct {
	Data []byte `dynamodbav:"data,omitempty"`
	// ID and Parts name the items, if it has some.
	ID    string `dynamodbav:"id,omitempty"`
	Parts int    `dynamodbav:"parts,omitempty"`
	Size  int    `dynamodbav:"size"`
}

const (
	// inline is how long a value may be to stay with the record, inlineStep one
	// of a step, of which there may be many.
	inline     = 8 << 10
	inlineStep = 1 << 10
	// partSize is how much one item takes of a larger one; DynamoDB's limit is
	// 400 KB with the names.
	partSize = 384 << 10
	// dropTimeout bounds housekeeping that goes on after its caller.
	dropTimeout = 5 * time.Second
)

// errPartMissing is a value some of which is gone: what referred to it has been
// replaced.
var errPartMissing = errors.New("a part of a stored value is missing")

// placement says where a value belongs.
type placement struct {
	key    onlyonce.Key
	inline int
	// ttl is when nobody needs it any more, in seconds; 0: that is not known.
	ttl int64
}

// store makes a value of bytes, and writes its items if it is too long to stay with
// what refers to it.
func (s *Store) store(ctx context.Context, at placement, data []byte) (*value, error) {
	v := &value{Size: len(data)}
	if len(data) <= at.inline {
		v.Data = bytes.Clone(data)
		return v, nil
	}
	v.ID = rand.Text()
	v.Parts = (len(data) + partSize - 1) / partSize
	for n := range v.Parts {
		item := primaryKey(keyPartition(at.key.Digest()), v.partName(n))
		item["data"] = bytesOf(data[n*partSize : min((n+1)*partSize, len(data))])
		if at.ttl != 0 {
			item["ttl"] = number(at.ttl)
		}
		in := &dynamodb.PutItemInput{TableName: &s.table, Item: item}
		if _, err := call(ctx, writing("store value"), s.client.PutItem, in); err != nil {
			s.drop(ctx, at.key, v) // nothing refers to it yet
			return nil, err
		}
	}
	return v, nil
}

func (v *value) partName(n int) string { return fmt.Sprintf("%s%s#%06d", valuePrefix, v.ID, n) }

// fetch reads a value; nil for none.
func (s *Store) fetch(ctx context.Context, key onlyonce.Key, v *value) ([]byte, error) {
	switch {
	case v == nil:
		return nil, nil
	case v.ID == "":
		return append([]byte{}, v.Data...), nil
	}
	var data []byte
	for n := range v.Parts {
		in := &dynamodb.GetItemInput{
			TableName: &s.table, Key: primaryKey(keyPartition(key.Digest()), v.partName(n)), ConsistentRead: aws.Bool(true),
		}
		out, err := call(ctx, reading("read value"), s.client.GetItem, in)
		if err != nil {
			return nil, err
		}
		part, ok := out.Item["data"].(*types.AttributeValueMemberB)
		if !ok {
			return nil, errPartMissing
		}
		data = append(data, part.Value...)
	}
	if len(data) != v.Size {
		return nil, errPartMissing
	}
	return data, nil
}

// drop deletes the items of values that nothing refers to any more. What it cannot
// delete stays behind: nothing reads it.
func (s *Store) drop(ctx context.Context, key onlyonce.Key, values ...*value) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	for _, v := range values {
		if v == nil || v.ID == "" {
			continue
		}
		for n := range v.Parts {
			in := &dynamodb.DeleteItemInput{TableName: &s.table, Key: primaryKey(keyPartition(key.Digest()), v.partName(n))}
			if _, err := call(ctx, writing("delete value"), s.client.DeleteItem, in); err != nil {
				break
			}
		}
	}
}

// expire gives the items of values their time to live. Where that fails they stay
// behind: nothing depends on it.
func (s *Store) expire(ctx context.Context, key onlyonce.Key, ttl int64, values []*value) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	for _, v := range values {
		for n := range v.Parts {
			in := &dynamodb.UpdateItemInput{
				TableName: &s.table, Key: primaryKey(keyPartition(key.Digest()), v.partName(n)),
				ConditionExpression: aws.String("attribute_exists(#pk)"), UpdateExpression: aws.String("SET #ttl = :ttl"),
				ExpressionAttributeNames:  map[string]string{"#pk": "pk", "#ttl": "ttl"},
				ExpressionAttributeValues: attributes{":ttl": number(ttl)},
			}
			if _, err := call(ctx, writing("let value expire"), s.client.UpdateItem, in); err != nil && codeOf(err) != codeRefused {
				return
			}
		}
	}
}

// dropUnused deletes what the first row referred to and the second one does not.
func (s *Store) dropUnused(ctx context.Context, from, to row) {
	used := map[string]bool{}
	for _, v := range to.values() {
		used[v.ID] = true
	}
	s.drop(ctx, from.Key, slices.DeleteFunc(from.values(), func(v *value) bool { return used[v.ID] })...)
}
