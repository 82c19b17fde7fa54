// Package broker publishes and consumes events by URL, on whichever broker it names:
// RabbitMQ, NATS JetStream or Kafka.
//
// Publishing ends when the broker has confirmed that it keeps the events, and fails
// while nobody would get them: where RabbitMQ has no queue for them yet. Consuming goes
// through an inbox, and tells the broker that a message was received when what became
// of it is committed.
package broker
