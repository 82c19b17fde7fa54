package pgstore

// completeBeside is completeKey where the answer stands beside the key: one
// statement for the key and its answer, so that neither is ever seen without the
// other.
const completeBeside = `
WITH done AS (
	UPDATE {s}onlyonce_keys SET state = 2, doubt = false, status = $4::smallint, completed_at = c.now,
		expires_at = c.now + retention * interval '1 microsecond', reason = '',
		answer_slot = {slot_done},
		holds = NULL, keep_slot = NULL, keep_claim = NULL, turn_at = NULL, due_at = NULL
	FROM (SELECT coalesce($7::timestamptz, clock_timestamp()) AS now) c
	WHERE digest = $1::bytea AND fence = $2::bigint AND attempt = $3::bytea AND state IN (1, 4)
	RETURNING digest, completed_at, expires_at, answer_slot),
stored AS (
	INSERT INTO {s}onlyonce_answers (slot, until, of_key, answer_header, answer_body)
	SELECT answer_slot, expires_at, digest, $5::bytea, $6::bytea FROM done)`

// insertAnswerBeside is insertAnswer likewise.
const insertAnswerBeside = `
WITH done AS (
	INSERT INTO {s}onlyonce_keys (digest, retention, fp_form, abandon, scope, key, operation,
		fp_secret, fp_policy, fp_sum, fp_parts, attempt, attempts, origin, fence, created_at, lease_end,
		state, status, completed_at, expires_at, answer_slot)
	SELECT $1::bytea, $2::bigint, $3::integer, $4::smallint, $5::text, $6::text, $7::text,
		$8::text, $9::text, $10::bytea, $11::bytea, $12::bytea, 1, $15::bigint, $15::bigint, $16::timestamptz,
		$16::timestamptz + $13::bigint * interval '1 microsecond',
		2, $17::smallint, c.now, c.until,
		{slot_until}
	FROM (SELECT t.now, t.now + $2::bigint * interval '1 microsecond' AS until
		FROM (SELECT coalesce($14::timestamptz, clock_timestamp()) AS now) t) c
	RETURNING digest, completed_at, expires_at, answer_slot),
stored AS (
	INSERT INTO {s}onlyonce_answers (slot, until, of_key, answer_header, answer_body)
	SELECT answer_slot, expires_at, digest, $18::bytea, $19::bytea FROM done)
SELECT completed_at, expires_at FROM done`

// keeping has a claim's statement store, beside the key, the request that the
// parameter holds, if the claim is the one the request came with. A request is
// named after that claim, whose fence never returns: one that was kept before
// under the same key is another.
func keeping(claim, parameter string) string {
	return `
WITH made AS (` + claim + claimMade + `, digest, keep_slot, keep_claim),
stored AS (
	INSERT INTO {s}onlyonce_requests (slot, claim, of_key, request)
	SELECT keep_slot, keep_claim, digest, ` + parameter + `::bytea FROM made WHERE keep_claim = fence)
SELECT fence, origin, created_at, attempts, lease_end FROM made`
}

// partitionStatements look after the partitions.
type partitionStatements struct {
	over, mayEmpty, lock, empty, turn, recorded string
	take, moveAnswers, moveRequests             text
	restSizes, deleteAnswers, deleteRequests    string
	pad                                         []text
}

func newPartitionStatements(schema string) partitionStatements {
	in := func(sql string) string { return newText(schema, sql, sql).beside }
	st := func(sql string) text { return newText(schema, sql, sql) }
	return partitionStatements{
		over: in(partitionsOver), mayEmpty: in(mayEmpty), lock: in(lockPartition),
		take: st(takePartition), moveAnswers: st(moveAnswers), moveRequests: st(moveRequests),
		empty: in(emptyPartition), turn: in(turnPartition), recorded: in(recordedPartitions),
		pad:       []text{st(padAnswers), st(unpadAnswers), st(padRequests), st(unpadRequests)},
		restSizes: in(restSizes), deleteAnswers: in(deleteRestAnswers), deleteRequests: in(deleteRestRequests),
	}
}

// recordedPartitions reads how the tables are partitioned.
const recordedPartitions = `SELECT (extract(epoch FROM max(every)) * 1000000)::bigint, count(*) FROM {s}onlyonce_partitions`

// partitionsOver gives the partitions whose period is over, the oldest first.
const partitionsOver = `
SELECT slot FROM {s}onlyonce_partitions WHERE upto <= coalesce($1::timestamptz, clock_timestamp()) ORDER BY upto, slot`

// takePartition makes this transaction the only one that looks after a partition,
// if its period is over still.
const takePartition = `
SELECT true FROM {s}onlyonce_partitions WHERE slot = $1::smallint AND upto <= coalesce($2::timestamptz, clock_timestamp())
FOR UPDATE SKIP LOCKED`

// mayEmpty tells whether the role may empty all partitions.
const mayEmpty = `
SELECT coalesce(bool_and(has_table_privilege(t.relid, 'TRUNCATE')), false) FROM (
	SELECT relid FROM pg_partition_tree('{s}onlyonce_answers') WHERE isleaf
	UNION ALL SELECT relid FROM pg_partition_tree('{s}onlyonce_requests') WHERE isleaf) t`

// hurry has a transaction wait for a lock no longer than readers may be made to
// wait behind it, end by itself when its client is gone, and read no whole table,
// whatever the planner believes of one that nobody has analysed.
const hurry = `
SELECT set_config('lock_timeout', '100', true), set_config('idle_in_transaction_session_timeout', '5000', true),
	set_config('enable_seqscan', 'off', true)`

// lockPartition keeps everybody out of a partition. Whoever has written into it has
// committed by then, and is seen by the statements behind it.
const lockPartition = `LOCK TABLE {s}onlyonce_answers_%[1]d, {s}onlyonce_requests_%[1]d IN ACCESS EXCLUSIVE MODE`

// emptyPartition empties a partition as a whole.
const emptyPartition = `TRUNCATE {s}onlyonce_answers_%[1]d, {s}onlyonce_requests_%[1]d`

// turnPartition gives an emptied partition the next range that no other has; never
// one that is over.
const turnPartition = `
UPDATE {s}onlyonce_partitions p SET since = n.since, upto = n.since + p.every
FROM (SELECT greatest(max(o.upto), date_bin(max(o.every), coalesce($2::timestamptz, clock_timestamp()), timestamptz '2000-01-01 00:00:00+00')) AS since
	FROM {s}onlyonce_partitions o) n
WHERE p.slot = $1::smallint AND p.upto <= coalesce($2::timestamptz, clock_timestamp())
RETURNING true`

// moveAnswers moves up to $3 answers that have not expired out of partition $1, into
// the one that is never emptied as a whole. There are none unless somebody has
// written them by hand, or another clock than the server's was at work: one look at
// the end of the index comes first, so that no plan reads the partition to find that.
const moveAnswers = `
WITH live AS MATERIALIZED (
	SELECT a.of_key, a.until FROM {s}onlyonce_answers a
		JOIN {s}onlyonce_keys k ON k.digest = a.of_key AND k.answer_slot = a.slot AND k.expires_at = a.until
	WHERE a.slot = $1::smallint AND a.until > coalesce($2::timestamptz, clock_timestamp())
		AND (SELECT max(l.until) > coalesce($2::timestamptz, clock_timestamp()) FROM {s}onlyonce_answers l WHERE l.slot = $1::smallint)
	LIMIT $3::bigint),
copied AS (
	INSERT INTO {s}onlyonce_answers (slot, until, of_key, answer_header, answer_body)
	SELECT 0, a.until, a.of_key, a.answer_header, a.answer_body FROM live JOIN {s}onlyonce_answers a USING (of_key, until)
	WHERE a.slot = $1::smallint
	RETURNING of_key, until),
moved AS (
	UPDATE {s}onlyonce_keys k SET answer_slot = 0 FROM copied c
	WHERE k.digest = c.of_key AND k.answer_slot = $1::smallint AND k.expires_at = c.until
	RETURNING 1)
SELECT count(*) FROM moved`

// moveRequests moves likewise up to $2 requests of keys that are under way, in
// doubt, or freed behind a step: the index of what is due has them all.
const moveRequests = `
WITH live AS MATERIALIZED (
	SELECT k.digest, k.keep_claim FROM {s}onlyonce_keys k
	WHERE k.due_at IS NOT NULL AND k.keep_slot = $1::smallint
	LIMIT $2::bigint FOR NO KEY UPDATE OF k),
copied AS (
	INSERT INTO {s}onlyonce_requests (slot, claim, of_key, request)
	SELECT 0, r.claim, r.of_key, r.request FROM live JOIN {s}onlyonce_requests r ON r.of_key = live.digest AND r.claim = live.keep_claim
	WHERE r.slot = $1::smallint
	RETURNING of_key, claim),
moved AS (
	UPDATE {s}onlyonce_keys k SET keep_slot = 0 FROM copied c
	WHERE k.digest = c.of_key AND k.keep_slot = $1::smallint AND k.keep_claim = c.claim
	RETURNING 1)
SELECT count(*) FROM moved`

// padAnswers and padRequests give an emptied partition some forty pages, and
// unpadAnswers and unpadRequests take the rows out again, for the reason that the end
// of the first migration gives. Nobody ever sees them.
const (
	padAnswers = `
INSERT INTO {s}onlyonce_answers (slot, until, of_key, answer_header)
SELECT $1::smallint, 'epoch', decode(md5(n::text), 'hex'), decode(repeat('00', 1500), 'hex') FROM generate_series(1, 200) n`
	unpadAnswers = `DELETE FROM {s}onlyonce_answers WHERE slot = $1::smallint AND until = 'epoch'`
	padRequests  = `
INSERT INTO {s}onlyonce_requests (slot, claim, of_key, request)
SELECT $1::smallint, 0, decode(md5(n::text), 'hex'), decode(repeat('00', 1500), 'hex') FROM generate_series(1, 200) n`
	unpadRequests = `DELETE FROM {s}onlyonce_requests WHERE slot = $1::smallint AND claim = 0`
)

// restSizes tells how many pages the partitions have that are swept row by row.
const restSizes = `
SELECT pg_relation_size('{s}onlyonce_answers_0'::regclass) / current_setting('block_size')::bigint,
	pg_relation_size('{s}onlyonce_requests_0'::regclass) / current_setting('block_size')::bigint`

// deleteRestAnswers deletes expired answers between two pages of partition 0.
const deleteRestAnswers = `
WITH gone AS (
	DELETE FROM {s}onlyonce_answers WHERE slot = 0 AND ctid = ANY (ARRAY (
		SELECT a.ctid FROM {s}onlyonce_answers a
		WHERE a.slot = 0 AND a.ctid >= $1::text::tid AND a.ctid < $2::text::tid AND a.until <= $3::timestamptz
		LIMIT $4::bigint FOR UPDATE SKIP LOCKED))
	RETURNING ctid)
SELECT count(*), coalesce((max(ctid)::text::point)[0], 0)::bigint FROM gone`

// deleteRestRequests deletes there requests that no key keeps any more. One whose
// key is not seen yet is not seen either: they are written together.
const deleteRestRequests = `
WITH gone AS (
	DELETE FROM {s}onlyonce_requests WHERE slot = 0 AND ctid = ANY (ARRAY (
		SELECT r.ctid FROM {s}onlyonce_requests r
		WHERE r.slot = 0 AND r.ctid >= $1::text::tid AND r.ctid < $2::text::tid
			AND NOT EXISTS (SELECT FROM {s}onlyonce_keys k WHERE k.digest = r.of_key AND k.keep_slot = 0 AND k.keep_claim = r.claim)
		LIMIT $3::bigint FOR UPDATE OF r SKIP LOCKED))
	RETURNING ctid)
SELECT count(*), coalesce((max(ctid)::text::point)[0], 0)::bigint FROM gone`
