package cachestore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisTier keeps values in Redis, by single plain commands on one key each.
type redisTier struct {
	client redis.UniversalClient
	// most is how much of a value is read.
	most int64
}

func newRedisTier(cfg Config) *redisTier {
	o := *cfg.Shared.Redis
	timeout := cfg.Shared.Timeout
	o.ContextTimeoutEnabled = true
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout
	if o.DialTimeout == 0 {
		o.DialTimeout = time.Second
	}
	if o.MaintNotificationsConfig == nil {
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	return &redisTier{client: redis.NewUniversalClient(&o), most: cfg.MaxEntry}
}

// get reads no more of a value than an entry may have, whoever wrote it.
func (t *redisTier) get(ctx context.Context, name string) ([]byte, error) {
	return t.client.GetRange(ctx, name, 0, t.most).Bytes()
}

func (t *redisTier) set(ctx context.Context, name string, value []byte, ttl time.Duration) error {
	return t.client.Set(ctx, name, value, ttl.Truncate(time.Millisecond)).Err()
}

func (t *redisTier) del(ctx context.Context, name string) error {
	return t.client.Del(ctx, name).Err()
}

func (t *redisTier) close() error { return t.client.Close() }
