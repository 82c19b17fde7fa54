package dynamostore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
)

// indexName is the index of what is open, by when somebody may have to look at it. It
// lags behind the table: what is found in it is read again, and only a conditional
// write decides.
const indexName = "open"

// parts are those that the index is spread over, so that its writes do not meet in
// one place.
const parts = "01234567"

// partOf is the part that a key's partition belongs to, by the first digit of its
// digest.
func partOf(partition string) string {
	digit := partition[len("key#")]
	return string(parts[strings.IndexByte("0123456789abcdef", digit)/2])
}

// candidate is a key that the index gives.
type candidate struct {
	partition string
	at        int64
}

func (c candidate) digest() (onlyonce.Digest, bool) { return digestOf(c.partition) }

// scout finds candidates, a bounded number a look. Where a part has more than one look
// takes, the next look goes on from there, so that what cannot be decided yet does
// not hide what is behind it.
type scout struct {
	mu   sync.Mutex
	from map[byte]attributes // where each part goes on
}

func (s *scout) next(part byte) attributes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from[part]
}

func (s *scout) goOn(part byte, from attributes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		s.from = map[byte]attributes{}
	}
	s.from[part] = from
}

// looking is a look at the index.
type looking struct {
	op    string
	by    *scout
	until int64
	limit int // of each part
}

// look gives keys that somebody may have to look at up to a moment, those longest
// waiting first.
func (s *Store) look(ctx context.Context, l looking) ([]candidate, error) {
	var found []candidate
	for i := range len(parts) {
		page, err := s.open(ctx, l.op, openQuery{part: parts[i], until: l.until, from: l.by.next(parts[i]), limit: l.limit})
		if err != nil {
			return nil, err
		}
		l.by.goOn(parts[i], page.next)
		found = append(found, page.found...)
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(a.at, b.at) })
	return found, nil
}

// openQuery asks for a page of one part of the index.
type openQuery struct {
	part  byte
	until int64
	from  attributes
	limit int
}

type openPage struct {
	found []candidate
	next  attributes
}

func (s *Store) open(ctx context.Context, op string, q openQuery) (openPage, error) {
	in := &dynamodb.QueryInput{
		TableName: &s.table, IndexName: aws.String(indexName), Limit: aws.Int32(int32(min(q.limit, 1000))),
		KeyConditionExpression:    aws.String("#open = :part AND #at <= :until"),
		ExpressionAttributeNames:  map[string]string{"#open": "open", "#at": "at"},
		ExpressionAttributeValues: attributes{":part": text(string(q.part)), ":until": number(q.until)},
		ExclusiveStartKey:         q.from,
	}
	out, err := call(ctx, reading(op), s.client.Query, in)
	if err != nil {
		return openPage{}, err
	}
	page := openPage{}
	for _, item := range out.Items {
		pk, _ := item["pk"].(*types.AttributeValueMemberS)
		at, _ := item["at"].(*types.AttributeValueMemberN)
		if pk == nil || at == nil {
			continue
		}
		n, err := strconv.ParseInt(at.Value, 10, 64)
		if err == nil {
			page.found = append(page.found, candidate{partition: pk.Value, at: n})
		}
	}
	if len(out.LastEvaluatedKey) > 0 {
		page.next = out.LastEvaluatedKey
	}
	return page, nil
}

// openKey is the place of an item in the index.
func openKey(c candidate) attributes {
	key := primaryKey(c.partition, recordName)
	key["open"], key["at"] = text(partOf(c.partition)), number(c.at)
	return key
}

// digestOf is the digest in a key's partition.
func digestOf(partition string) (onlyonce.Digest, bool) {
	return parseDigest(strings.TrimPrefix(partition, "key#"))
}
