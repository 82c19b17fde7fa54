package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
)

const opTable = "check table"

// createTimeout bounds how long Migrate waits for a new table.
const createTimeout = 5 * time.Minute

// Table is what creates the table, for people with a tool of their own: billed on
// demand, partition key "pk", sort key "sk", and the sparse index "open". Time to live
// must be turned on besides, for the attribute "ttl".
func (s *Store) Table() *dynamodb.CreateTableInput {
	return &dynamodb.CreateTableInput{
		TableName: &s.table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("open"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("at"), AttributeType: types.ScalarAttributeTypeN},
		},
		KeySchema: schemaOf("pk", "sk"),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: aws.String(indexName), KeySchema: schemaOf("open", "at"),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}},
	}
}

func schemaOf(hash, rang string) []types.KeySchemaElement {
	return []types.KeySchemaElement{
		{AttributeName: aws.String(hash), KeyType: types.KeyTypeHash},
		{AttributeName: aws.String(rang), KeyType: types.KeyTypeRange},
	}
}

// Migrate creates the table where there is none, turns time to live on (unless
// Config.SweepExpired), waits until it can be used and checks it. It changes
// nothing of a table that is there but time to live. It may be repeated, and several
// processes may do it at once.
func (s *Store) Migrate(ctx context.Context) error {
	const op = "create table"
	_, err := call(ctx, writing(op), s.client.CreateTable, s.Table())
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return err
	}
	waiter := dynamodb.NewTableExistsWaiter(s.client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 50*time.Millisecond, 5*time.Second
	})
	if err := waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &s.table}, createTimeout); err != nil {
		return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Hint: "the table was not ready in time", Err: err}
	}
	if s.sweeps {
		return s.Check(ctx)
	}
	if err := s.liveByTime(ctx); err != nil {
		return err
	}
	return s.Check(ctx)
}

// liveByTime has DynamoDB delete what has expired, and waits until it says so. Where
// somebody else has turned that on meanwhile, doing it again is refused, and what it says
// then counts.
func (s *Store) liveByTime(ctx context.Context) error {
	if on, err := s.livesByTime(ctx); on || err != nil {
		return err
	}
	const op = "turn time to live on"
	_, refused := call(ctx, writing(op), s.client.UpdateTimeToLive, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &s.table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: aws.Bool(true)},
	})
	if refused != nil && codeOf(refused) != codeInvalid {
		return refused
	}
	for try := range maxTries {
		if on, err := s.livesByTime(ctx); on || err != nil {
			return err
		}
		if err := pause(ctx, op, try); err != nil {
			return err
		}
	}
	return refused
}

// Check makes sure that the table has the keys and the index of this store and, unless
// Config.SweepExpired, that DynamoDB deletes what has expired. What is wrong with it
// is CodeConfig. It needs the rights to describe the table and its time to live.
func (s *Store) Check(ctx context.Context) error {
	out, err := call(ctx, reading(opTable), s.client.DescribeTable, &dynamodb.DescribeTableInput{TableName: &s.table})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return s.wrong("there is no table %s: create it with Migrate, or check region and name", s.table)
	}
	if err != nil {
		return err
	}
	t := out.Table
	if got, want := describe(t.KeySchema, t.AttributeDefinitions), "pk HASH S, sk RANGE S"; got != want {
		return s.wrong("the table %s has the key %s, not %s: it belongs to something else", s.table, got, want)
	}
	at := slices.IndexFunc(t.GlobalSecondaryIndexes, func(i types.GlobalSecondaryIndexDescription) bool { return aws.ToString(i.IndexName) == indexName })
	if at < 0 {
		return s.wrong("the table %s has no index %q: add it with partition key open (S), sort key at (N), keys only", s.table, indexName)
	}
	index := t.GlobalSecondaryIndexes[at]
	if got, want := describe(index.KeySchema, t.AttributeDefinitions), "open HASH S, at RANGE N"; got != want {
		return s.wrong("the index %q has the key %s, not %s", indexName, got, want)
	}
	if s.sweeps {
		return nil
	}
	on, err := s.livesByTime(ctx)
	if err == nil && !on {
		err = s.wrong("time to live is off for the attribute \"ttl\" of %s, so that it would grow for ever: turn it on (Migrate does), or set Config.SweepExpired", s.table)
	}
	return err
}

// livesByTime tells whether DynamoDB deletes what has expired.
func (s *Store) livesByTime(ctx context.Context) (bool, error) {
	out, err := call(ctx, reading(opTable), s.client.DescribeTimeToLive, &dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
	if err != nil {
		return false, err
	}
	d := out.TimeToLiveDescription
	on := d != nil && (d.TimeToLiveStatus == types.TimeToLiveStatusEnabled || d.TimeToLiveStatus == types.TimeToLiveStatusEnabling)
	if on && aws.ToString(d.AttributeName) != "ttl" {
		return false, s.wrong("time to live of %s goes by the attribute %q, not by ttl", s.table, aws.ToString(d.AttributeName))
	}
	return on, nil
}

func (s *Store) wrong(format string, args ...any) error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: opTable, Hint: fmt.Sprintf(format, args...)}
}

// describe is a key schema in words.
func describe(schema []types.KeySchemaElement, defs []types.AttributeDefinition) string {
	text := ""
	for _, k := range schema {
		kind := types.ScalarAttributeType("?")
		for _, d := range defs {
			if aws.ToString(d.AttributeName) == aws.ToString(k.AttributeName) {
				kind = d.AttributeType
			}
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %s %s", aws.ToString(k.AttributeName), k.KeyType, kind)
	}
	return text
}
