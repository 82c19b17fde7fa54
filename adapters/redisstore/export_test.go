package redisstore

import "github.com/redis/go-redis/v9"

// ClientOf is the store's client.
func ClientOf(s *Store) redis.UniversalClient { return s.client }

// RecordName is the name of a key's hash.
var RecordName = (*Store).recordName

// Unlock gives the sweepers' lock back.
var Unlock = (*Store).unlock
