package redisstore

import "github.com/redis/go-redis/v9"

// ClientOf is the store's client.
func ClientOf(s *Store) redis.UniversalClient { return s.client }

// RecordName is the name of a key's hash.
var RecordName = (*Store).recordName

// Unlock gives the sweepers' lock back.
var Unlock = (*Store).unlock

// LookAgain lets the next claim ask the servers about themselves.
func LookAgain(s *Store) { s.looked.Store(0) }
