package keystore

import (
	"context"

	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

// dynamo is keys in a table of DynamoDB. The table is made as a whole and has no
// versions: opening it checks its form. The parameter sweep=expired of the URL is
// dynamostore.Config.SweepExpired, for servers without time to live.
type dynamo struct{}

// dynamoForm is how its URL is written.
const dynamoForm = "dynamodb://TABLE?region=REGION"

func (b dynamo) open(ctx context.Context, url string) (*Store, error) {
	s, err := b.connect(ctx, url, false)
	if err != nil {
		return nil, err
	}
	return &Store{Store: s, close: s.Close}, nil
}

// make makes the table, where there is none.
func (b dynamo) make(ctx context.Context, url string) error {
	s, err := b.connect(ctx, url, true)
	if err != nil {
		return err
	}
	return s.Close()
}

func (dynamo) connect(ctx context.Context, url string, create bool) (*dynamostore.Store, error) {
	url, sweep, err := take(url, "sweep")
	if err != nil || (sweep != "" && sweep != "expired") {
		return nil, configError("read store URL", "its parameters cannot be read; use "+dynamoForm+", and &sweep=expired where the server has no time to live")
	}
	return dynamostore.Open(ctx, url, dynamostore.Config{Create: create, SweepExpired: sweep != ""})
}
