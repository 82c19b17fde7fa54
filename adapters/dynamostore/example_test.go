package dynamostore_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

// A store on the client that the business data uses, and an engine whose handlers
// write in one transaction with it. Neither connects before it is used.
func ExampleNew() {
	client := dynamodb.New(dynamodb.Options{Region: "eu-central-1"})
	store, err := dynamostore.New(client, dynamostore.Config{Table: "payments-keys"})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := onlyonce.NewTx[*dynamostore.Tx](store, onlyonce.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = engine.Close(context.Background()) }()
	fmt.Println(engine.Store().Features().Name)
	// Output: dynamodb
}

// The table, for a tool of one's own.
func ExampleStore_Table() {
	store, err := dynamostore.New(dynamodb.New(dynamodb.Options{Region: "eu-central-1"}), dynamostore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	table := store.Table()
	fmt.Println(aws.ToString(table.TableName), table.BillingMode)
	for _, k := range table.KeySchema {
		fmt.Println(aws.ToString(k.AttributeName), k.KeyType)
	}
	// Output:
	// onlyonce PAY_PER_REQUEST
	// pk HASH
	// sk RANGE
}

// Business writes and the answer of their request in one TransactWriteItems: a seat
// is sold to one caller, and the caller who asks again is given the first answer.
func ExampleStore_Atomic() {
	sell := func(_ context.Context, tx *dynamostore.Tx) (*onlyonce.Answer, error) {
		err := tx.Put(&types.Put{
			TableName:           aws.String("seats"),
			Item:                map[string]types.AttributeValue{"seat": &types.AttributeValueMemberS{Value: "12A"}},
			ConditionExpression: aws.String("attribute_not_exists(seat)"),
		})
		return &onlyonce.Answer{Status: 201, Body: []byte(`{"seat":"12A"}`)}, err
	}
	answer, err := sell(context.Background(), &dynamostore.Tx{})
	fmt.Println(answer.Status, err)
	// Output: 201 <nil>
}
