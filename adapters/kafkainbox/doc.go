// Package kafkainbox feeds an inbox from Kafka: a member of a consumer group that
// tells Kafka that a record was received only when what became of it is committed.
//
// It stands on franz-go. Commits are manual; records of one partition are handled one
// after the other, partitions side by side. A record that must come again is tried again
// where it is, after a pause, until the inbox handles or parks it: its partition waits,
// the others do not, and the member stays in its group, because heartbeats do not
// depend on handling.
//
// # What is promised
//
// No offset is committed past a record without a verdict that allows it
// ([inbox.Verdict.Ack]). So a record is delivered at least once whatever fails, and the
// inbox makes that one effect an id. Within an assignment the records of a partition are
// handled in their order.
//
// # What is not
//
// Order between partitions, and order across a handover: when a handler does not end in
// time while its partition is given up (Config.Drain), the next owner may be given
// the record while the first still works at it. The inbox lets one of them take effect.
//
// The message's id must be the producer's. A record's position tells redeliveries apart,
// but not a producer that sends twice; so a record without an id goes to a function of its
// own (Config.WithoutID), and what happens to it is the caller's choice. A topic
// that is deleted and made anew begins its offsets anew, and so repeats positions. This
// package notices that some seconds later, joins the group anew, and goes on with the new
// topic where the group's offsets say.
//
// # Deliveries and poison
//
// Kafka does not say how often it has delivered a record, but a record that has ended the
// process of the member before is, in its partition, the first that was not handled. So
// [inbox.Message.Deliveries] is 2, which stands for two or more, from the beginning of an
// assignment until one of its records is handled and a commit is sure; then it is 0. With
// it the inbox claims the record before it runs, counts such tries itself, and parks a
// record that ends its process each time; meanwhile its partition waits, a lease a try. It
// costs a transaction more for few records of an assignment. What was in hand beside the
// record, in other partitions, is counted with it where it was under suspicion too.
//
// # What a crash leaves
//
//   - Before the handler's commit: nothing. The record comes again and runs.
//   - After it and before the offset's commit: the effect. The record comes again, and is a
//     duplicate. At most what was handled in one Config.CommitInterval, in each partition,
//     and while one commit was on its way.
//   - After the offset's commit: nothing comes again.
//
// The partitions of a member that was killed are idle until its session times out
// (kgo.SessionTimeout, 45 s by default). A member that ends in order leaves the group;
// with kgo.InstanceID it stays a member, by the design of static membership.
package kafkainbox
