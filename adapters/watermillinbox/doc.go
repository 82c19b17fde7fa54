// Package watermillinbox puts an inbox before a Watermill handler: a message is
// acknowledged only when what became of it is committed, and a redelivery of one that was
// handled runs nothing.
//
//   - [Handler] makes a Watermill handler of an [inbox.ProcessFunc]: for code of one's own
//     that takes the transaction and the message.
//   - [Middleware] puts the inbox around a handler that exists: the process function
//     ends in [Next], or in [NextTx] for a handler that writes in the inbox's
//     transaction, which [TxFrom] gives it.
//
// A verdict that acknowledges becomes a nil error, on which Watermill acknowledges;
// Again becomes an error, on which it does not, and the subscriber delivers again. What
// a nacked message waits for is the subscriber's business: many deliver again at once, so
// put Watermill's Retry outside, whose pauses keep a failing message from spinning.
//
// # The order of middlewares
//
// The inbox stands next to the handler, everything that repeats or gives up stands
// outside of it:
//
//	router.AddMiddleware(poison, retry.Middleware, inboxMiddleware) // the first is the outermost
//
// Retry inside would repeat the handler within one transaction: what a failed run has
// written stays and is committed with the one that succeeds, twice the effect. A poison
// queue inside would turn a failure into a success: the inbox would commit what the failed
// run had written and remember the message as handled. A Recoverer inside is harmless and
// not needed: the inbox takes a panic for a failure. Watermill's Deduplicator and InstantAck
// are not to be combined with an inbox at all: they acknowledge before anything is
// committed.
//
// Outside, a poison queue takes a message away at its first error after Retry, also one
// that another consumer is handling just now, before the inbox has parked it. So leave it
// out, and find parked messages by [inbox.List]; or give it a filter
// (PoisonQueueWithFilter) for what can never be handled: code CodeKeyRequired, a message
// without an id. What it takes can be published again under its UUID: the inbox
// has no mark of it.
//
// # What is promised
//
// One effect an id, as far as the process function's inbox promises it; no
// acknowledgement before that is committed. The handler is given a copy of the message: an
// Ack or Nack of its own goes nowhere.
//
// # What is not
//
// Messages that a handler returns for publishing are published by the router after the
// inbox's commit. A crash in between loses them, and a redelivery, being a duplicate,
// publishes nothing. So they are refused ([Config.LoseProduced]): publish through an
// outbox written in the same transaction, whose rows have stable message ids, so that
// receivers can tell what comes twice. What the handler does outside the transaction, a
// call say, is not undone with it: that is for the inbox's leased form and its steps.
//
// The message's UUID must be the publisher's. A forwarder that makes a new UUID for each
// send takes the identity away: configure [Config.ID].
//
// # What a crash leaves
//
// Before the inbox's commit: nothing, and the redelivery runs. After it and before the
// acknowledgement: the effect, and the redelivery is a duplicate. Watermill's message does
// not say how often it was delivered ([inbox.Message.Deliveries] is 0 unless
// [Config.Deliveries] knows), so a message that kills its process each time is not counted by
// a [inbox.TxInbox], and comes again for ever. [Suspect] has each message claimed first, by
// which it is counted and parked in the end. An [inbox.Inbox] counts always.
package watermillinbox
