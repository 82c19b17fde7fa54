package dynamostore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
)

// attributes is an item on the wire.
type attributes = map[string]types.AttributeValue

// record is the item of a key. Times are in microseconds, 0 for none.
type record struct {
	PK string `dynamodbav:"pk"`
	SK string `dynamodbav:"sk"`

	Scope     string `dynamodbav:"scope"`
	Key       string `dynamodbav:"key"`
	Operation string `dynamodbav:"operation"`
	Form      int    `dynamodbav:"form"`
	Secret    string `dynamodbav:"secret"`
	Policy    string `dynamodbav:"policy"`
	Sum       []byte `dynamodbav:"sum"`
	Parts     []byte `dynamodbav:"parts,omitempty"`

	State    string `dynamodbav:"state"`
	Fence    int64  `dynamodbav:"fence"`
	Origin   int64  `dynamodbav:"origin"`
	Attempt  []byte `dynamodbav:"attempt"`
	Attempts int    `dynamodbav:"attempts"`
	Abandon  uint8  `dynamodbav:"abandon"`
	From     string `dynamodbav:"from,omitempty"`
	Reason   string `dynamodbav:"reason,omitempty"`
	Resource string `dynamodbav:"resource,omitempty"`
	Holds    bool   `dynamodbav:"holds,omitempty"`

	Answer    *storedAnswer `dynamodbav:"answer,omitempty"`
	Retention int64         `dynamodbav:"retention"`
	Created   int64         `dynamodbav:"created"`
	LeaseEnd  int64         `dynamodbav:"lease_end"`
	Lease     int64         `dynamodbav:"lease"`
	ClaimEnd  int64         `dynamodbav:"claim_end"`
	Completed int64         `dynamodbav:"completed,omitempty"`
	Expires   int64         `dynamodbav:"expires,omitempty"`
	Renewal   int64         `dynamodbav:"renewal"`
	Rev       int64         `dynamodbav:"rev"`
	Writer    string        `dynamodbav:"writer"`

	Keep  *value `dynamodbav:"keep,omitempty"`
	Turn  int    `dynamodbav:"turn,omitempty"`
	Due   int64  `dynamodbav:"due"`
	Steps []step `dynamodbav:"steps,omitempty"`

	// Open and At are the keys of the index; only what is open has them.
	Open string `dynamodbav:"open,omitempty"`
	At   *int64 `dynamodbav:"at,omitempty"`
	TTL  int64  `dynamodbav:"ttl,omitempty"`
}

// encode is the row's item.
func (r row) encode() (attributes, error) {
	v := r.Fingerprint.Version
	it := record{
		PK: keyPartition(r.Key.Digest()), SK: recordName,
		Scope: r.Key.Scope, Key: r.Key.Value, Operation: r.Operation,
		Form: v.Form, Secret: v.Secret, Policy: v.Policy, Sum: r.Fingerprint.Sum[:], Parts: r.Fingerprint.Parts,
		State: string(r.State), Fence: r.Fence, Origin: r.Origin, Attempt: r.Attempt[:], Attempts: r.Attempts,
		Abandon: uint8(r.Abandon), From: string(r.from), Reason: reasonOf(r.Reason),
		Resource: r.Resource, Holds: r.Holds, Answer: r.answer, Retention: micros(r.Retention),
		Created: microsOf(r.CreatedAt), LeaseEnd: microsOf(r.LeaseEnd), Lease: micros(r.lease), ClaimEnd: microsOf(r.claimEnd),
		Completed: microsOf(r.CompletedAt), Expires: microsOf(r.ExpiresAt), Renewal: r.renewal, Rev: r.rev, Writer: r.writer,
		Keep: r.keep, Turn: r.turn, Due: r.due, Steps: r.steps, TTL: r.ttl(),
	}
	if at, open := r.attention(); open {
		it.Open, it.At = partOf(it.PK), &at
	}
	return attributevalue.MarshalMap(it)
}

// errDamaged is an item that is not of this store's making, or was changed by hand.
var errDamaged = errors.New("it is not of this store's making, or was changed by hand")

// decode reads a key's item. No item is a row that was not found. The error is
// errDamaged.
func decode(item attributes) (row, error) {
	if len(item) == 0 {
		return row{}, nil
	}
	var it record
	if err := attributevalue.UnmarshalMap(item, &it); err != nil {
		return row{}, fmt.Errorf("read item %s: %w: %w", nameOf(item), errDamaged, err)
	}
	r := row{
		Record: onlyonce.Record{
			Key: onlyonce.Key{Scope: it.Scope, Value: it.Key}, Operation: it.Operation,
			Fingerprint: onlyonce.Fingerprint{
				Version: onlyonce.FingerprintVersion{Form: it.Form, Secret: it.Secret, Policy: it.Policy}, Parts: it.Parts,
			},
			State: onlyonce.State(it.State), Fence: it.Fence, Origin: it.Origin, Attempts: it.Attempts,
			Abandon: onlyonce.Abandon(it.Abandon), Reason: it.Reason, Resource: it.Resource, Holds: it.Holds,
			Retention: fromMicros(it.Retention), CreatedAt: timeOf(it.Created), LeaseEnd: timeOf(it.LeaseEnd),
			CompletedAt: timeOf(it.Completed), ExpiresAt: timeOf(it.Expires),
		},
		found: true, from: onlyonce.State(it.From),
		lease: fromMicros(it.Lease), renewal: it.Renewal, claimEnd: timeOf(it.ClaimEnd), rev: it.Rev, writer: it.Writer,
		keep: it.Keep, turn: it.Turn, due: it.Due, answer: it.Answer, steps: it.Steps,
	}
	broken := func(v *value) bool { return v.Parts <= 0 || v.Size <= 0 }
	if len(it.Sum) != len(r.Fingerprint.Sum) || len(it.Attempt) != len(r.Attempt) || r.State == "" ||
		it.PK != keyPartition(r.Key.Digest()) || slices.ContainsFunc(r.values(), broken) {
		return row{}, fmt.Errorf("read item %s: %w", nameOf(item), errDamaged)
	}
	copy(r.Fingerprint.Sum[:], it.Sum)
	copy(r.Attempt[:], it.Attempt)
	return r, nil
}

// nameOf is an item's partition, for messages.
func nameOf(item attributes) string {
	pk, _ := item["pk"].(*types.AttributeValueMemberS)
	if pk == nil {
		return "?"
	}
	return pk.Value
}

// text is a string attribute.
func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// number is a numeric attribute.
func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: fmt.Sprint(n)}
}

// bytesOf is a binary attribute.
func bytesOf(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }

// primaryKey names an item.
func primaryKey(partition, name string) attributes {
	return attributes{"pk": text(partition), "sk": text(name)}
}
