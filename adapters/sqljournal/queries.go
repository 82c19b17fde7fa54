package sqljournal

// The statements, in which {now} and ? are the dialect's. Every change adds 1 to
// version, so that the number of rows is that of those found: MySQL else counts those
// whose values differ.
const (
	insertEntry = `
INSERT INTO onlyonce_journal (intent, idempotency_key, method, target, header, body, created_us,
    state, attempts, status, answer_header, answer_body, note, ended_us, maker, locked_until_us, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 1)`

	// What of two that insert one intent at a time the second one does. It waits for
	// the first one's transaction. Who has made the row tells its column maker.
	orNothing      = ` ON CONFLICT (intent) DO NOTHING`
	orNothingMySQL = ` ON DUPLICATE KEY UPDATE intent = onlyonce_journal.intent`

	selectEntry = `
SELECT intent, idempotency_key, method, target, header, body, created_us,
    state, attempts, status, answer_header, answer_body, note, ended_us, maker, locker
FROM onlyonce_journal WHERE intent = ?`

	lockEntry = `
UPDATE onlyonce_journal SET locker = ?, locked_until_us = {now} + ?, version = version + 1
WHERE intent = ? AND (locker IS NULL OR locked_until_us <= {now})`

	// The token is the fence: whoever has taken the entry over has another one. A lease
	// that is over and that nobody has taken is as good as before.
	renewLock = `
UPDATE onlyonce_journal SET locked_until_us = {now} + ?, version = version + 1
WHERE intent = ? AND locker = ?`

	saveEntry = `
UPDATE onlyonce_journal SET state = ?, attempts = ?, status = ?, answer_header = ?, answer_body = ?, note = ?, ended_us = ?,
    locked_until_us = {now} + ?, version = version + 1
WHERE intent = ? AND locker = ?`

	unlockEntry = `
UPDATE onlyonce_journal SET locker = NULL, locked_until_us = 0, version = version + 1
WHERE intent = ? AND locker = ?`

	createdAt = `SELECT created_us FROM onlyonce_journal WHERE intent = ?`

	openEntries = `
SELECT intent FROM onlyonce_journal
WHERE state = 'open' AND created_us >= ? AND (created_us > ? OR intent > ?)
ORDER BY created_us, intent LIMIT ?`

	// ended_us of open entries is NULL.
	prunable = `ended_us < ? AND state <> 'open' AND (locker IS NULL OR locked_until_us <= {now})`

	// The condition is judged again when a row is locked for deletion.
	pruneSQLite   = `DELETE FROM onlyonce_journal WHERE intent IN (SELECT intent FROM onlyonce_journal WHERE ` + prunable + ` ORDER BY ended_us LIMIT ?)`
	prunePostgres = `DELETE FROM onlyonce_journal WHERE intent IN (SELECT intent FROM onlyonce_journal WHERE ` + prunable + ` ORDER BY ended_us LIMIT ? FOR UPDATE SKIP LOCKED)`
	pruneMySQL    = `DELETE FROM onlyonce_journal WHERE ` + prunable + ` ORDER BY ended_us LIMIT ?`
)

// Whether there are tables.
const (
	tablesSQLite   = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'onlyonce_journal_versions'`
	tablesPostgres = `SELECT count(*) FROM (SELECT to_regclass('onlyonce_journal_versions') AS found) AS t WHERE found IS NOT NULL`
	tablesMySQL    = `SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'onlyonce_journal_versions'`

	tablesVersion = `SELECT COALESCE(max(version), 0) FROM onlyonce_journal_versions`
)

// queries are the statements in a dialect.
type queries struct {
	begin, insert, get        string
	lock, renew, save, unlock string
	created, pending, prune   string
	tables, version           string
}

func queriesOf(d Dialect) queries {
	begin, prune, tables := insertEntry+orNothing, pruneSQLite, tablesSQLite
	switch d {
	case Postgres:
		prune, tables = prunePostgres, tablesPostgres
	case MySQL:
		begin, prune, tables = insertEntry+orNothingMySQL, pruneMySQL, tablesMySQL
	case SQLite:
	}
	return queries{
		begin: d.render(begin), insert: d.render(insertEntry), get: d.render(selectEntry),
		lock: d.render(lockEntry), renew: d.render(renewLock), save: d.render(saveEntry), unlock: d.render(unlockEntry),
		created: d.render(createdAt), pending: d.render(openEntries), prune: d.render(prune),
		tables: tables, version: tablesVersion,
	}
}
