// Package processor is a simulated card processor and a client for it.
//
// The [Server] stands for the company on the other side of a payment: a
// separate HTTP API with idempotency of its own, a memory of its own and no
// knowledge of ours. Because it counts what it did, anybody can ask it from
// outside whether a customer was charged twice. It misbehaves on request: a
// source token such as "tok_error_after" charges the card and then answers 500,
// "tok_reset_after" charges it and cuts the connection, "tok_timeout" charges
// it and says nothing. Faults fire once for a key, so that the second attempt
// shows what the first one did. [Sources] and [Faults] list them all.
//
// The [Client] makes one HTTP request for one call, never two, and tells with
// [FateOf] what an error means for the money: not sent, refused, or unknown. A
// declined card is no error; it is an answer. A [Provider] is the same as an adapter
// for package provider.
//
// The API:
//
//	POST /v1/charges                 create a charge
//	POST /v1/refunds                 give back a part of a charge, or all of it
//	GET  /v1/charges?reference=REF   look a charge up by the caller's reference
//	GET  /v1/refunds?reference=REF   look a refund up
//	GET  /v1/charges?cursor=&limit=  all charges, a page at a time
//	GET  /v1/refunds?cursor=&limit=  all refunds, a page at a time
//	GET  /v1/report.csv              the settlement report: all money that moved
//	GET  /v1/stats                   what happened, counted
//	GET  /healthz                    whether it can still record charges
//
// A refusal is JSON with "code" and "message".
package processor
