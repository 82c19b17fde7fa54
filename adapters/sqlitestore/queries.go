package sqlitestore

import "github.com/onlyonce-go/onlyonce"

// Every write of a key names its digest, fence and attempt token, and the
// states it may leave: what does not match is not touched. All writes run in a
// transaction begun IMMEDIATE, so no row changes between a read in it and the
// write that follows; the guards hold all the same.

// keyColumns is what scanKey reads, in its order. Whether the body is NULL is
// asked for, because the driver reads an empty value and NULL alike.
const keyColumns = `
	scope, key, operation, fp_form, fp_secret, fp_policy, fp_sum, fp_parts,
	state, fence, origin, attempt, attempts, abandon, coalesce(resumed_from, ''), reason,
	status, header, body, body IS NULL,
	retention_us, created_us, lease_end_us, completed_us, expires_us,
	coalesce(resource, ''), holds IS NOT NULL`

// selectKey reads a row by its identity. Scope and key are compared by the
// reader: another pair under the same digest is an error, not an absence.
const selectKey = `SELECT ` + keyColumns + ` FROM onlyonce_keys WHERE digest = ?1`

// insertKey begins the first life of a key. Uniqueness of the digest decides
// who is first; a row that is there stays as it is.
const insertKey = `
	INSERT INTO onlyonce_keys (
		digest, scope, key, operation, fp_form, fp_secret, fp_policy, fp_sum, fp_parts,
		state, fence, origin, attempt, attempts, abandon, retention_us, created_us, lease_end_us,
		resource, holds, keep, turn, due_us)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'in_progress', ?10, ?10, ?11, 1, ?12, ?13, ?14, ?15,
		?16, ?17, ?18, 0, iif(?18 IS NULL, NULL, ?15))
	ON CONFLICT (digest) DO NOTHING`

// beginNewLife begins another life over an expired row: everything is reset,
// and the origin rises to the new fence, which is above the old one (?19).
const beginNewLife = `
	UPDATE onlyonce_keys SET
		operation = ?4, fp_form = ?5, fp_secret = ?6, fp_policy = ?7, fp_sum = ?8, fp_parts = ?9,
		state = 'in_progress', fence = ?10, origin = ?10, attempt = ?11, attempts = 1, abandon = ?12,
		resumed_from = NULL, reason = '', status = NULL, header = NULL, body = NULL,
		retention_us = ?13, created_us = ?14, lease_end_us = ?15, completed_us = NULL, expires_us = NULL,
		resource = ?16, holds = ?17, keep = ?18, turn = 0, due_us = iif(?18 IS NULL, NULL, ?15)
	WHERE digest = ?1 AND scope = ?2 AND key = ?3 AND fence = ?19 AND fence < ?10 AND attempt = ?20
		AND state IN ('completed', 'failed_retryable') AND expires_us <= ?14`

// resumeKey makes the claimer the owner within the same life. It touches
// neither fingerprint nor origin, so finished steps stand and no other request
// gets in; completed keys are not resumed. What is kept stays as it is and turns
// go on: the next one waits for the new lease, and never comes earlier than it
// would have.
const resumeKey = `
	UPDATE onlyonce_keys SET
		resumed_from = state, state = 'in_progress', fence = ?5, attempt = ?6, attempts = attempts + 1,
		abandon = ?7, retention_us = ?8, lease_end_us = ?9, reason = '', expires_us = NULL,
		resource = ?10, holds = ?11, keep = coalesce(keep, ?12),
		due_us = iif(coalesce(keep, ?12) IS NULL, -max(abs(due_us), ?9), max(abs(coalesce(due_us, 0)), ?9))
	WHERE digest = ?1 AND fence = ?2 AND attempt = ?3 AND state = ?4 AND fence < ?5
		AND state IN ('in_progress', 'failed_retryable', 'in_doubt')`

// selectHolder reads the row of another key (than ?2) that holds a resource, also
// when it has expired. The unique index on holds makes it one at most.
const selectHolder = `SELECT ` + keyColumns + ` FROM onlyonce_keys WHERE holds = ?1 AND digest <> ?2`

// letExpiredGo frees a resource that a record still holds which has expired. Only
// one freed behind a step can be that.
const letExpiredGo = `
	UPDATE onlyonce_keys SET holds = NULL
	WHERE digest = ?1 AND fence = ?2 AND attempt = ?3 AND state = 'failed_retryable' AND expires_us <= ?4`

// renewKey moves the lease end of a key in progress.
const renewKey = `
	UPDATE onlyonce_keys SET lease_end_us = ?4
	WHERE digest = ?1 AND fence = ?2 AND attempt = ?3 AND state = 'in_progress'`

// completeKey stores the answer. The lease is not looked at: only a later
// claim, which changes the fence, ends an owner's right. What is answered holds
// nothing and keeps no request; which resource it was stays.
const completeKey = `
	UPDATE onlyonce_keys SET
		state = 'completed', reason = '', status = ?4, header = ?5, body = ?6,
		completed_us = ?7, expires_us = ?7 + retention_us,
		holds = NULL, keep = NULL, due_us = NULL
	WHERE digest = ?1 AND fence = ?2 AND attempt = ?3 AND state IN ('in_progress', 'in_doubt')`

// stepOfLife begins a condition on a row of onlyonce_keys: a step of its life is
// begun or done.
const stepOfLife = `EXISTS (
		SELECT 1 FROM onlyonce_steps AS s
		WHERE s.digest = onlyonce_keys.digest AND s.origin = onlyonce_keys.origin AND s.state <> 'not_applied'`

// behindStep: a step is begun or done, so the resource and the request stay.
const behindStep = stepOfLife + `)`

// behindCall: a step outside the store is begun or done. Money may have moved,
// so somebody has to go on.
const behindCall = stepOfLife + ` AND s.provider <> '` + onlyonce.ProviderStore + `')`

// letGo lets the resource go, and what was kept, of a key that is freed, but not
// behind a step: then both stay until the key is completed or has expired. Where
// nothing has left the store there is no turn before the next claim, which is
// what a time below 0 says.
const letGo = `
		holds = iif(holds IS NULL OR ` + behindStep + `, holds, NULL),
		keep = iif(keep IS NULL OR ` + behindStep + `, keep, NULL),
		due_us = iif(due_us IS NULL OR due_us < 0 OR ` + behindCall + `, due_us, nullif(-due_us, 0))`

// releaseKey frees a key in progress; what is in doubt is not freed without a
// resolving claim. A key behind a step lives for ?6 at least: a new life would
// begin without its steps.
const releaseKey = `
	UPDATE onlyonce_keys SET state = 'failed_retryable', reason = ?4,
		expires_us = ?5 + max(retention_us, iif(` + behindStep + `, ?6, 0)),` + letGo + `
	WHERE digest = ?1 AND fence = ?2 AND attempt = ?3 AND state = 'in_progress'`

// parkKey puts a key in progress in doubt. Fence and token stay, so that the
// doubted attempt's own late completion still matches, and so does the resource.
// ?5 is whether the lease must be over at ?6.
const parkKey = `
	UPDATE onlyonce_keys SET state = 'in_doubt', reason = ?4
	WHERE digest = ?1 AND fence = ?2 AND attempt = ?3 AND state = 'in_progress'
		AND (NOT ?5 OR lease_end_us <= ?6)`

// ownedState tells where a key stands that is still this owner's, to find a
// repeated write already done.
const ownedState = `
	SELECT state, expires_us FROM onlyonce_keys WHERE digest = ?1 AND fence = ?2 AND attempt = ?3`

// beginStep records a send: a new step, another send of the epoch of a begun
// step, or the first of a higher epoch of one that was not applied. It needs
// the key in progress by its owner, and leaves every other step alone. Another
// send of the same epoch keeps the recorded intent, and never shortens the
// time in which bytes of an earlier one may still leave.
const beginStep = `
	INSERT INTO onlyonce_steps (
		digest, origin, name, occurrence, provider, epoch, derived_key, reference, request,
		send_within_us, state, sends, begun_us, sent_us, changed_us)
	SELECT k.digest, k.origin, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'begun', 1, ?12, ?12, ?12
	FROM onlyonce_keys AS k
	WHERE k.digest = ?1 AND k.fence = ?2 AND k.attempt = ?3 AND k.state = 'in_progress'
	ON CONFLICT (digest, origin, name, occurrence) DO UPDATE SET
		provider = iif(excluded.epoch > epoch, excluded.provider, provider),
		derived_key = iif(excluded.epoch > epoch, excluded.derived_key, derived_key),
		reference = iif(excluded.epoch > epoch, excluded.reference, reference),
		request = iif(excluded.epoch > epoch, excluded.request, request),
		send_within_us = iif(excluded.epoch > epoch, excluded.send_within_us,
			max(excluded.send_within_us, sent_us + send_within_us - excluded.sent_us)),
		sends = iif(excluded.epoch > epoch, 1, sends + 1),
		begun_us = iif(excluded.epoch > epoch, excluded.begun_us, begun_us),
		epoch = excluded.epoch, state = 'begun', result = NULL,
		sent_us = excluded.sent_us, changed_us = excluded.changed_us
	WHERE (excluded.epoch > epoch AND state = 'not_applied') OR (excluded.epoch = epoch AND state = 'begun')`

// endStep records the end of a begun step, if its owner holds the key in
// progress.
const endStep = `
	UPDATE onlyonce_steps SET state = ?6, result = ?7, changed_us = ?8
	WHERE digest = ?1 AND name = ?4 AND occurrence = ?5 AND state = 'begun'
		AND origin = (SELECT k.origin FROM onlyonce_keys AS k
			WHERE k.digest = ?1 AND k.fence = ?2 AND k.attempt = ?3 AND k.state = 'in_progress')`

// stepState tells how a step of the owner's life ended, to find a repeated
// endStep already done.
const stepState = `
	SELECT s.state FROM onlyonce_keys AS k
	JOIN onlyonce_steps AS s ON s.digest = k.digest AND s.origin = k.origin
	WHERE k.digest = ?1 AND k.fence = ?2 AND k.attempt = ?3 AND k.state = 'in_progress'
		AND s.name = ?4 AND s.occurrence = ?5`

// stepForTx tells whether the owner holds the key in progress, by giving a row,
// and what is recorded under a step's name in its life: NULLs for nothing.
const stepForTx = `
	SELECT s.state, s.provider, s.result FROM onlyonce_keys AS k
	LEFT JOIN onlyonce_steps AS s
		ON s.digest = k.digest AND s.origin = k.origin AND s.name = ?4 AND s.occurrence = ?5
	WHERE k.digest = ?1 AND k.fence = ?2 AND k.attempt = ?3 AND k.state = 'in_progress'`

// insertDoneStep records a step whose effect is in the same transaction, if the
// owner holds the key in progress. What is recorded under its name is never
// changed: uniqueness refuses it.
const insertDoneStep = `
	INSERT INTO onlyonce_steps (
		digest, origin, name, occurrence, provider, epoch, derived_key, reference, request,
		send_within_us, state, result, sends, begun_us, sent_us, changed_us)
	SELECT k.digest, k.origin, ?4, ?5, ?6, 0, '', '', x'', 0, 'done', ?7, 1, ?8, ?8, ?8
	FROM onlyonce_keys AS k
	WHERE k.digest = ?1 AND k.fence = ?2 AND k.attempt = ?3 AND k.state = 'in_progress'`

// selectSteps lists the steps of the key's present life in order of beginning.
const selectSteps = `
	SELECT s.name, s.occurrence, s.provider, s.epoch, s.derived_key, s.reference, s.request,
		s.send_within_us, s.state, s.result, s.sends, s.begun_us, s.sent_us
	FROM onlyonce_keys AS k
	JOIN onlyonce_steps AS s ON s.digest = k.digest AND s.origin = k.origin
	WHERE k.digest = ?1 AND k.scope = ?2 AND k.key = ?3
	ORDER BY s.id`

// sweepExpired deletes expired records. Only what is settled has an expiry;
// nothing in progress or in doubt is ever deleted.
const sweepExpired = `
	DELETE FROM onlyonce_keys WHERE rowid IN (
		SELECT rowid FROM onlyonce_keys WHERE expires_us <= ?1 ORDER BY expires_us, rowid LIMIT ?2)`

// anyExpired tells whether sweepExpired left some behind.
const anyExpired = `SELECT EXISTS (SELECT 1 FROM onlyonce_keys WHERE expires_us <= ?1)`

// mustPark is true for an abandoned attempt (of the row k) that nobody may run
// again unasked: AbandonHold, or AbandonResume with a step that had an effect,
// or may have had one.
const mustPark = `(k.abandon = 0 OR (k.abandon = 2 AND EXISTS (
		SELECT 1 FROM onlyonce_steps AS s
		WHERE s.digest = k.digest AND s.origin = k.origin AND s.state <> 'not_applied')))`

// abandoned selects attempts whose lease was over at ?1.
const abandoned = `SELECT k.rowid FROM onlyonce_keys AS k WHERE k.state = 'in_progress' AND k.lease_end_us <= ?1`

// sweepPark puts abandoned attempts in doubt that may have had an effect. The
// reason is ?3 without steps, ?4 with an unfinished one, ?5 when all are done.
const sweepPark = `
	UPDATE onlyonce_keys SET state = 'in_doubt', reason = CASE
		WHEN abandon = 0 THEN ?3
		WHEN EXISTS (SELECT 1 FROM onlyonce_steps AS s WHERE s.digest = onlyonce_keys.digest
			AND s.origin = onlyonce_keys.origin AND s.state = 'begun') THEN ?4
		ELSE ?5 END
	WHERE state = 'in_progress' AND rowid IN (` + abandoned + ` AND ` + mustPark + ` LIMIT ?2)`

// sweepFree frees abandoned attempts that left no effect, or that may be rerun
// all the same, as releaseKey does: ?5 is how long one behind a step lives.
const sweepFree = `
	UPDATE onlyonce_keys SET state = 'failed_retryable', reason = ?3,
		expires_us = ?4 + max(retention_us, iif(` + behindStep + `, ?5, 0)),` + letGo + `
	WHERE state = 'in_progress' AND rowid IN (` + abandoned + ` AND NOT ` + mustPark + ` LIMIT ?2)`

// anyAbandoned tells whether sweepPark and sweepFree left some behind.
const anyAbandoned = `SELECT EXISTS (` + abandoned + `)`

// deadSteps selects steps whose life is over and that last changed before ?1.
const deadSteps = `
		SELECT s.id FROM onlyonce_steps AS s
		WHERE s.changed_us < ?1 AND NOT EXISTS (
			SELECT 1 FROM onlyonce_keys AS k WHERE k.digest = s.digest AND k.origin = s.origin)`

// sweepSteps deletes steps that outlived their retention, never those of a
// life whose record is still there.
const sweepSteps = `
	DELETE FROM onlyonce_steps WHERE id IN (` + deadSteps + ` LIMIT ?2)`

// anyDeadSteps tells whether sweepSteps left some behind.
const anyDeadSteps = `SELECT EXISTS (` + deadSteps + `)`

// due selects keys whose turn had come at ?1, by the index of what is kept: in
// progress only when the lease was over as well, freed ones only behind a call and
// not once they have expired (?2 is now). What is completed keeps nothing.
const due = `
	FROM onlyonce_keys INDEXED BY onlyonce_keys_due
	WHERE due_us BETWEEN 0 AND ?1 AND (?3 IS NULL OR operation IN (SELECT value FROM json_each(?3))) AND (state = 'in_doubt'
		OR (state = 'in_progress' AND lease_end_us <= ?1)
		OR (state = 'failed_retryable' AND expires_us > ?2 AND ` + behindCall + `))`

// anyDue tells whether there is a turn to give.
const anyDue = `SELECT EXISTS (SELECT 1` + due + `)`

// selectDue reads the keys that are due, those longest due first.
const selectDue = `SELECT ` + keyColumns + `, keep, turn` + due + ` ORDER BY due_us LIMIT ?4`

// putOff gives a turn (?4 is its number) and sets the next. The number counts up
// by one: each turn is given once.
const putOff = `
	UPDATE onlyonce_keys SET turn = ?4, due_us = ?5
	WHERE digest = ?1 AND fence = ?2 AND attempt = ?3 AND turn = ?4 - 1 AND keep IS NOT NULL`

// selectKept reads what is kept of a key that has not expired.
const selectKept = `
	SELECT keep FROM onlyonce_keys
	WHERE digest = ?1 AND scope = ?2 AND key = ?3 AND keep IS NOT NULL
		AND (expires_us IS NULL OR expires_us > ?4)`

// requeueKey makes the next turn the first again, and due since ever, or with the
// next claim's lease where it waits for one. Who owns the key is not touched.
const requeueKey = `
	UPDATE onlyonce_keys SET turn = 0, due_us = iif(due_us >= 0, 0, NULL)
	WHERE digest = ?1 AND scope = ?2 AND key = ?3 AND keep IS NOT NULL
		AND (expires_us IS NULL OR expires_us > ?4)`

// listed is what every list has in common: from behind a cursor (?1), of one
// scope or all (?2), as if the expired had been swept (?3), in the order of
// the digests.
const listed = ` digest > ?1 AND (?2 = '' OR scope = ?2)
		AND (expires_us IS NULL OR expires_us > ?3)
	ORDER BY digest LIMIT ?4`

// listAll lists records in every state.
const listAll = `SELECT ` + keyColumns + ` FROM onlyonce_keys WHERE ` + listed

// listState lists records in one state (?5).
const listState = `SELECT ` + keyColumns + ` FROM onlyonce_keys WHERE state = ?5 AND ` + listed

// listDoubt lists what is in doubt, by the small index of just those.
const listDoubt = `SELECT ` + keyColumns + ` FROM onlyonce_keys INDEXED BY onlyonce_keys_doubt
	WHERE state = 'in_doubt' AND ` + listed

// listInProgress lists what is in progress, by the small index of just those.
const listInProgress = `SELECT ` + keyColumns + ` FROM onlyonce_keys INDEXED BY onlyonce_keys_lease
	WHERE state = 'in_progress' AND ` + listed

// insertAudit keeps an operator's act for good.
const insertAudit = `
	INSERT INTO onlyonce_audit (digest, scope, key, action, actor, reason, fence, at_us)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`

// selectAudit lists the acts on a key, oldest first.
const selectAudit = `
	SELECT action, actor, reason, fence, at_us FROM onlyonce_audit
	WHERE digest = ?1 AND scope = ?2 AND key = ?3 ORDER BY id`

// selectSetting reads a setting.
const selectSetting = `SELECT value FROM onlyonce_settings WHERE kind = ?1 AND id = ?2`

// insertSetting keeps the first value: all processes must agree on it.
const insertSetting = `
	INSERT INTO onlyonce_settings (kind, id, value) VALUES (?1, ?2, ?3) ON CONFLICT (kind, id) DO NOTHING`

// schemaExists tells whether the first migration was ever applied.
const schemaExists = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'onlyonce_schema'`

// schemaVersion is the number of the last applied migration.
const schemaVersion = `SELECT coalesce(max(version), 0) FROM onlyonce_schema`

// writeNothing needs the right to write, and changes no row.
const writeNothing = `DELETE FROM onlyonce_settings WHERE kind IS NULL`
