// Package redisstore keeps records in Redis or Valkey: one server, one with
// replicas behind Sentinel, or a cluster.
//
// # What it promises, and what it does not
//
// On one master every rule of the store contract holds: a claim is one atomic
// script, judged by the server's own clock. Redis confirms a write before its
// replicas have it. A failover may therefore lose a claim or an answer that was
// confirmed, and the key may then run a second time. Waiting for replicas
// (Config.WaitReplicas) makes this rarer; it cannot rule it out, since a replica
// without the write may still be promoted. For effects that must not happen
// twice keep the records in SQL, beside the business data, and use Redis as a
// cache in front; or have whatever the operation calls refuse a second time by
// itself. Store.Notes says in words what the servers at hand may lose.
//
// A server that evicts keys would forget claims without any failure. It is
// refused when the store is opened and, when a sweep finds that it has begun
// to, claims are refused until it has stopped.
//
// Requests' fingerprints and whole answers are in the servers' memory and files:
// give this program a user of its own there, and TLS (rediss://) on the way.
//
// # Form
//
// A key's record, its answer and its steps are fields of one hash whose name
// is a digest, never a caller's text, so each script touches one key and runs on
// the one node of a cluster that has it. There are no transactions with other
// data, no resources (rule C12) and no recovery by turns (rule X1), all of which
// would need a second key.
//
// # Cost
//
// Claim, replay, renewal, completion and each step's begin and end are one round
// trip. Expired hashes are deleted by the server; Sweep and List walk over all
// keys of all masters, in the background and on request. Redis 5 or later is
// needed.
package redisstore
