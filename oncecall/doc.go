// Package oncecall is an HTTP client's transport for the calls of a protected
// operation. [Transport] carries the derived key of the onlyonce.Call it is used
// in, refuses what must not be sent, sends nothing a second time by itself, and
// says of an error whether it proves that nothing was sent. A client library that
// lets its http.Client be set needs no other change.
//
// What it does with a request depends on where the request is made:
//
//	inside Effect.Send       a request that may have an effect gets the derived key
//	elsewhere in a handler   it is refused: an effect without a key cannot be repeated
//	in an open transaction   every request is refused, whatever its method
//	outside of an operation  it passes as it is
//
// GET, HEAD, OPTIONS and TRACE have no effect and get no key. For other requests
// without one, as the fetching of a token, there is [WithoutKey].
//
// # Not sent
//
// That nothing was sent is proved by two things only: that this package refused
// the request, or that no connection was obtained. The error of such a request is
// marked with onlyonce.NotAppliedError, through all that wraps it with %w, and
// [NotSent] tells. The proof is withdrawn when another request of the same
// Effect.Send may have left, before or afterwards: what a client library says after
// its second try is then an unknown outcome. Everything else (a timeout, a reset,
// a broken connection) proves nothing and is not marked.
//
// # The send deadline
//
// Whoever asks a provider later what became of a send counts on nothing leaving
// after Sending.Deadline. It is checked before the round trip, when a connection
// was obtained, and each time bytes are to be written:
//
//   - HTTP/1.1: when the header is complete and its end still held back, and at each
//     read of the body. A process that was paused before the first of these sends
//     nothing, or no whole header of one that is longer than net/http's buffer of
//     4 KB. One that was paused later may have sent the header, but never the whole
//     of a request that has a body.
//   - HTTP/2: when a connection was obtained, and at each read of the body. Between
//     these the header may leave.
//
// What remains is a pause between the last check and the write itself, of a request
// without a body after its header, of one with a body before its last bytes. It is
// covered where the provider honours the derived key.
//
// # No second sending
//
// net/http sends a request again by itself when a kept connection turns out to be
// dead and the request looks repeatable: because it bears an Idempotency-Key, or,
// over HTTP/2, because it has no body. Here every request that may have an effect
// has a body that cannot be had twice, an empty one too; over HTTP/1.1 a POST
// without a body therefore leaves as a chunked one of no length. A round tripper
// beneath that repeats by itself is stopped as soon as it has a second connection.
// Redirects are http.Client's own: [NewClient] makes one that follows none.
package oncecall
