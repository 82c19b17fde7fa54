// Package onlyonce makes retries safe for operations that move money or stock.
//
// A client that sends "charge this card" and loses the answer cannot know
// whether to send it again. So it makes an idempotency key for each logical
// operation and sends it with every attempt, and the server promises one effect
// and one answer per (caller, key). This package is the server's half: a state
// machine over a Store. It knows no transport; package oncehttp puts it behind
// HTTP.
//
// # The promise
//
// An effect happens at most once per key, and the answer can be had again for
// the whole retention. A handler may start more than once; its effect may not
// happen more than once. Where nobody can know whether an effect happened, the
// key is in doubt and stays so until that is checked, reconciled or settled by
// a person: nothing is guessed.
//
// # Three ways to run a handler
//
// TxEngine.Atomic runs a handler whose effects all live in the store's own
// database: claim, business write and answer are one transaction. A crash
// leaves nothing behind.
//
// Engine.Steps runs a handler that calls other services: each call is a Call
// whose intent is committed before its first byte leaves, under a derived key,
// with a way to ask what became of it. A retry resumes behind the last finished
// step. The last step is TxEngine.Finish: business write and answer in one
// transaction.
//
// Engine.Wrap runs any handler. What a crash or a failure may have left behind
// is unknown, so by default it is held in doubt.
//
// # How a key lives
//
// A claim makes one attempt the owner of the key, for as long as its lease runs
// and is renewed. A fence that rises with every claim, and a random token, go
// with every later write, so that an attempt that slept through its lease
// changes nothing when it wakes. A run ends completed (the answer is replayed),
// failed_retryable (it is proved that nothing happened) or in_doubt. Judge has
// the decision a store makes about a claim, and the unexported decide the one
// about an ended run; docs/PROTOCOL.md has both as tables.
//
// # Errors
//
// All refusals and failures are *Error; errors.Is compares codes. SafeToRetry
// says whether the same request may be sent again under the same key.
package onlyonce
