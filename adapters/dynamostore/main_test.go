package dynamostore_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) {
	code := testserver.Run(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// tables is a test's own pair of tables: the store's and one with business data.
type tables struct {
	*emulator
	name string
}

// newTables makes names for tables; the store's own is made by Migrate.
func newTables(t *testing.T) *tables {
	t.Helper()
	suffix := strings.ToLower(newName())
	return &tables{emulator: newEmulator(t, testserver.Dynalite(t)), name: "once-" + suffix}
}

func newName() string { return onlyonce.NewToken().String() }

// connect makes a client of its own, as another process would have it.
func (tb *tables) connect(t *testing.T, adjust ...func(*dynamodb.Options)) *dynamodb.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(tb.server.URL),
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:  &http.Client{Transport: transport},
		Retryer:     quick(3),
	}, adjust...)
}

// quick repeats without waiting.
func quick(attempts int) aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = attempts
		o.RateLimiter = noLimit{}
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Millisecond, nil })
	})
}

type noLimit struct{}

func (noLimit) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}

func (noLimit) AddTokens(uint) error { return nil }

// open makes a store with a client of its own on tables that are there.
func (tb *tables) open(t *testing.T, cfg dynamostore.Config, adjust ...func(*dynamodb.Options)) *dynamostore.Store {
	t.Helper()
	cfg.Table, cfg.SweepExpired = tb.name, true
	s, err := dynamostore.New(tb.connect(t, adjust...), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// migrated makes tables, and a store on them.
func migrated(t *testing.T, cfg dynamostore.Config) (*dynamostore.Store, *tables) {
	t.Helper()
	tb := newTables(t)
	s := tb.open(t, cfg)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, tb
}

func (tb *tables) business() string { return tb.name + "-business" }

// addBusiness makes the table of business data.
func (tb *tables) addBusiness(t *testing.T) {
	t.Helper()
	client := tb.connect(t)
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String(tb.business()), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	waiter := dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 10*time.Millisecond, time.Second
	})
	if err := waiter.Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String(tb.business())}, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// put is a business write of a row that may repeat.
func (tb *tables) put(name string) *types.Put {
	return &types.Put{TableName: aws.String(tb.business()), Item: map[string]types.AttributeValue{
		"id": str(newName()), "name": str(name),
	}}
}

// putOnce is a business write of a row that there can be one of.
func (tb *tables) putOnce(name string) *types.Put {
	return &types.Put{
		TableName:           aws.String(tb.business()),
		Item:                map[string]types.AttributeValue{"id": str(name), "name": str(name)},
		ConditionExpression: aws.String("attribute_not_exists(id)"),
	}
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// rows is how often the name is in the business data.
func (tb *tables) rows(t *testing.T, name string) int {
	t.Helper()
	out, err := tb.connect(t).Scan(t.Context(), &dynamodb.ScanInput{
		TableName: aws.String(tb.business()), ConsistentRead: aws.Bool(true), FilterExpression: aws.String("#n = :n"),
		ExpressionAttributeNames: map[string]string{"#n": "name"}, ExpressionAttributeValues: map[string]types.AttributeValue{":n": str(name)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(out.Items)
}
