// Package inbox handles each message of an at-least-once source once: queues, logs
// and webhooks deliver again whenever they are not sure.
//
// A message is an operation whose caller is the consumer: its key is (consumer,
// message id), its fingerprint is the digest of its payload, and the same engine
// that guards requests guards it.
//
//   - Transactional ([TxInbox]): the message's id is recorded in the transaction of its
//     effect. A crash leaves nothing, a failed handler leaves no effect.
//   - Leased ([Inbox]): for handlers that call others, in recorded steps. The claim is
//     committed first, and derived keys come of consumer, message id and step.
//
// The source is told that a message was received ([Verdict.Ack]) only when what became
// of it is committed. A message that fails again and again is parked: its key is in
// doubt, its payload is kept, and it waits for a person ([List], [Retry], [Drop]). So is
// one that comes with another payload under an id that was handled.
package inbox
