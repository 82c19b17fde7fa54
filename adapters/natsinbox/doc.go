// Package natsinbox feeds an inbox from NATS JetStream: it pulls the messages of a
// durable consumer, and acknowledges one only when what became of it is committed.
//
// It stands on nats.go's package jetstream. Stream and consumer are the caller's, and so
// is the connection, with its reconnects (nats.MaxReconnects(-1) is what a consumer
// wants). The stream should be kept in files; one in memory is lost with its server.
//
// # What is promised
//
// No message is acknowledged without a verdict that allows it ([inbox.Verdict.Ack]). So
// every message is handled at least once whatever fails, and the inbox makes that one
// effect an id. Acks are double: the server confirms them.
//
// A message that must come again is given back with a delay, the error's RetryAfter, and
// the server delivers it then. While a message is in hand, waiting for its turn
// included, the server is told that it is in progress, so that AckWait may be short
// (it is what a crash costs) and handlers long. Other messages go on meanwhile: there is no
// order.
//
// # What the consumer must be
//
// Run checks it, and refuses what would lose messages or take them for received:
//
//   - a pull consumer, durable, with explicit acks and whole messages;
//   - without MaxDeliver, by default: JetStream drops a message that was delivered that
//     often, and says so only in an advisory. All deliveries count, those of an outage
//     in which no message can be handled as well; so the inbox parks what fails, and
//     JetStream gives nothing up. Config.LeastMaxDeliver allows a limit.
//
// # The id
//
// The id is the publisher's: the header Nats-Msg-Id, which JetStream itself uses to drop
// duplicates within a window (2 minutes by default); the inbox goes on where that
// window ends. A message without it goes to Config.WithoutID, with its position as id:
// stream, sequence and time ([Position]). That tells redeliveries apart, but not a
// publisher that sends twice.
//
// # What a crash leaves
//
//   - Before the handler's commit: nothing. AckWait later the server delivers again, with
//     a higher [inbox.Message.Deliveries], and the message runs. The inbox counts such
//     tries itself and parks a message that ends its process each time.
//   - After it and before the ack has reached the server: the effect. The message comes
//     again, and is a duplicate.
//   - After the ack: nothing comes again.
//
// A server that is killed may forget acks that it has confirmed, because it writes a
// consumer's state behind: their messages come again as duplicates. What is pulled while
// Run ends is delivered again after AckWait.
package natsinbox
