package portable

// Every statement of this package. {s} stands for the schema. They keep to what
// CockroachDB, YugabyteDB, Aurora DSQL, Spanner and Citus are documented to share
// with PostgreSQL, and dialect_test.go holds them to it:
//
//   - One row by its primary key, or rows in the order of a plain index.
//   - INSERT … ON CONFLICT (primary key) DO NOTHING, and conditional UPDATE and
//     DELETE by primary key; the number of rows tells what became of them.
//   - No clock in a statement that writes: times come in as parameters.
//   - Every write after the claim names fence, attempt token, state and the row's
//     version. The version stands for all that was read, steps and renewals
//     included, so that a decision made by this program holds in every isolation
//     level: where a snapshot alone would let two decisions pass each other, both
//     write the key's row.

// clockOfTransaction is when the transaction began, by whichever node it began on.
const clockOfTransaction = `SELECT CURRENT_TIMESTAMP`

// clockOfServer is the clock of a server that has one. It stands alone: the function
// is volatile, which some engines refuse where rows are distributed.
const clockOfServer = `SELECT clock_timestamp()`

// keyColumns is what scanRow reads.
const keyColumns = `k.scope, k.key, k.operation, k.fp_form, k.fp_secret, k.fp_policy, k.fp_sum, k.fp_parts, k.state, k.fence, k.origin,
	k.attempt, k.attempts, k.abandon, k.resumed_from, k.reason, k.status, k.header, k.body, k.retention_us, k.lease_us, k.renewal,
	k.created_us, k.lease_end_us, k.completed_us, k.expires_us, k.resource, k.holds, k.keep IS NOT NULL, k.turn, k.turn_us, k.steps, k.version`

// selectKey reads a key's row.
const selectKey = `SELECT ` + keyColumns + ` FROM {s}onlyonce_portable_keys k WHERE k.scope = $1 AND k.key = $2`

// selectHolder reads the row of the key that holds a resource.
const selectHolder = `SELECT ` + keyColumns + ` FROM {s}onlyonce_portable_resources r
JOIN {s}onlyonce_portable_keys k ON k.scope = r.scope AND k.key = r.key
WHERE r.scope = $1 AND r.resource = $2`

// insertKey begins a life of a key that has no row. Uniqueness decides who is first.
const insertKey = `INSERT INTO {s}onlyonce_portable_keys (scope, key, operation, fp_form, fp_secret, fp_policy, fp_sum, fp_parts,
	state, fence, origin, attempt, attempts, abandon, resumed_from, reason, retention_us, lease_us, renewal,
	created_us, lease_end_us, resource, holds, keep, turn, turn_us, due_us, steps, version)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $9, $10, 1, $11, 0, '', $12, $13, 0, $14, $15, $16, $17, $18, 0, $15, $19, 0, 1)
ON CONFLICT (scope, key) DO NOTHING`

// changeKey moves a key within its life, as it was decided by the row that was read.
// What is completed is not touched.
const changeKey = `UPDATE {s}onlyonce_portable_keys SET
	state = $7, fence = $8, attempt = $9, attempts = $10, abandon = $11, resumed_from = $12, reason = $13,
	retention_us = $14, lease_us = $15, renewal = $16, lease_end_us = $17, expires_us = $18,
	resource = $19, holds = $20, turn = $21, turn_us = $22, due_us = $23, steps = $24, version = version + 1
WHERE scope = $1 AND key = $2 AND fence = $3 AND attempt = $4 AND state = $5 AND version = $6 AND state <> 2`

// keepRequest keeps what is needed to run the operation again, or, NULL, no longer.
// It comes behind changeKey, which has made sure of the row.
const keepRequest = `UPDATE {s}onlyonce_portable_keys SET keep = $5
WHERE scope = $1 AND key = $2 AND fence = $3 AND attempt = $4 AND state <> 2`

// completeKey stores the answer. The lease is not looked at: only a later claim ends
// an owner's right.
const completeKey = `UPDATE {s}onlyonce_portable_keys SET
	state = 2, reason = '', status = $7, header = $8, body = $9, completed_us = $10, expires_us = $11,
	holds = false, keep = NULL, due_us = NULL, version = version + 1
WHERE scope = $1 AND key = $2 AND fence = $3 AND attempt = $4 AND state = $5 AND version = $6 AND (state = 1 OR state = 4)`

// deleteKey deletes a row as it was read, which must have expired at $7: the sweep
// does, and the claim that begins a new life. Only what is settled expires.
const deleteKey = `DELETE FROM {s}onlyonce_portable_keys
WHERE scope = $1 AND key = $2 AND fence = $3 AND attempt = $4 AND state = $5 AND version = $6
	AND (state = 2 OR state = 3) AND expires_us <= $7`

// takeResource makes a key the holder of a resource that nobody holds.
const takeResource = `INSERT INTO {s}onlyonce_portable_resources (scope, resource, key) VALUES ($1, $2, $3)
ON CONFLICT (scope, resource) DO NOTHING`

// dropResource lets go of what the key holds.
const dropResource = `DELETE FROM {s}onlyonce_portable_resources WHERE scope = $1 AND resource = $2 AND key = $3`

// stepColumns is what scanStep reads.
const stepColumns = `name, occurrence, ordinal, provider, epoch, derived_key, reference, request, send_within_us,
	state, result, sends, begun_us, sent_us`

// selectSteps lists the steps of one life in order of beginning.
const selectSteps = `SELECT ` + stepColumns + ` FROM {s}onlyonce_portable_steps
WHERE scope = $1 AND key = $2 AND origin = $3 ORDER BY ordinal`

// selectStep reads one step.
const selectStep = `SELECT ` + stepColumns + ` FROM {s}onlyonce_portable_steps
WHERE scope = $1 AND key = $2 AND origin = $3 AND name = $4 AND occurrence = $5`

// insertStep records a new step. It comes behind changeKey, which has made sure that
// the owner holds the key, and that nobody has recorded a step since.
const insertStep = `INSERT INTO {s}onlyonce_portable_steps (scope, key, origin, name, occurrence, ordinal, provider, epoch,
	derived_key, reference, request, send_within_us, state, result, sends, begun_us, sent_us, changed_us)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
ON CONFLICT (scope, key, origin, name, occurrence) DO NOTHING`

// changeStep changes a step that is not done; $6 is the state it was read in. It
// comes behind changeKey.
const changeStep = `UPDATE {s}onlyonce_portable_steps SET
	provider = $7, epoch = $8, derived_key = $9, reference = $10, request = $11, send_within_us = $12,
	state = $13, result = $14, sends = $15, begun_us = $16, sent_us = $17, changed_us = $18
WHERE scope = $1 AND key = $2 AND origin = $3 AND name = $4 AND occurrence = $5 AND state = $6 AND state <> 2`

// selectExpired finds rows that have expired, those first that did so first.
const selectExpired = `SELECT k.scope, k.key, k.fence, k.attempt, k.state, k.version, k.resource, k.holds
FROM {s}onlyonce_portable_keys k WHERE k.expires_us <= $1 ORDER BY k.expires_us LIMIT $2`

// selectAbandoned finds keys in progress whose lease was over at a time.
const selectAbandoned = `SELECT k.scope, k.key FROM {s}onlyonce_portable_keys k
WHERE k.state = 1 AND k.lease_end_us <= $1 ORDER BY k.lease_end_us LIMIT $2`

// selectDeadSteps finds steps that last changed before a time and whose life is over.
const selectDeadSteps = `SELECT s.scope, s.key, s.origin, s.name, s.occurrence
FROM {s}onlyonce_portable_steps s
WHERE s.changed_us < $1 AND NOT EXISTS (
	SELECT 1 FROM {s}onlyonce_portable_keys k WHERE k.scope = s.scope AND k.key = s.key AND k.origin = s.origin)
ORDER BY s.changed_us LIMIT $2`

// deleteStep deletes a step of a life that is over. No life comes back.
const deleteStep = `DELETE FROM {s}onlyonce_portable_steps
WHERE scope = $1 AND key = $2 AND origin = $3 AND name = $4 AND occurrence = $5`

// selectDue finds keys whose turn had come at a time, those longest due first, from
// behind a place in the index, and among those of one moment behind a key, as the engine
// sorts text.
const selectDue = `SELECT k.scope, k.key, k.due_us FROM {s}onlyonce_portable_keys k WHERE ` + dueBehind

const dueBehind = `k.due_us <= $1 AND k.due_us >= $3
	AND (k.due_us > $3 OR k.scope > $4 OR (k.scope = $4 AND k.key > $5))
ORDER BY k.due_us, k.scope, k.key LIMIT $2`

// selectDueOf finds those of one operation.
const selectDueOf = `SELECT k.scope, k.key, k.due_us FROM {s}onlyonce_portable_keys k WHERE k.operation = $6 AND ` + dueBehind

// selectKept reads what is kept of a key.
const selectKept = `SELECT keep, expires_us FROM {s}onlyonce_portable_keys WHERE scope = $1 AND key = $2 AND keep IS NOT NULL`

// listKeys lists records behind a cursor in the order of scope and key, as the
// engine sorts text. What has expired is absent.
const listKeys = `SELECT ` + keyColumns + ` FROM {s}onlyonce_portable_keys k
WHERE (k.scope > $1 OR (k.scope = $1 AND k.key > $2)) AND ($3 = '' OR k.scope = $3)
	AND (k.expires_us IS NULL OR k.expires_us > $4)
ORDER BY k.scope, k.key LIMIT $5`

// listState lists those in one state.
const listState = `SELECT ` + keyColumns + ` FROM {s}onlyonce_portable_keys k
WHERE k.state = $6 AND (k.scope > $1 OR (k.scope = $1 AND k.key > $2)) AND ($3 = '' OR k.scope = $3)
	AND (k.expires_us IS NULL OR k.expires_us > $4)
ORDER BY k.scope, k.key LIMIT $5`

// lastAudit is the ordinal of a key's last entry.
const lastAudit = `SELECT ordinal FROM {s}onlyonce_portable_audit WHERE scope = $1 AND key = $2 ORDER BY ordinal DESC LIMIT 1`

// insertAudit keeps an operator's act for good.
const insertAudit = `INSERT INTO {s}onlyonce_portable_audit (scope, key, ordinal, action, actor, reason, fence, at_us)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (scope, key, ordinal) DO NOTHING`

// selectAudit lists the acts on a key, oldest first.
const selectAudit = `SELECT action, actor, reason, fence, at_us FROM {s}onlyonce_portable_audit
WHERE scope = $1 AND key = $2 ORDER BY ordinal`

// selectSetting reads a setting.
const selectSetting = `SELECT value FROM {s}onlyonce_portable_settings WHERE kind = $1 AND id = $2`

// insertSetting keeps the first value: all processes must agree on it.
const insertSetting = `INSERT INTO {s}onlyonce_portable_settings (kind, id, value) VALUES ($1, $2, $3)
ON CONFLICT (kind, id) DO NOTHING`

// selectSweeper reads who sweeps, and until when.
const selectSweeper = `SELECT owner, until_us FROM {s}onlyonce_portable_sweepers WHERE name = $1`

// insertSweeper makes the first sweeper.
const insertSweeper = `INSERT INTO {s}onlyonce_portable_sweepers (name, owner, until_us) VALUES ($1, $2, $3)
ON CONFLICT (name) DO NOTHING`

// changeSweeper hands the sweep on; $4 and $5 are what was read.
const changeSweeper = `UPDATE {s}onlyonce_portable_sweepers SET owner = $2, until_us = $3
WHERE name = $1 AND owner = $4 AND until_us = $5`

// schemaVersion is the version of the tables.
const schemaVersion = `SELECT version FROM {s}onlyonce_portable_schema ORDER BY version DESC LIMIT 1`

// recordVersion notes that they are at a version.
const recordVersion = `INSERT INTO {s}onlyonce_portable_schema (version) VALUES ($1) ON CONFLICT (version) DO NOTHING`
