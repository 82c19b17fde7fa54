package mysqlstore

import "strings"

// Statements of this package. What holds everywhere:
//
//   - They are in the SQL that MySQL and MariaDB have in common: no RETURNING, no
//     INSERT IGNORE, no multi-table writes.
//   - Times are made by the server, by nowSQL. A number takes its place in tests.
//   - Every write after the claim names digest, fence and attempt token, and the
//     states it may leave. The row it was judged by may have changed meanwhile; then
//     it changes nothing.
//   - A guarded UPDATE puts one number through LAST_INSERT_ID. The server tells it
//     with its reply, so that it need not be read, and tells none when no row was
//     found: whether a client counts rows found or rows changed does not matter.
//   - No value depends on the order in which SET assigns.

// nowSQL is the server's clock in microseconds since 1970, at the beginning of the
// statement. It does not know time zones, unlike NOW and SYSDATE, whose hour comes
// twice in autumn. That a statement may wait for a lock behind it is harmless: what
// is judged is judged too early, and a lease is counted by its holder from before
// it asked.
const nowSQL = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// freeSQL is true unless a transaction of Atomic has the key; see lockKey.
const freeSQL = `IS_FREE_LOCK(?)`

// keyColumns is what scanKey reads, in its order.
const keyColumns = `k.digest, k.scope, k.key_value, k.operation, k.fp_form, k.fp_secret, k.fp_policy, k.fp_sum, k.fp_parts,
	k.state, k.fence, k.origin, k.attempt, k.attempts, k.abandon, k.resumed_from, k.reason,
	k.retention_us, k.created_us, k.lease_us, k.lease_end_us, k.renewal, k.completed_us, k.expires_us,
	k.resource, k.holds, k.kept, k.status, k.header, k.body, ` + nowSQL

// selectKey reads a row by its identity, and whether the key is free. It takes no
// lock and writes nothing.
const selectKey = `SELECT ` + keyColumns + `, ` + freeSQL + ` FROM onlyonce_keys k WHERE k.digest = ?`

// selectBoth reads, as of one moment, a row and that of whichever key holds a
// resource.
const selectBoth = `SELECT ` + keyColumns + `, ` + freeSQL + ` FROM onlyonce_keys k
	WHERE k.digest IN (?, (SELECT h.digest FROM onlyonce_holds h WHERE h.holds = ?))`

// isFree is freeSQL by itself, for Vitess, which keeps locks in a place of their own.
const isFree = `SELECT ` + freeSQL

// insertKey begins the first life of a key. Uniqueness of the digest decides who is
// first: an error, 1062, for the second. Another claim's INSERT it waits for, until
// that is committed.
const insertKey = insertInto + `VALUES (` + newKey + `)`

// insertFree is insertKey for a key whose lock is free. It never waits for a
// transaction of Atomic, which may be open for long.
const insertFree = insertInto + `SELECT ` + newKey + ` FROM DUAL WHERE ` + freeSQL

const insertInto = `
	INSERT INTO onlyonce_keys (digest, scope, key_value, operation, fp_form, fp_secret, fp_policy, fp_sum, fp_parts,
		attempt, abandon, retention_us, lease_us, resource, holds, kept,
		state, fence, origin, attempts, resumed_from, reason, renewal, created_us, lease_end_us, sweep_us)
	`

const newKey = `?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
		1, ` + nowSQL + `, ` + nowSQL + `, 1, 0, '', 0, LAST_INSERT_ID(` + nowSQL + `), ` + nowSQL + ` + ?, ` + nowSQL + ` + ?`

// beginNewLife begins another life over an expired row: everything is reset, and the
// origin rises to the new fence, which is above the old one.
const beginNewLife = `
	UPDATE onlyonce_keys SET operation = ?, fp_form = ?, fp_secret = ?, fp_policy = ?, fp_sum = ?, fp_parts = ?,
		attempt = ?, abandon = ?, retention_us = ?, lease_us = ?, resource = ?, holds = ?, kept = ?,
		state = 1, fence = GREATEST(?, ` + nowSQL + `), origin = GREATEST(?, ` + nowSQL + `), attempts = 1, resumed_from = 0, reason = '',
		renewal = 0, created_us = LAST_INSERT_ID(` + nowSQL + `), lease_end_us = ` + nowSQL + ` + ?, sweep_us = ` + nowSQL + ` + ?,
		completed_us = NULL, expires_us = NULL, status = NULL, header = NULL, body = NULL
	WHERE digest = ? AND fence = ? AND attempt = ? AND state = ? AND renewal = ? AND expires_us <= ` + nowSQL

// resumeKey makes the claimer the owner within the same life. It touches neither
// fingerprint nor origin, so finished steps stand and no other request gets in.
const resumeKey = `
	UPDATE onlyonce_keys SET attempt = ?, abandon = ?, retention_us = ?, lease_us = ?, resource = ?, holds = ?, kept = ?,
		state = 1, fence = GREATEST(?, ` + nowSQL + `), attempts = attempts + 1, resumed_from = ?, reason = '',
		renewal = 0, lease_end_us = LAST_INSERT_ID(` + nowSQL + `) + ?, sweep_us = ` + nowSQL + ` + ?, expires_us = NULL
	WHERE digest = ? AND fence = ? AND attempt = ? AND state = ? AND renewal = ? AND state <> 2`

// insertHold takes hold of a resource; uniqueness decides.
const insertHold = `INSERT INTO onlyonce_holds (holds, digest) VALUES (?, ?)`

const deleteHold = `DELETE FROM onlyonce_holds WHERE holds = ? AND digest = ?`

// letExpiredGo is for a record that still holds a resource although it has expired.
// Only one freed behind a step can be that.
const letExpiredGo = `
	UPDATE onlyonce_keys SET holds = LAST_INSERT_ID(1) - 1
	WHERE digest = ? AND fence = ? AND attempt = ? AND state = 3 AND holds = 1 AND expires_us <= ` + nowSQL

// insertKept keeps a request.
const insertKept = `INSERT INTO onlyonce_kept (digest, turn, turn_us, due_us, request) VALUES (?, 0, ?, ?, ?)`

// keepOn goes on with what is kept: a life keeps the request it has, and no turn
// comes earlier than it would have.
const keepOn = `
	UPDATE onlyonce_kept SET request = COALESCE(request, ?), turn_us = GREATEST(turn_us, ?),
		due_us = IF(COALESCE(request, ?) IS NULL, NULL, GREATEST(turn_us, ?))
	WHERE digest = ?`

const deleteKept = `DELETE FROM onlyonce_kept WHERE digest = ?`

// renewKey does not look at the old lease: only a later claim ends an owner's right.
// It changes nothing that is indexed.
const renewKey = `
	UPDATE onlyonce_keys SET lease_us = ?, lease_end_us = ` + nowSQL + ` + ?, renewal = LAST_INSERT_ID(renewal + 1)
	WHERE digest = ? AND fence = ? AND attempt = ? AND state = 1`

// touchKey is what a step's statements change the key's row by, where a lock is not
// enough.
const touchKey = `
	UPDATE onlyonce_keys SET renewal = LAST_INSERT_ID(renewal + 1)
	WHERE digest = ? AND fence = ? AND attempt = ? AND state = 1`

// completeKey stores the answer. The lease is not looked at.
const completeKey = `
	UPDATE onlyonce_keys SET state = 2, reason = '', status = ?, header = ?, body = ?, holds = 0, kept = 0,
		completed_us = ` + nowSQL + `, expires_us = LAST_INSERT_ID(` + nowSQL + ` + retention_us), sweep_us = ` + nowSQL + ` + retention_us
	WHERE digest = ? AND fence = ? AND attempt = ? AND state IN (1, 4)`

// completeBare is completeKey for a key that has nothing in other tables.
const completeBare = completeKey + ` AND holds = 0 AND kept = 0`

// ownedKey reads a row while it is the owner's.
const ownedKey = `SELECT ` + keyColumns + ` FROM onlyonce_keys k WHERE k.digest = ? AND k.fence = ? AND k.attempt = ?`

// lockFree is lockOwned for a row that nobody is just working on.
const lockFree = lockOwned + ` SKIP LOCKED`

// lockOwned is ownedKey as of now, whatever the transaction's snapshot, and keeps the
// row as it is.
const lockOwned = ownedKey + ` FOR UPDATE`

// stepsBehind tells of a life how many of its steps are begun or done, how many of
// those outside the store, and how many are begun.
const stepsBehind = `
	SELECT COUNT(*), COALESCE(SUM(provider <> ?), 0), COALESCE(SUM(state = 1), 0)
	FROM onlyonce_steps WHERE digest = ? AND origin = ? AND state IN (1, 2)`

// freeKey frees a key in progress. What is in doubt is not freed without a resolving
// claim.
const freeKey = `
	UPDATE onlyonce_keys SET state = 3, reason = ?, holds = ?,
		expires_us = LAST_INSERT_ID(` + nowSQL + ` + ?), sweep_us = ` + nowSQL + ` + ?
	WHERE digest = ? AND fence = ? AND attempt = ? AND state = 1`

// freeKept forgets a request, unless the key is freed behind a step, and takes it
// out of the turns unless that step is outside the store.
const freeKept = `
	UPDATE onlyonce_kept SET request = IF(?, request, NULL), due_us = IF(? AND request IS NOT NULL, turn_us, NULL) WHERE digest = ?`

// parkKey puts a key in progress in doubt. Fence and token stay, so that the doubted
// attempt's own late completion still matches.
const parkKey = `
	UPDATE onlyonce_keys SET state = LAST_INSERT_ID(4), reason = ?, sweep_us = NULL
	WHERE digest = ? AND fence = ? AND attempt = ? AND state = 1`

// Conditions of parkKey: the lease is over by the server's clock; it is not renewed.
const (
	leaseOver  = ` AND lease_end_us <= ` + nowSQL
	notRenewed = ` AND renewal = ?`
)

// insertStep records a new step for the owner of a key in progress. The key's row is
// locked, so that a takeover either waits for the step to be recorded, and then sees
// it, or comes first, and nothing is recorded. One that is there already is an
// error, 1062.
const insertStep = `
	INSERT INTO onlyonce_steps (digest, origin, name, occurrence, position, provider, epoch, derived_key, reference,
		request, send_within_us, state, result, sends, begun_us, sent_us, changed_us)
	SELECT k.digest, k.origin, ?, ?, (SELECT COUNT(*) FROM onlyonce_steps e WHERE e.digest = k.digest AND e.origin = k.origin),
		?, ?, ?, ?, ?, ?, ?, ?, 1, ` + nowSQL + `, ` + nowSQL + `, ` + nowSQL + `
	FROM onlyonce_keys k
	WHERE k.digest = ? AND k.fence = ? AND k.attempt = ? AND k.state = 1
	LOCK IN SHARE MODE`

// owning is the origin of the owner's key in progress, whose row is kept as it is.
const owning = `(SELECT k.origin FROM onlyonce_keys k
		WHERE k.digest = ? AND k.fence = ? AND k.attempt = ? AND k.state = 1 LOCK IN SHARE MODE)`

// sendAgain records another send in a begun step's epoch. The intent stays, but for
// the time in which bytes of any send may still leave.
const sendAgain = `
	UPDATE onlyonce_steps SET send_within_us = GREATEST(?, send_within_us + sent_us - ` + nowSQL + `), sends = sends + 1,
		sent_us = LAST_INSERT_ID(` + nowSQL + `), changed_us = ` + nowSQL + `
	WHERE digest = ? AND name = ? AND occurrence = ? AND epoch = ? AND state = 1 AND origin = ` + owning

// sendAgainSeen is sendAgain where the last send has been known of for ?.
const sendAgainSeen = `
	UPDATE onlyonce_steps SET send_within_us = GREATEST(?, send_within_us - ?), sends = sends + 1,
		sent_us = LAST_INSERT_ID(` + nowSQL + `), changed_us = ` + nowSQL + `
	WHERE digest = ? AND name = ? AND occurrence = ? AND epoch = ? AND state = 1 AND origin = ` + owning

// lookSend reads which send of a step of the owner's key is the last.
const lookSend = `
	SELECT s.origin, s.epoch, s.sends FROM onlyonce_keys k
	JOIN onlyonce_steps s ON s.digest = k.digest AND s.origin = k.origin AND s.name = ? AND s.occurrence = ?
	WHERE k.digest = ? AND k.fence = ? AND k.attempt = ? AND k.state = 1`

// sendAnew records the first send of a higher epoch of a step that was not applied.
const sendAnew = `
	UPDATE onlyonce_steps SET provider = ?, derived_key = ?, reference = ?, request = ?, send_within_us = ?, epoch = ?,
		state = 1, result = NULL, sends = 1, begun_us = ` + nowSQL + `, sent_us = LAST_INSERT_ID(` + nowSQL + `), changed_us = ` + nowSQL + `
	WHERE digest = ? AND name = ? AND occurrence = ? AND epoch < ? AND state = 3 AND origin = ` + owning

// endStep records the end of a begun step.
const endStep = `
	UPDATE onlyonce_steps SET state = ?, result = ?, changed_us = LAST_INSERT_ID(` + nowSQL + `)
	WHERE digest = ? AND name = ? AND occurrence = ? AND state = 1 AND origin = ` + owning

// lookStep tells whether the owner holds the key in progress, by giving a row, and
// what is recorded under a step's name in its life: NULLs for nothing.
const lookStep = `
	SELECT s.state, s.provider, s.result FROM onlyonce_keys k
	LEFT JOIN onlyonce_steps s ON s.digest = k.digest AND s.origin = k.origin AND s.name = ? AND s.occurrence = ?
	WHERE k.digest = ? AND k.fence = ? AND k.attempt = ? AND k.state = 1`

// selectSteps lists the steps of the key's present life in order of beginning.
const selectSteps = `
	SELECT s.name, s.occurrence, s.provider, s.epoch, s.derived_key, s.reference, s.request,
		s.send_within_us, s.state, s.result, s.sends, s.begun_us, s.sent_us, ` + nowSQL + `, s.origin
	FROM onlyonce_keys k JOIN onlyonce_steps s ON s.digest = k.digest AND s.origin = k.origin
	WHERE k.digest = ? AND k.scope = ? AND k.key_value = ?
	ORDER BY s.position, s.begun_us, s.name, s.occurrence`

// selectDue reads keys whose turn has come, those longest due first, and keeps them
// as they are. Rows that somebody is just working on are passed by: of several
// recoverers one is given each.
const selectDue = `
	SELECT ` + keyColumns + `, q.request, q.turn
	FROM onlyonce_kept q FORCE INDEX (onlyonce_kept_due) STRAIGHT_JOIN onlyonce_keys k ON k.digest = q.digest
	WHERE q.due_us <= ` + nowSQL + ` - ? AND q.request IS NOT NULL AND (k.state = 4
		OR (k.state = 1 AND k.lease_end_us <= ` + nowSQL + ` - ?)
		OR (k.state = 3 AND k.expires_us > ` + nowSQL + ` AND EXISTS (SELECT 1 FROM onlyonce_steps s
			WHERE s.digest = k.digest AND s.origin = k.origin AND s.state IN (1, 2) AND s.provider <> ?)))`

// passLocked passes by rows that somebody is just working on, and locks the others.
const passLocked = ` FOR UPDATE SKIP LOCKED`

// dueInOrder ends selectDue behind what else it asks for.
const dueInOrder = ` ORDER BY q.due_us LIMIT ?`

// putOff gives a turn and sets the next. The number counts up by one: each is given
// once.
const putOff = `
	UPDATE onlyonce_kept SET turn_us = ` + nowSQL + ` + ?, due_us = ` + nowSQL + ` + ?, turn = LAST_INSERT_ID(?)
	WHERE digest = ? AND turn = ? AND request IS NOT NULL`

// selectKept reads what is kept of a key that has not expired.
const selectKept = `
	SELECT q.request FROM onlyonce_keys k JOIN onlyonce_kept q ON q.digest = k.digest
	WHERE k.digest = ? AND k.scope = ? AND k.key_value = ? AND q.request IS NOT NULL
		AND (k.expires_us IS NULL OR k.expires_us > ` + nowSQL + `)`

// requeueKey makes the next turn the first again, and due since ever, or with the
// next claim's lease where it waits for one.
const requeueKey = `
	UPDATE onlyonce_kept SET turn = LAST_INSERT_ID(1) - 1, turn_us = 0, due_us = IF(due_us IS NULL, NULL, 0)
	WHERE digest = ? AND request IS NOT NULL AND EXISTS (SELECT 1 FROM onlyonce_keys k
		WHERE k.digest = ? AND k.scope = ? AND k.key_value = ? AND (k.expires_us IS NULL OR k.expires_us > ` + nowSQL + `))`

// listKeys walks the primary key from behind a cursor. What has expired is absent.
const listKeys = `
	SELECT ` + keyColumns + ` FROM onlyonce_keys k
	WHERE k.digest > ? AND (k.expires_us IS NULL OR k.expires_us > ` + nowSQL + `)`

// listDoubt lists what is in doubt: the part of the sweeper's index in which the
// times are NULL is in the order of the digests.
const listDoubt = `
	SELECT ` + keyColumns + ` FROM onlyonce_keys k FORCE INDEX (onlyonce_keys_sweep)
	WHERE k.state = 4 AND k.sweep_us IS NULL AND k.digest > ?`

const selectSetting = `SELECT value FROM onlyonce_settings WHERE kind = ? AND id = ?`

// insertSetting keeps the first value; a second one is an error, 1062.
const insertSetting = `INSERT INTO onlyonce_settings (kind, id, value) VALUES (?, ?, ?)`

const insertAudit = `
	INSERT INTO onlyonce_audit (digest, scope, key_value, action, actor, reason, fence, at_us)
	VALUES (?, ?, ?, ?, ?, ?, ?, ` + nowSQL + `)`

// selectAudit lists the acts on a key, oldest first.
const selectAudit = `
	SELECT action, actor, reason, fence, at_us FROM onlyonce_audit
	WHERE digest = ? AND scope = ? AND key_value = ? ORDER BY id`

// expiredKeys finds records that have expired. It takes no lock; lockExpired makes
// sure of those that nobody is just working on.
const expiredKeys = `
	SELECT digest FROM onlyonce_keys FORCE INDEX (onlyonce_keys_sweep)
	WHERE state IN (2, 3) AND sweep_us <= ` + nowSQL + ` LIMIT ?`

const lockExpired = `
	SELECT digest, scope, resource, holds, kept FROM onlyonce_keys FORCE INDEX (PRIMARY)
	WHERE state IN (2, 3) AND expires_us <= ` + nowSQL + ` AND digest IN `

// deleteKey is for a row that is locked.
const deleteKey = `DELETE FROM onlyonce_keys WHERE digest = ?`

// abandonedKeys finds attempts whose first lease was over at least ? ago. Those that
// were renewed are among them.
const abandonedKeys = `
	SELECT ` + keyColumns + ` FROM onlyonce_keys k FORCE INDEX (onlyonce_keys_sweep)
	WHERE k.state = 1 AND k.sweep_us <= ` + nowSQL + ` - ? ORDER BY k.sweep_us LIMIT ?`

// lookLater has a sweeper look again when a renewed lease ends.
const lookLater = `
	UPDATE onlyonce_keys SET sweep_us = lease_end_us
	WHERE digest = ? AND fence = ? AND attempt = ? AND state = 1`

// deadSteps finds steps that have not changed for ? and whose life is over.
const deadSteps = `
	SELECT s.digest, s.origin, s.name, s.occurrence FROM onlyonce_steps s FORCE INDEX (onlyonce_steps_changed)
	WHERE s.changed_us < ` + nowSQL + ` - ? AND NOT EXISTS (
		SELECT 1 FROM onlyonce_keys k WHERE k.digest = s.digest AND k.origin = s.origin)
	LIMIT ?`

const deleteStep = `DELETE FROM onlyonce_steps WHERE digest = ? AND origin = ? AND name = ? AND occurrence = ?`

// withoutLocks is a statement that does not ask for a key's lock. It has one argument
// less.
func withoutLocks(query string) string { return strings.ReplaceAll(query, freeSQL, "TRUE") }

// schemaVersion is the number of the last applied migration.
const schemaVersion = `SELECT COALESCE(MAX(version), 0) FROM onlyonce_migrations`

// otherEngine finds a table of ours that is not InnoDB's.
const otherEngine = `
	SELECT table_name, engine FROM information_schema.tables
	WHERE table_schema = DATABASE() AND LEFT(table_name, 9) = 'onlyonce_' AND engine <> 'InnoDB' LIMIT 1`
