package dynamostore_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

const (
	lease     = 30 * time.Second
	retention = time.Hour
)

func keyOf(value string) onlyonce.Key { return onlyonce.Key{Scope: "acct", Value: value} }

// request is a claim by a new attempt.
func request(value string) onlyonce.ClaimRequest {
	return onlyonce.ClaimRequest{
		Key: keyOf(value), Operation: "POST /charges",
		Fingerprint: onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s", Policy: "p"}, Sum: [32]byte{1}},
		Attempt:     onlyonce.NewToken(), Lease: lease, Retention: retention, Abandon: onlyonce.AbandonRerun,
	}
}

// again is the same request by another attempt.
func again(req onlyonce.ClaimRequest) onlyonce.ClaimRequest {
	req.Attempt = onlyonce.NewToken()
	return req
}

// stepsOf is a claim of an operation made of steps, whose request is kept.
func stepsOf(value string) onlyonce.ClaimRequest {
	req := request(value)
	req.Abandon, req.Keep = onlyonce.AbandonResume, []byte("request of "+value)
	return req
}

// on is a claim that names a resource.
func on(resource, value string) onlyonce.ClaimRequest {
	req := request(value)
	req.Resource = resource
	return req
}

func answerOf(body string) onlyonce.Answer { return onlyonce.Answer{Status: 201, Body: []byte(body)} }

func intent(name string) onlyonce.Intent {
	return onlyonce.Intent{Name: name, Provider: "acme", DerivedKey: "d", Reference: "r", Request: []byte("{}"), SendWithin: time.Second}
}

func want(t *testing.T, s onlyonce.Store, req onlyonce.ClaimRequest, verdict onlyonce.Verdict) onlyonce.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), req)
	if err != nil || c.Verdict != verdict {
		t.Fatalf("claim %s: %v, %v; want %v", req.Key.Value, c.Verdict, err, verdict)
	}
	return c
}

func owner(t *testing.T, s onlyonce.Store, req onlyonce.ClaimRequest) onlyonce.Owner {
	t.Helper()
	return want(t, s, req, onlyonce.Won).Record.Owner()
}

func complete(t *testing.T, s onlyonce.Store, o onlyonce.Owner, body string) {
	t.Helper()
	if settled, err := s.Complete(t.Context(), o, answerOf(body)); !settled.Held || err != nil {
		t.Fatalf("complete %s: %+v, %v", o.Key.Value, settled, err)
	}
}

// must makes an error of what is not held.
func must(held bool, err error) error {
	if err == nil && !held {
		return errors.New("not held")
	}
	return err
}

func hold(t *testing.T, held bool, err error) {
	t.Helper()
	if err := must(held, err); err != nil {
		t.Fatal(err)
	}
}

// clock is a clock that stands still until it is moved.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// once allows a client one attempt a call.
func once(o *dynamodb.Options) { o.Retryer = quick(1) }

// items are the items of the store's table whose sort key begins so.
func (tb *tables) items(t *testing.T, prefix string) []map[string]types.AttributeValue {
	t.Helper()
	var found []map[string]types.AttributeValue
	in := &dynamodb.ScanInput{TableName: aws.String(tb.name), ConsistentRead: aws.Bool(true)}
	client := tb.connect(t)
	for {
		out, err := client.Scan(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range out.Items {
			if sk := item["sk"].(*types.AttributeValueMemberS); strings.HasPrefix(sk.Value, prefix) {
				found = append(found, item)
			}
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
			return found
		}
	}
}

// expire deletes an item as DynamoDB does when its time is over.
func (tb *tables) expire(t *testing.T, item map[string]types.AttributeValue) {
	t.Helper()
	_, err := tb.connect(t).DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: aws.String(tb.name), Key: map[string]types.AttributeValue{"pk": item["pk"], "sk": item["sk"]},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// writes is business code that puts a row and answers.
func (tb *tables) writes(name string) onlyonce.TxFunc[*dynamostore.Tx] {
	return answering(func(tx *dynamostore.Tx) error { return tx.Put(tb.put(name)) })
}
