// Package dynamostore keeps records in an Amazon DynamoDB table. It may keep them
// beside business items: a claim, business writes and the answer are then one
// TransactWriteItems, of at most 100 items and 4 MB.
//
// # What it promises
//
// Every transition is one conditional write that names fence, attempt token, state,
// renewal and revision of the item as it was read with strong consistency. What a
// method has confirmed is durable in the region. Nothing is promised across the
// regions of a global table: its writes are not seen by the others in time, so give
// each key one region.
//
// DynamoDB has no clock for its callers. A key is taken over by a handle alone that
// has seen the same claim, not renewed, for a whole lease on its own monotonic clock
// (onlyonce.Features.Observes); a handle that has just started waits for a lease
// before it takes anything over. So it is with the sends of steps: that a provider does
// not find one is proof only when this handle has known of it for long enough by that
// clock, so a handle that has just met a step asks in vain for a while.
//
// The clocks of the processes decide about retention, about the turns of the recoverer,
// and about how long ago a step was first sent, which bounds sending it again by what the
// provider remembers. Keep them within seconds of each other: one that is ahead by an
// hour forgets answers an hour early. Config.MaxClockSkew, by which every first send is
// taken to be older than clocks say, must not be exceeded: beyond it a send may come
// later than the provider remembers the first.
//
// Transactions of one key run side by side, and the commit decides between them
// (onlyonce.Features.CommitDecides).
//
// # What it costs
//
// Each key is a partition of its own, named by its digest, so keys do not make a hot
// one. A new key is claimed in one round trip; a replay takes one, and a second one
// only where the server does not send the item that stood in the way. Every write
// after the claim takes one from the handle that made the claim, a read and a write
// from any other, and a read more in a transaction. Claims that name a
// resource, and transactions, cost twice the write units. What is open (in progress,
// in doubt, waiting for the recoverer) is in the sparse index "open", in eight
// parts: it bounds claims to about 4,000 a second.
//
// An item has at most 400 KB: values over 8 KiB (of steps: over 1 KiB) are kept in
// items of their own, written before what refers to them, so that an answer is
// never too large. They go with what refers to them: a kept request when the key is
// settled, an answer with its record, and large requests and results of steps too, for
// which their items are written once more when the key is completed. A process that
// crashes in between leaves such items behind, as does a key that is freed for good
// behind steps with large requests: nothing reads them, and they have no time to live.
//
// An operation has room for about 185 steps with small requests, and for about 100 with
// requests of 1 KB that stay with the record; one more is refused before it begins.
//
// Items that have expired are deleted by DynamoDB itself, by the attribute "ttl", an
// hour or more after nobody looks at them any longer, those with steps 90 days
// later. No answer depends on when. Where there is no time to live, as in
// imitations of DynamoDB, Config.SweepExpired deletes them by reading the table.
//
// The table holds requests and answers of the API: allow nobody but the service to
// read it.
package dynamostore
