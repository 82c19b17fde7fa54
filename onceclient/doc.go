// Package onceclient is the caller's end of safe retries: a client that does an
// operation once, however often it has to ask.
//
// An operation gets its idempotency key above the retry loop, from crypto/rand or
// from the caller, and is written to a [Journal] before its first byte leaves. Every
// attempt carries the same key and the same bytes to the same target, also those of
// another process that goes on after a crash ([Client.Resume]).
//
// What an operation ends as is told by the type of the error:
//
//	nil               answered: the server has done it, or had done it before
//	*RefusedError     the server refuses it for good; nothing more will come of it
//	*NotSentError     it is proved that nothing has left; it may be done again
//	*UnknownError     nobody knows; the journal keeps it, and Resume asks again
//	*UnrecordedError  answered or refused, but the journal could not keep that
//
// A new key is never made for an operation that has one, whatever goes wrong.
//
// # What is asked again
//
// The server's word wins: X-Should-Retry, or Stripe-Should-Retry, of true or false.
// Without it the status decides, before the body is read:
//
//	2xx, 303                              the answer
//	307, 308                              followed; refused where that cannot be
//	other 3xx                             refused: set the URL to where it leads
//	408, 425, 429, 5xx                    asked again
//	409 with Retry-After, or with
//	Idempotency-Status: refused           asked again: in progress, in doubt or busy
//	other 409, other 4xx                  refused
//	1xx, what is no status                asked again
//	410 with Idempotency-Status: refused  unknown: the key was used, its answer is gone
//
// So do a broken connection, a time-out and a body that breaks off. A 5xx, or a 408,
// that the server wants no retry of is unknown, unless the server says that it is the
// operation's own (Idempotency-Status of executed or replayed, Idempotent-Replayed):
// then a 5xx is its answer, and so is a 3xx but 307 and 308. An unknown operation stays open, since asking again under
// its key does no harm: the next Resume makes one attempt more.
//
// A refusal or a redirect says something of its own attempt only, when it may come from
// somebody who never looked at the key (a proxy, an authentication, a rate limit), or
// because of an attempt before. After one that may have been carried out, a 401, a 404 or
// a 303 therefore ends as unknown, unless the server says that it is the operation's own,
// and so does a 409, which is asked again first: servers that mark nothing say it while
// the attempt before is at work. 402 and 422 come from the operation.
//
// # Waiting
//
// Pauses are random, up to a limit that doubles (Config.BackoffBase), on top of what
// Retry-After asks for. A [Budget] bounds the retries of all operations at a server together.
// Nothing waits in vain: when the next attempt would come after Config.Timeout, or after
// nine tenths of Config.Retention, the operation ends at once.
//
// # Sent once
//
// Everything that could send a request a second time goes through one place: what
// net/http repeats by itself on dead connections is stopped; a redirect of 307 or 308 is
// followed at most 5 times, with the same method, key and body, without credentials to
// another origin and never from https to http; a 401 makes Config.Authorize be asked
// once more. A POST without a body leaves as a chunked one of no length.
package onceclient
