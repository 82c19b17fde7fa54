package dynamostore

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
)

// maxSetting is how long a setting may be; DynamoDB's limit of an item is 400 KB.
const maxSetting = 390 << 10

func settingKey(kind, id string) attributes { return primaryKey("setting#"+kind, "id#"+id) }

// Setting reads a value, with strong consistency; false if there is none.
func (s *Store) Setting(ctx context.Context, kind, id string) ([]byte, bool, error) {
	in := &dynamodb.GetItemInput{TableName: &s.table, Key: settingKey(kind, id), ConsistentRead: aws.Bool(true)}
	out, err := call(ctx, reading("read setting"), s.client.GetItem, in)
	if err != nil {
		return nil, false, err
	}
	v, found := settingOf(out.Item)
	return v, found, nil
}

func settingOf(item attributes) ([]byte, bool) {
	if len(item) == 0 {
		return nil, false
	}
	if v, ok := item["value"].(*types.AttributeValueMemberB); ok {
		return v.Value, true
	}
	return []byte{}, true
}

// AddSetting inserts the value unless one is there, and returns the one that
// stands. Of several processes that add at once, all get the same. A value may have
// 390 KB.
func (s *Store) AddSetting(ctx context.Context, kind, id string, value []byte) ([]byte, error) {
	if err := errors.Join(checkText("setting", kind, id), checkSetting(kind, id, value)); err != nil {
		return nil, err
	}
	if v, found, err := s.Setting(ctx, kind, id); found || err != nil {
		return v, err
	}
	item := settingKey(kind, id)
	if len(value) > 0 {
		item["value"] = bytesOf(value)
	}
	in := &dynamodb.PutItemInput{
		TableName: &s.table, Item: item,
		ConditionExpression: aws.String("attribute_not_exists(#pk)"), ExpressionAttributeNames: map[string]string{"#pk": "pk"},
	}
	_, err := call(ctx, writing("add setting"), s.client.PutItem, in)
	if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); err != nil && !refused {
		return nil, err
	}
	v, found, err := s.Setting(ctx, kind, id)
	if err == nil && !found {
		err = &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "add setting", Hint: "the setting was deleted by hand"}
	}
	return v, err
}

func checkSetting(kind, id string, value []byte) error {
	if len(value) > maxSetting || len(kind) > 1000 || len(id) > 1000 {
		return configError("setting", "%s must have at most %d bytes, and its names 1000, got %d", kind, maxSetting, len(value))
	}
	return nil
}
