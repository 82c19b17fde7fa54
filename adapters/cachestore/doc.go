// Package cachestore answers replays from memory: it stands before an
// authoritative onlyonce.Store, keeps completed answers in this process and, if
// asked to, in a Redis that several processes share, and leaves everything else
// to the store.
//
// # What it promises
//
// The cache never claims, never says that a key is free, and never says no. It
// answers one thing only: a claim whose key has a completed record with the same
// fingerprint, which is a Replay whatever else the claim says. A miss, an error,
// another fingerprint, a request that is not valid and a context that has ended
// go to the store, whose answer is passed on as it is. Losing all that is cached
// costs speed. Get and List are always the store's: who asks about a key wants
// to know, not to be quick.
//
// What is cached came from the store as the whole record of a completed key: with
// a Replay or, with Config.ReadBack, with a Get after a completion. Nothing is put
// together from what a completion was called with: the store may have mended the
// headers, and of two completions the first stands. So the first retry of a key
// reads the database, and those after it do not.
//
// # Why an old answer never comes back
//
// A completed record never changes; the one thing that ends it is its expiry, by
// the store's clock, after which the key may begin a new life. (A sweep deletes
// only what has expired.) So an answer is right for as long as the store's clock
// is known to be before its ExpiresAt. A handle knows that clock from the store's
// own replies: a Replay says what is left, an own claim what is left of its lease,
// and both were true at a moment after the store was asked. From the moment before
// it was asked the handle counts by its monotonic clock, or by the wall clock where
// that has gone further (a suspended machine), and so has a time that the store's
// clock cannot have passed. Entries die Config.Margin before it reaches their
// expiry. What a handle does not know, or learned longer ago than Config.MaxAge, it
// does not use.
//
// That holds in both tiers, and it does not ask when an entry was written: an
// entry that a paused process sends to Redis an hour late, or that Redis keeps for
// too long, still carries the expiry of the life it belongs to, and each reader
// judges that by the store's clock. Neither the clock of Redis nor any process's
// wall clock is believed. Redis' own time to live makes room, and is a second bound
// should the store's clock be set back.
//
// The margin covers clocks that run at different speeds and steps of the store's
// clock that are smaller. If the store's clock is set forward by more, an answer
// that has just expired may be replayed once more, for MaxAge at the longest in
// each tier. The same bound holds when records vanish by other ways than expiry: a
// database restored from a backup, rows deleted by hand. Forget lets go of a key at
// once, here and in Redis.
//
// # The shared tier
//
// A value in Redis is a versioned encoding of the record with an HMAC under a
// secret of the database's own, kept in its settings. Whoever reads checks length,
// version, HMAC, scope and key; what is foreign, truncated or forged is a miss,
// and counted. Two databases that share a Redis therefore never see each other's
// answers, under whatever names. Each call has a short time limit. After a failure
// Redis is left alone for a while, longer each time, and one call at a time finds
// out whether it is back: a dead Redis costs nothing per request. Values hold
// answers in clear text, as the database does.
//
// # What it costs
//
// A hit in the process takes one to two microseconds, a copy of the answer in six
// allocations, and no round trip. Any other claim costs a look-up in memory and,
// with the shared tier, one round trip to Redis: for every fresh key, too, so that
// tier pays where retries are many and the database is far. A Replay that the store
// gave costs a copy and, with the shared tier, one more round trip to Redis. Memory
// is bounded by Config.MaxBytes. There are no goroutines but those of the Redis
// client, which Close ends.
package cachestore
