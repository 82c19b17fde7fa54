package keystore

import (
	"context"
	"math"

	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
)

// redis is keys in Redis or Valkey, which needs no tables. The parameter prefix of the
// URL is redisstore.Config.Prefix; the others are the client's.
type redis struct{}

// open opens a store that walks over all keys in one sweep, since a sweep by hand begins
// at the beginning.
func (redis) open(ctx context.Context, url string) (*Store, error) {
	url, prefix, err := take(url, "prefix")
	if err != nil {
		return nil, configError("read store URL", "its parameters cannot be read; use "+redisForm)
	}
	s, err := redisstore.Open(ctx, url, redisstore.Config{Prefix: prefix, SweepKeys: math.MaxInt32})
	if err != nil {
		return nil, err
	}
	return &Store{Store: s, close: s.Close}, nil
}

// redisForm is how its URL is written.
const redisForm = "redis://USER:PASSWORD@HOST:PORT/DB"
