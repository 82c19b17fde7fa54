// Package oncehttp gives HTTP handlers the idempotency protocol of package
// onlyonce: a request that bears an Idempotency-Key has its effect at most
// once, and a retry gets the first answer again.
//
// A [Guard] holds what the routes of a service share: the engine, and the
// [ScopeFunc] that says whose key a key is. A [Route] is one operation and how
// it is protected. Three functions make handlers of it, one for each mode of
// the engine:
//
//   - [Guard.Wrap] takes any http.Handler;
//   - [Steps] takes a handler whose outside effects go through onlyonce.Call;
//   - [Atomic] takes a handler whose effects all live in one transaction of
//     the store's database.
//
// # What stands outside
//
// A request is looked at in this order: size of its body, syntax of its key,
// scope, syntax of the request, key, handler. Authentication, rate limits and
// routing come before the guard; what they refuse leaves the key unused. So do
// compression and CORS: a handler's Content-Encoding is undone, so that the
// stored bytes are those of the content, and only the headers of the
// allow-list are stored.
//
// # What a handler under a key cannot do
//
// Nothing is sent before it is stored. The handler's answer is therefore
// buffered: Flush has no effect, Hijack and protocol upgrades are refused, and
// trailers are dropped. Informational answers (1xx) pass through at once.
// Requests without a key, where that is optional, and those on methods that
// honour none run untouched.
package oncehttp
