package pgstore

import "strings"

// statements are all SQL of this package. {s} stands for the schema. Three
// things hold everywhere:
//
//   - Times are made by the server, by clock_timestamp(): now() is the start of
//     the transaction, which may lie long before a lease ended. A parameter of
//     type timestamptz takes its place in tests.
//   - Every write after the claim names digest, fence and attempt token.
//   - Writes are plain conditional statements; the row is read only when one
//     has found nothing to change.
type statements struct {
	single, inTx                                       claimStatements
	readKey, readBoth, letGoKey                        text
	lockKey, absentKey, insertAnswer                   text
	renewKey, completeKey, finishKey, ownedKey         text
	ownKey, releaseKey, parkKey                        text
	listKeys, listDoubt                                text
	beginStep, endStep, steps                          text
	lookStep, addStep                                  text
	giveTurns, putOff, kept, requeue                   text
	setting, addSetting                                text
	addAudit, audit                                    text
	sweepStart, deleteExpired                          text
	lockAbandoned, decideAbandoned, deleteExpiredSteps text
	parts                                              partitionStatements
}

// claimStatements make a claim, under the key's lock: of a fresh key, or of one
// that has a row; each once more for a claim that comes with a request to keep.
type claimStatements struct{ insertKey, takeKey, insertKept, takeKept text }

func newClaimStatements(schema, lock string) claimStatements {
	in := func(inRow, beside string) text {
		t := newText(schema, inRow, beside)
		lock := strings.NewReplacer("{lock}", lock).Replace
		return text{lock(t.inRow), lock(t.beside)}
	}
	const insert, take = insertKey + claimMade, takeKey + claimMade
	return claimStatements{
		insertKey: in(insert, insert), insertKept: in(insert, keeping(insertKey, "$18")),
		takeKey: in(take, take), takeKept: in(take, keeping(takeKey, "$21")),
	}
}

func newStatements(schema string) statements {
	in := func(sql string) text { return newText(schema, sql, sql) }
	return statements{
		single:  newClaimStatements(schema, "pg_try_advisory_xact_lock_shared"),
		inTx:    newClaimStatements(schema, "pg_try_advisory_xact_lock"),
		readKey: in(readKey), readBoth: in(readBoth), letGoKey: in(letGoKey),
		lockKey: in(lockKey), absentKey: in(absentKey), insertAnswer: newText(schema, insertAnswer, insertAnswerBeside),
		renewKey: in(renewKey), ownedKey: in(ownedKey),
		completeKey: newText(schema, completeKey, completeBeside+` SELECT completed_at, expires_at FROM done`),
		finishKey:   newText(schema, `WITH done AS (`+completeKey+`)`+finishDone, completeBeside+finishDone),
		ownKey:      in(ownKey), releaseKey: in(releaseKey), parkKey: in(parkKey),
		listKeys: in(listKeys), listDoubt: in(listDoubt),
		beginStep: in(beginStep), endStep: in(endStep), steps: in(stepsOfKey),
		lookStep: in(lookStep), addStep: in(addStep),
		giveTurns: in(giveTurns), putOff: in(putOff), kept: in(keptOfKey), requeue: in(requeueKey),
		setting: in(setting), addSetting: in(addSetting),
		addAudit: in(addAudit), audit: in(auditOfKey),
		sweepStart: in(sweepStart), deleteExpired: in(deleteExpired),
		lockAbandoned: in(lockAbandoned), decideAbandoned: in(decideAbandoned), deleteExpiredSteps: in(deleteExpiredSteps),
		parts: newPartitionStatements(schema),
	}
}

const (
	keyColumns    = columnsBefore + `{header}, {body}` + columnsBehind
	dueColumns    = columnsBefore + `NULL::bytea, NULL::bytea` + columnsBehind // of what has no answer
	columnsBefore = `scope, key, operation, fp_form, fp_secret, fp_policy, fp_sum, fp_parts, state, fence, origin,
	attempt, attempts, taken_from, abandon, reason, status, `
	columnsBehind = `, retention, created_at, lease_end, completed_at, expires_at,
	coalesce(resource, ''), holds IS NOT NULL AND state <> 2`
)

// insertKey makes a fresh key's claim, or no row. Uniqueness of the digest, and
// of the resource that is held, decides. The lock on the key is tried first and
// never waited for: a transaction that has claimed the key, and may stay open for
// long, holds it alone, and ON CONFLICT would wait for it. Single claims share the
// lock, so that they do wait for each other, which takes no longer than a commit:
// the loser then sees the winner's row, and a repeated claim finds itself. For the
// same reason the resource's holder is looked for first: it may be completing in a
// transaction of the caller's own, which ON CONFLICT would wait for.
const insertKey = `
INSERT INTO {s}onlyonce_keys (digest, retention, fp_form, abandon, scope, key, operation,
	fp_secret, fp_policy, fp_sum, fp_parts, attempt, attempts, origin, fence, created_at, lease_end,
	resource, holds, {keep}, turn_at, due_at)
SELECT $1::bytea, $2::bigint, $3::integer, $4::smallint, $5::text, $6::text, $7::text,
	$8::text, $9::text, $10::bytea, $11::bytea, $12::bytea, 1, c.us, c.us, c.now, c.lease_end,
	nullif($16::text, ''), $17::bytea, {keep_fresh},
	CASE WHEN $18::bytea IS NOT NULL THEN c.lease_end END, CASE WHEN $18::bytea IS NOT NULL THEN c.lease_end END
FROM (SELECT t.now, (extract(epoch FROM t.now) * 1000000)::bigint AS us, t.now + $13::bigint * interval '1 microsecond' AS lease_end
	FROM (SELECT coalesce($14::timestamptz, clock_timestamp()) AS now) t) c
WHERE {lock}($15::bigint)
	AND ($17::bytea IS NULL OR NOT EXISTS (SELECT FROM {s}onlyonce_keys h WHERE h.holds = $17::bytea))
ON CONFLICT DO NOTHING`

// claimMade is what a claim's statement gives back.
const claimMade = `
RETURNING fence, origin, created_at, attempts, lease_end`

// lockKey and absentKey claim a fresh key for a transaction in read committed:
// nobody makes a row without the lock, and the look-up, a statement of its own,
// has a snapshot younger than the lock. No row is written before the answer is
// there, so none is written twice.
const (
	lockKey   = `SELECT true WHERE pg_try_advisory_xact_lock($1::bigint)`
	absentKey = `
SELECT coalesce($2::timestamptz, clock_timestamp())
WHERE NOT EXISTS (SELECT FROM {s}onlyonce_keys WHERE digest = $1::bytea)`
)

// waitKey waits for a key's lock, within the lock timeout.
const waitKey = `SELECT true FROM pg_advisory_xact_lock($1::bigint)`

// insertAnswer writes the row of such a claim, completed. It has no ON CONFLICT:
// COMMIT is sent with it, and must not run without it.
const insertAnswer = `
INSERT INTO {s}onlyonce_keys (digest, retention, fp_form, abandon, scope, key, operation,
	fp_secret, fp_policy, fp_sum, fp_parts, attempt, attempts, origin, fence, created_at, lease_end,
	state, status, header, body, completed_at, expires_at)
SELECT $1::bytea, $2::bigint, $3::integer, $4::smallint, $5::text, $6::text, $7::text,
	$8::text, $9::text, $10::bytea, $11::bytea, $12::bytea, 1, $15::bigint, $15::bigint, $16::timestamptz,
	$16::timestamptz + $13::bigint * interval '1 microsecond',
	2, $17::smallint, $18::bytea, $19::bytea, c.now, c.now + $2::bigint * interval '1 microsecond'
FROM (SELECT coalesce($14::timestamptz, clock_timestamp()) AS now) c
RETURNING completed_at, expires_at`

// readKey reads a record and the time to judge it by. It takes no lock and
// writes nothing.
const readKey = `
SELECT ` + keyColumns + `, coalesce($2::timestamptz, clock_timestamp())
FROM {keys} WHERE digest = $1::bytea`

// readBoth reads, as of one moment, a record and that of the other key that holds
// the digest of a resource. Whether the latter has expired is not looked at.
const readBoth = `
SELECT ` + keyColumns + `, coalesce($2::timestamptz, clock_timestamp()), true
FROM {keys} WHERE digest = $1::bytea
UNION ALL
SELECT ` + keyColumns + `, coalesce($2::timestamptz, clock_timestamp()), false
FROM {keys} WHERE holds = $3::bytea AND digest <> $1::bytea`

// letGoKey takes the resource from a record that has expired, or that a program of
// version 1, which knows of no resources, has completed. A row that somebody is
// just working on is left alone.
const letGoKey = `
UPDATE {s}onlyonce_keys SET holds = NULL
WHERE digest = (SELECT digest FROM {s}onlyonce_keys
	WHERE digest = $1::bytea AND fence = $2::bigint AND attempt = $3::bytea AND holds IS NOT NULL
		AND (state = 2 OR (state = 3 AND expires_at <= coalesce($4::timestamptz, clock_timestamp())))
	FOR NO KEY UPDATE SKIP LOCKED)
RETURNING true`

// takeKey makes the claimer the owner of a row that was read and judged, if it
// is still as it was: a renewal in between moves lease_end, any other change
// moves fence, token or state. $18 begins a new life. Uniqueness of what is held
// decides between two that take over for one resource (23505 for the second). A
// life goes on with what was kept of its request, and with its turns: none comes
// earlier than the lease ends, nor than the pause behind the last one.
const takeKey = `
UPDATE {s}onlyonce_keys SET
	origin = CASE WHEN $18::boolean THEN greatest(fence + 1, c.us) ELSE origin END,
	created_at = CASE WHEN $18::boolean THEN c.now ELSE created_at END,
	attempts = CASE WHEN $18::boolean THEN 1 ELSE attempts + 1 END,
	fence = greatest(fence + 1, c.us), lease_end = c.until, attempt = $13::bytea,
	taken_from = CASE WHEN $18::boolean THEN 0 ELSE state END, retention = $3::bigint, fp_form = $4::integer, abandon = $5::smallint, operation = $6::text,
	fp_secret = $7::text, fp_policy = $8::text, fp_sum = $9::bytea, fp_parts = $10::bytea,
	state = 1, doubt = false, status = NULL, completed_at = NULL, expires_at = NULL, reason = '', {no_answer},
	resource = nullif($19::text, ''), holds = $20::bytea,
	{keep_taken},
	turn = CASE WHEN $18::boolean THEN NULL ELSE turn END,
	turn_at = CASE WHEN $21::bytea IS NOT NULL OR ({kept} IS NOT NULL AND NOT $18::boolean)
		THEN greatest(CASE WHEN $18::boolean THEN NULL ELSE turn_at END, c.until)
		WHEN NOT $18::boolean THEN turn_at END,
	due_at = CASE WHEN $21::bytea IS NOT NULL OR ({kept} IS NOT NULL AND NOT $18::boolean)
		THEN greatest(CASE WHEN $18::boolean THEN NULL ELSE turn_at END, c.until) END
FROM (SELECT t.now, (extract(epoch FROM t.now) * 1000000)::bigint AS us, t.now + $12::bigint * interval '1 microsecond' AS until
	FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS now) t) c
WHERE digest = $1::bytea AND fence = $14::bigint AND attempt = $15::bytea AND state = $16::smallint
	AND lease_end = $17::timestamptz AND {lock}($2::bigint)`

// renewKey does not look at the old lease: only a later claim ends an owner's
// right. Of what is indexed it changes nothing, unless the lease becomes so much
// shorter that it ends before the moment putOff has put the row off to.
const renewKey = `
UPDATE {s}onlyonce_keys SET lease_end = c.until,
	due_at = CASE WHEN due_at > c.until THEN greatest(turn_at, c.until) ELSE due_at END
FROM (SELECT coalesce($5::timestamptz, clock_timestamp()) + $4::bigint * interval '1 microsecond' AS until) c
WHERE digest = $1::bytea AND fence = $2::bigint AND attempt = $3::bytea AND state = 1
RETURNING true`

// completeKey stores the answer, lets the resource go and forgets the request.
// Nothing it changes is indexed while the key is not in doubt and holds and keeps
// nothing.
const completeKey = `
UPDATE {s}onlyonce_keys SET state = 2, doubt = false, status = $4::smallint, completed_at = c.now,
	expires_at = c.now + retention * interval '1 microsecond', reason = '', header = $5::bytea, body = $6::bytea,
	holds = NULL, keep = NULL, turn_at = NULL, due_at = NULL
FROM (SELECT coalesce($7::timestamptz, clock_timestamp()) AS now) c
WHERE digest = $1::bytea AND fence = $2::bigint AND attempt = $3::bytea AND state IN (1, 4)
RETURNING completed_at, expires_at`

// finishDone ends completeKey where COMMIT is sent with it: it fails (22012,
// division by zero) when nothing was completed, because then nothing may be
// committed. It asks the update itself, not the row's xmin, which is that of a
// subtransaction when the handler has left a savepoint open.
const finishDone = `
SELECT (SELECT completed_at FROM done), (SELECT expires_at FROM done), 1 / (SELECT count(*) FROM done)`

// ownedKey reads what became of the owner's key, while it is the owner's.
const ownedKey = `
SELECT state, expires_at FROM {s}onlyonce_keys
WHERE digest = $1::bytea AND fence = $2::bigint AND attempt = $3::bytea`

// releaseKey frees the key. One with a step that is begun or done lives for $6 at
// least, since a new life would begin without it, and keeps its resource and its
// request: money may have moved. ownKey runs before it in the same transaction: the
// snapshot in which steps are looked for must be younger than the lock, since a step
// that is just being recorded counts.
const ownKey = `
SELECT true FROM {s}onlyonce_keys
WHERE digest = $1::bytea AND fence = $2::bigint AND attempt = $3::bytea AND state = 1
FOR NO KEY UPDATE`

const releaseKey = `
UPDATE {s}onlyonce_keys k SET state = 3, reason = $4::text, (expires_at, holds, {keep}, due_at) = (
	SELECT coalesce($5::timestamptz, clock_timestamp()) + CASE WHEN b.behind THEN greatest(k.retention, $6::bigint) ELSE k.retention END * interval '1 microsecond',
		CASE WHEN b.behind THEN k.holds END, {keep_behind},
		CASE WHEN b.behind AND k.due_at IS NOT NULL THEN k.turn_at END
	FROM (SELECT count(*) > 0 AS behind FROM {s}onlyonce_steps s WHERE s.digest = k.digest AND s.origin = k.origin AND s.state <> 3) b)
WHERE digest = $1::bytea AND fence = $2::bigint AND attempt = $3::bytea AND state = 1
RETURNING true`

// parkKey puts the key in doubt; $5 only once its lease is over. Fence and
// token stay: the doubted attempt's own late completion still counts.
const parkKey = `
UPDATE {s}onlyonce_keys SET state = 4, doubt = true, reason = $4::text,
	due_at = CASE WHEN due_at IS NOT NULL THEN turn_at END
WHERE digest = $1::bytea AND fence = $2::bigint AND attempt = $3::bytea AND state = 1
	AND (NOT $5::boolean OR lease_end <= coalesce($6::timestamptz, clock_timestamp()))
RETURNING true`

// listKeys walks the primary key. What has expired is absent.
const listKeys = `
SELECT ` + keyColumns + `, coalesce($5::timestamptz, clock_timestamp())
FROM {keys}
WHERE digest > $1::bytea AND ($2::smallint = 0 OR state = $2::smallint) AND ($3::text = '' OR scope = $3::text)
	AND (expires_at IS NULL OR expires_at > coalesce($5::timestamptz, clock_timestamp()))
ORDER BY digest LIMIT $4::bigint`

// listDoubt is listKeys for what is in doubt, by the index of that.
const listDoubt = `
SELECT ` + keyColumns + `, coalesce($4::timestamptz, clock_timestamp())
FROM {keys}
WHERE doubt AND digest > $1::bytea AND ($2::text = '' OR scope = $2::text)
ORDER BY digest LIMIT $3::bigint`

// beginStep records an intent for the owner of a key in progress. The key's row
// is locked within the statement, so that a takeover either waits for the step
// to be recorded, and then sees it, or comes first, and nothing is recorded.
// Another send of a begun step leaves its intent as it was; of their deadlines
// the latest counts. A step that is done, a higher epoch without proof, and an old epoch after proof
// are left alone.
const beginStep = `
WITH owner AS (
	SELECT digest, origin FROM {s}onlyonce_keys
	WHERE digest = $1::bytea AND fence = $2::bigint AND attempt = $3::bytea AND state = 1
	FOR SHARE)
INSERT INTO {s}onlyonce_steps AS s (digest, origin, name, occurrence, position,
	provider, epoch, derived_key, reference, request, send_within, state, sends, begun_at, sent_at)
SELECT o.digest, o.origin, $4::text, $5::integer,
	(SELECT count(*) FROM {s}onlyonce_steps e WHERE e.digest = o.digest AND e.origin = o.origin),
	$6::text, $7::integer, $8::text, $9::text, $10::bytea, $11::bigint, 1, 1, c.now, c.now
FROM owner o, (SELECT coalesce($12::timestamptz, clock_timestamp()) AS now) c
ON CONFLICT (digest, origin, name, occurrence) DO UPDATE SET
	provider = CASE WHEN s.state = 1 THEN s.provider ELSE excluded.provider END,
	derived_key = CASE WHEN s.state = 1 THEN s.derived_key ELSE excluded.derived_key END,
	reference = CASE WHEN s.state = 1 THEN s.reference ELSE excluded.reference END,
	request = CASE WHEN s.state = 1 THEN s.request ELSE excluded.request END,
	send_within = CASE WHEN s.state = 1 THEN greatest(excluded.send_within,
		s.send_within + (extract(epoch FROM s.sent_at - excluded.sent_at) * 1000000)::bigint) ELSE excluded.send_within END,
	sends = CASE WHEN s.state = 1 THEN s.sends + 1 ELSE 1 END,
	begun_at = CASE WHEN s.state = 1 THEN s.begun_at ELSE excluded.begun_at END,
	epoch = excluded.epoch, sent_at = excluded.sent_at, ended_at = NULL, state = 1, result = NULL
WHERE (s.state = 1 AND excluded.epoch = s.epoch) OR (s.state = 3 AND excluded.epoch > s.epoch)
RETURNING true`

// endStep records how a begun step ended. Repeated, the first end stands.
const endStep = `
WITH owner AS (
	SELECT digest, origin FROM {s}onlyonce_keys
	WHERE digest = $1::bytea AND fence = $2::bigint AND attempt = $3::bytea AND state = 1
	FOR SHARE)
UPDATE {s}onlyonce_steps s SET state = $6::smallint,
	result = CASE WHEN s.state = 1 THEN $7::bytea ELSE s.result END,
	ended_at = CASE WHEN s.state = 1 THEN coalesce($8::timestamptz, clock_timestamp()) ELSE s.ended_at END
FROM owner o
WHERE s.digest = $1::bytea AND s.origin = o.origin AND s.name = $4::text AND s.occurrence = $5::integer
	AND s.state IN (1, $6::smallint)
RETURNING true`

// lookStep reads what is recorded of a step, while the owner holds the key in
// progress; NULL: nothing. It takes no lock, so that the lease can be renewed while
// the step's transaction is open.
const lookStep = `
SELECT s.state, s.provider, s.result
FROM {s}onlyonce_keys k LEFT JOIN {s}onlyonce_steps s
	ON s.digest = k.digest AND s.origin = k.origin AND s.name = $4::text AND s.occurrence = $5::integer
WHERE k.digest = $1::bytea AND k.fence = $2::bigint AND k.attempt = $3::bytea AND k.state = 1`

// addStep records a step of the store's own as done, where COMMIT is sent with it:
// it fails when the owner does not hold the key in progress any more (22012,
// division by zero), or when something is recorded under the step's name (23505),
// because then nothing may be committed. The key's row is locked as in beginStep: a
// takeover waits for the commit, and then sees the step, or comes first.
const addStep = `
WITH owner AS (
	SELECT digest, origin FROM {s}onlyonce_keys
	WHERE digest = $1::bytea AND fence = $2::bigint AND attempt = $3::bytea AND state = 1
	FOR SHARE),
added AS (
	INSERT INTO {s}onlyonce_steps (digest, origin, name, occurrence, position, provider, epoch,
		derived_key, reference, request, send_within, state, sends, begun_at, sent_at, ended_at, result)
	SELECT o.digest, o.origin, $4::text, $5::integer,
		(SELECT count(*) FROM {s}onlyonce_steps e WHERE e.digest = o.digest AND e.origin = o.origin),
		$6::text, 0, '', '', '', 0, 2, 1, c.now, c.now, c.now, $7::bytea
	FROM owner o, (SELECT coalesce($8::timestamptz, clock_timestamp()) AS now) c
	RETURNING 1)
SELECT 1 / (SELECT count(*) FROM added)`

// stepsOfKey reads the steps of the key's present life.
const stepsOfKey = `
SELECT s.name, s.occurrence, s.provider, s.epoch, s.derived_key, s.reference, s.request, s.send_within,
	s.state, s.result, s.sends, s.begun_at, s.sent_at, coalesce($4::timestamptz, clock_timestamp())
FROM {s}onlyonce_keys k JOIN {s}onlyonce_steps s ON s.digest = k.digest AND s.origin = k.origin
WHERE k.digest = $1::bytea AND k.scope = $2::text AND k.key = $3::text
ORDER BY s.position, s.begun_at, s.name, s.occurrence`

// aCall tells of row k whether a step of its life outside the store is begun or
// done; $2 is what the others have for a provider. It counts, so that no plan reads
// all steps for it, as one of EXISTS may.
const aCall = `(SELECT count(*) FROM {s}onlyonce_steps s
		WHERE s.digest = k.digest AND s.origin = k.origin AND s.state IN (1, 2) AND s.provider <> $2::text) > 0`

// dueWindow begins the statements about what is due: what the clock showed $3 ago,
// the operations that are asked for, $5 or else all of which anything is kept, and
// how far the first $4 of their entries in the index reach that were due by then. No
// statement looks at more than these, nor at more than $4 of any operation to find
// them, however many of other operations are due. All operations are found by one
// look into the index for each. Pairs are compared, so that no plan collects and
// sorts all that is due of an operation.
const dueWindow = `
WITH RECURSIVE c AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
grace AS MATERIALIZED (SELECT now - $3::bigint * interval '1 microsecond' AS past FROM c),
known AS (
	(SELECT operation FROM {s}onlyonce_keys WHERE $5::text[] IS NULL AND due_at IS NOT NULL ORDER BY operation LIMIT 1)
	UNION ALL
	SELECT (SELECT n.operation FROM {s}onlyonce_keys n WHERE n.due_at IS NOT NULL AND n.operation > known.operation ORDER BY n.operation LIMIT 1)
	FROM known WHERE known.operation IS NOT NULL),
asked AS MATERIALIZED (SELECT coalesce($5::text[], ARRAY (SELECT operation FROM known WHERE operation IS NOT NULL)) AS operations),
reach AS MATERIALIZED (SELECT max(w.due_at) AS upto FROM (
	SELECT e.due_at FROM unnest((SELECT operations FROM asked)) AS a (operation) CROSS JOIN LATERAL (
		SELECT n.due_at FROM {s}onlyonce_keys n WHERE n.due_at IS NOT NULL
			AND (n.operation, n.due_at) >= (a.operation, timestamptz '-infinity') AND (n.operation, n.due_at) <= (a.operation, (SELECT past FROM grace))
		ORDER BY n.operation, n.due_at LIMIT $4::bigint) e
	ORDER BY e.due_at LIMIT $4::bigint) w)`

// nextTurn is when the next turn of row k comes: $7 after its first, twice as long
// after each other one, at most $8. Floating point is exact for such numbers.
const nextTurn = `(SELECT now FROM c) + least($7::float8 * power(2, least(coalesce(k.turn, 0), 60)), $8::float8) * interval '1 microsecond'`

// giveTurns gives keys whose turn has come and puts the next one off. Rows that
// somebody is just working on are passed by: what one recoverer is given no other
// is. What is set goes by the row as it is then, not as it was found.
const giveTurns = dueWindow + `,
due AS MATERIALIZED (
	SELECT k.digest, k.due_at AS was FROM {s}onlyonce_keys k
	WHERE k.due_at <= (SELECT upto FROM reach) AND k.operation = ANY ((SELECT operations FROM asked)::text[]) AND (k.state = 4
		OR (k.state = 1 AND k.lease_end <= (SELECT past FROM grace))
		OR (k.state = 3 AND k.expires_at > (SELECT now FROM c) AND ` + aCall + `))
	ORDER BY k.due_at LIMIT $6::bigint FOR NO KEY UPDATE OF k SKIP LOCKED),
given AS (
	UPDATE {s}onlyonce_keys k SET turn = coalesce(k.turn, 0) + 1, turn_at = ` + nextTurn + `, due_at = ` + nextTurn + `
	WHERE k.digest = ANY (ARRAY (SELECT digest FROM due))
	RETURNING k.*)
SELECT ` + dueColumns + `, (SELECT now FROM c), {request}, turn FROM given JOIN due USING (digest){requests} ORDER BY was`

// putOff takes rows that are not due out of the way of those that are: a renewal
// moves no index entry, so that a long attempt's stays where its first lease ended.
// Where a lease runs on, the row is looked at again when it ends; turn_at stays,
// and what ends the attempt otherwise puts due_at back to it. Of the others none
// becomes due before another claim. It gives how many rows there were.
const putOff = dueWindow + `,
idle AS MATERIALIZED (
	SELECT k.digest FROM {s}onlyonce_keys k
	WHERE k.due_at <= (SELECT upto FROM reach) AND k.operation = ANY ((SELECT operations FROM asked)::text[]) AND k.state <> 4
		AND NOT (k.state = 1 AND k.lease_end <= (SELECT past FROM grace))
		AND NOT (k.state = 3 AND k.expires_at > (SELECT now FROM c) AND ` + aCall + `)
	ORDER BY k.due_at LIMIT $4::bigint FOR NO KEY UPDATE OF k SKIP LOCKED),
moved AS (
	UPDATE {s}onlyonce_keys k SET due_at = CASE k.state WHEN 1 THEN k.lease_end ELSE 'infinity' END
	WHERE k.digest = ANY (ARRAY (SELECT digest FROM idle))
	RETURNING 1)
SELECT count(*) FROM moved`

// keptOfKey reads what is kept. What has expired is absent.
const keptOfKey = `
SELECT {request} FROM {s}onlyonce_keys{requests}
WHERE digest = $1::bytea AND scope = $2::text AND key = $3::text AND {kept} IS NOT NULL
	AND (expires_at IS NULL OR expires_at > coalesce($4::timestamptz, clock_timestamp()))`

// requeueKey makes the next turn the first, and due whatever the grace.
const requeueKey = `
UPDATE {s}onlyonce_keys SET turn = NULL, turn_at = '-infinity', due_at = '-infinity'
WHERE digest = $1::bytea AND scope = $2::text AND key = $3::text AND {kept} IS NOT NULL
	AND (expires_at IS NULL OR expires_at > coalesce($4::timestamptz, clock_timestamp()))
RETURNING true`

const setting = `SELECT value FROM {s}onlyonce_settings WHERE kind = $1::text AND id = $2::text`

// addSetting inserts, or gives no row when a value stands already.
const addSetting = `
INSERT INTO {s}onlyonce_settings (kind, id, value) VALUES ($1::text, $2::text, $3::bytea)
ON CONFLICT (kind, id) DO NOTHING
RETURNING value`

const addAudit = `
INSERT INTO {s}onlyonce_audit (digest, scope, key, action, actor, reason, fence, at)
VALUES ($1::bytea, $2::text, $3::text, $4::text, $5::text, $6::text, $7::bigint, coalesce($8::timestamptz, clock_timestamp()))
RETURNING true`

const auditOfKey = `
SELECT action, actor, reason, fence, at FROM {s}onlyonce_audit
WHERE digest = $1::bytea AND scope = $2::text AND key = $3::text
ORDER BY id`

// sweepStart makes this transaction the only sweeper, or not, and tells how
// many pages there are to walk.
const sweepStart = `
SELECT pg_try_advisory_xact_lock($1::bigint), coalesce($2::timestamptz, clock_timestamp()),
	pg_relation_size('{s}onlyonce_keys'::regclass) / current_setting('block_size')::bigint,
	pg_relation_size('{s}onlyonce_steps'::regclass) / current_setting('block_size')::bigint`

// deleteExpired deletes what has expired between two pages. Rows that somebody
// is just working on are left for the next time.
const deleteExpired = `
WITH gone AS (
	DELETE FROM {s}onlyonce_keys
	WHERE state IN (2, 3) AND expires_at <= $3::timestamptz AND ctid = ANY (ARRAY (
		SELECT ctid FROM {s}onlyonce_keys
		WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND state IN (2, 3) AND expires_at <= $3::timestamptz
		LIMIT $4::bigint FOR UPDATE SKIP LOCKED))
	RETURNING ctid)
SELECT count(*), coalesce((max(ctid)::text::point)[0], 0)::bigint FROM gone`

// lockAbandoned finds attempts whose lease has been over for long, between two
// pages, and keeps them as they are while their steps are looked at.
const lockAbandoned = `
SELECT digest, (ctid::text::point)[0]::bigint FROM {s}onlyonce_keys
WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND state = 1
	AND lease_end <= $3::timestamptz - $4::bigint * interval '1 microsecond'
LIMIT $5::bigint FOR NO KEY UPDATE SKIP LOCKED`

// decideAbandoned decides locked rows as a takeover would: a step that has begun
// may have had an effect, one that is done has had it; without either the key
// is free. What it frees it frees as releaseKey does, with $7 for its $6. It is a
// statement of its own because its snapshot must be younger than the locks: a step
// begun just before they were taken counts.
const decideAbandoned = `
WITH decided AS (
	UPDATE {s}onlyonce_keys k SET
		state = CASE WHEN d.verdict IS NULL THEN 3 ELSE 4 END,
		doubt = d.verdict IS NOT NULL,
		reason = coalesce(d.verdict, $5::text),
		expires_at = CASE WHEN d.verdict IS NULL THEN $2::timestamptz
			+ CASE WHEN d.trace IS NULL THEN k.retention ELSE greatest(k.retention, $7::bigint) END * interval '1 microsecond' END,
		holds = CASE WHEN d.stays THEN k.holds END, {keep_stays},
		due_at = CASE WHEN d.stays AND k.due_at IS NOT NULL THEN k.turn_at END
	FROM (
		SELECT t.*, t.verdict IS NOT NULL OR t.trace IS NOT NULL AS stays FROM (
			SELECT a.digest, s.trace, CASE a.abandon
				WHEN 0 THEN $3::text
				WHEN 2 THEN CASE s.trace WHEN 1 THEN $4::text WHEN 2 THEN $6::text END
				END AS verdict
			FROM {s}onlyonce_keys a CROSS JOIN LATERAL (
				SELECT min(s.state) AS trace FROM {s}onlyonce_steps s
				WHERE s.digest = a.digest AND s.origin = a.origin AND s.state IN (1, 2)) s
			WHERE a.digest = ANY ($1::bytea[]) AND a.state = 1) t) d
	WHERE k.digest = d.digest AND k.state = 1
	RETURNING k.state)
SELECT count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4) FROM decided`

// deleteExpiredSteps deletes steps that have not changed for long and whose
// life of the key is over.
const deleteExpiredSteps = `
WITH gone AS (
	DELETE FROM {s}onlyonce_steps WHERE ctid = ANY (ARRAY (
		SELECT s.ctid FROM {s}onlyonce_steps s
		WHERE s.ctid >= $1::text::tid AND s.ctid < $2::text::tid
			AND greatest(s.sent_at, s.ended_at) < $3::timestamptz - $4::bigint * interval '1 microsecond'
			AND NOT EXISTS (SELECT FROM {s}onlyonce_keys k WHERE k.digest = s.digest AND k.origin = s.origin)
		LIMIT $5::bigint FOR UPDATE OF s SKIP LOCKED))
	RETURNING ctid)
SELECT count(*), coalesce((max(ctid)::text::point)[0], 0)::bigint FROM gone`
