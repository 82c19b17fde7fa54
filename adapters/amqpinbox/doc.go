// Package amqpinbox feeds an inbox from RabbitMQ, or another broker of AMQP 0-9-1: a
// consumer of one queue that acknowledges a message only when what became of it is
// committed.
//
// It stands on amqp091-go and declares nothing: the queue, its bindings, its type and
// where it sends dead letters are the caller's. The queue should be durable and the
// messages persistent, published with confirms; else the broker itself may lose them.
//
// # What is promised
//
// No message is acknowledged without a verdict that allows it ([inbox.Verdict.Ack]). So
// every message is handled at least once whatever fails, and the inbox makes that one
// effect an id. Nothing is published, so nothing can get lost on a way back.
//
// A message that must come again is kept in hand, unacknowledged, and tried again
// after a pause: no round trips, no hot loop, and the broker counts no delivery for
// it. That matters with a limit of deliveries (a quorum queue's x-delivery-limit, which
// is 20 by default since RabbitMQ 4): an outage of the store, in which every message
// fails, uses up nothing. Each such message holds one of Config.Prefetch, so when that
// many wait, the consumer takes no more: the backlog stays in the queue, where others
// can have it. After Config.Hold a message is given back to the queue, before the broker's
// consumer_timeout (30 minutes by default) closes the channel.
//
// Messages begin to be handled in the order in which they come; with Config.Concurrency
// above one, and behind a message that is tried again, they end in any order.
//
// # Deliveries and poison
//
// [inbox.Message.Deliveries] is the count of a quorum queue. A classic queue has only
// the redelivered flag: with it Deliveries is 2, which stands for two or more. Either
// tells the inbox that the message may have ended a process, and the inbox counts such
// tries itself and parks the message. A quorum queue's own limit should be well above
// the inbox's MaxTries, with a dead-letter exchange, because what the broker gives up first
// is never parked; where it has no such exchange it is dropped.
//
// A message whose headers nest deeper than 32 tables is one that amqp091-go cannot read: it
// breaks the connection each time (EventLost with a *amqp091.Error of code 501 or 502), so
// that nothing behind it is consumed. Only the broker can take it away: by a quorum
// queue's limit of deliveries, which messages beside it use up as well, or by hand. Who may
// publish to the queue can do that; a classic queue has no such limit.
//
// Dead letters are the caller's and the broker's: expiry, a queue's limit of length and
// of deliveries. This package rejects only messages without an id, and only if told to
// ([DeadLetter]).
//
// # The id
//
// The id is the publisher's: the property message-id, a header ([Header]), or what
// Config.ID makes of the message. AMQP gives a message no position or number of its
// own that outlives a redelivery, so one without an id cannot be told from its own
// redelivery. Config.WithoutID says what then; by default Run ends with an error and the
// message stays in the queue.
//
// # What a crash leaves
//
//   - Before the handler's commit: nothing. The broker delivers again, with the
//     redelivered flag, and the message runs.
//   - After it and before the ack has reached the broker: the effect. The message comes
//     again, and is a duplicate. So it is when the connection breaks there: an ack cannot be
//     sent on another channel than the delivery's, and the handler is not interrupted.
//   - After the ack: nothing comes again.
//
// A broker that is killed forgets acks it has not written yet: their messages come again as
// duplicates.
package amqpinbox
