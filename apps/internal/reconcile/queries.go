package reconcile

import (
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce/apps/payments"
)

// The lock: whoever's conditional update changes the row is the one run at work.
// payments_clock is the database's clock, by which its end is judged.
const (
	takeLock = `UPDATE payments_report_lock SET run = NULL, actor = ?, until_us = (SELECT now_us FROM payments_clock) + ?
		WHERE id = 1 AND until_us <= (SELECT now_us FROM payments_clock)`
	insertRun = `INSERT INTO payments_report_runs (file, provider, actor, started_us)
		VALUES (?, ?, ?, (SELECT now_us FROM payments_clock)) RETURNING id, started_us`
	nameLock   = `UPDATE payments_report_lock SET run = ? WHERE id = 1`
	selectLock = `SELECT coalesce(run, 0), actor, until_us FROM payments_report_lock WHERE id = 1`
	renewLock  = `UPDATE payments_report_lock SET until_us = (SELECT now_us FROM payments_clock) + ?
		WHERE id = 1 AND run = ? AND until_us > (SELECT now_us FROM payments_clock)`
	lockHeld = `SELECT count(*) FROM payments_report_lock WHERE run = ? AND until_us > (SELECT now_us FROM payments_clock)`
	dropLock = `UPDATE payments_report_lock SET until_us = 0 WHERE id = 1 AND run = ?`

	selectNow = `SELECT now_us FROM payments_clock`
	endRun    = `UPDATE payments_report_runs SET finished_us = (SELECT now_us FROM payments_clock), sha256 = ?, summary = ? WHERE id = ?`
)

// Staged rows. A batch whose commit was not answered may be staged again.
const (
	insertRows = `INSERT INTO payments_report_rows
		(run, line, type, provider_id, reference, amount, currency, shown, created_us) VALUES `
	rowValues      = `(?, ?, ?, ?, ?, ?, ?, ?, ?)`
	stagedColumns  = 9
	insertRowsOnce = ` ON CONFLICT (run, line) DO NOTHING`

	lineStaged = `SELECT count(*) FROM payments_report_rows WHERE run = ? AND line = ?`
	deadRun    = `SELECT coalesce(min(run), 0) FROM payments_report_rows WHERE run < ?`
	deleteRows = `DELETE FROM payments_report_rows
		WHERE run = ? AND line < (SELECT min(line) + ? FROM payments_report_rows WHERE run = ?)`

	// Unmatched rows are deleted in the order of their key, the rest at once.
	deleteUnmatched = `DELETE FROM payments_report_unmatched WHERE run = ? AND (type, reference, line) <
		(SELECT type, reference, line FROM payments_report_unmatched WHERE run = ? ORDER BY type, reference, line LIMIT 1 OFFSET ?)`
	deleteLastUnmatched = `DELETE FROM payments_report_unmatched WHERE run = ?`

	countUnmatched = `SELECT count(*) FROM payments_report_unmatched WHERE run = ? AND explained = 0 AND reference <> ''`
	selectShown    = `SELECT line, provider_id, coalesce(amount, -1), currency, shown FROM payments_report_unmatched
		WHERE run = ? AND type = ? AND reference = ? ORDER BY line LIMIT 3`
	selectUnnamed = `SELECT coalesce(min(line), 0) FROM payments_report_unmatched
		WHERE run = ? AND type = ? AND reference = ''
			AND (amount IS NULL OR ? = 1 OR (amount = ? AND currency = ?))`
	explainRows = `UPDATE payments_report_unmatched SET explained = 1 WHERE run = ? AND type = ? AND reference = ?`
	selectMany  = `SELECT line, provider_id, coalesce(amount, -1), currency, shown, reference FROM payments_report_unmatched
		WHERE run = ? AND type = ? AND explained = 0 AND reference IN (%s) ORDER BY reference, line`
)

// Comparisons, for each book. CROSS JOIN makes SQLite go through the rows and look
// the books up by the provider's id, never the other way round.
func insertUnmatched(b payments.Book) string {
	return fmt.Sprintf(`INSERT INTO payments_report_unmatched (run, type, reference, line, provider_id, amount, currency, shown)
		SELECT r.run, r.type, r.reference, r.line, r.provider_id, r.amount, r.currency, r.shown FROM payments_report_rows r
		WHERE r.run = ? AND r.type = ? AND r.line > ? AND r.line <= ?
			AND NOT EXISTS (SELECT 1 FROM %s b WHERE b.processor_id = r.provider_id)
		ON CONFLICT (run, type, reference, line) DO NOTHING`, b.Table)
}

func insertReconciled(b payments.Book) string {
	return fmt.Sprintf(`INSERT INTO payments_reconciled (type, seq, reference, run)
		SELECT r.type, b.seq, r.reference, r.run FROM payments_report_rows r CROSS JOIN %s b
		WHERE r.run = ? AND r.type = ? AND r.line > ? AND r.line <= ? AND b.processor_id = r.provider_id
		ON CONFLICT (type, seq) DO NOTHING`, b.Table)
}

func countMatched(b payments.Book) string {
	return fmt.Sprintf(`SELECT count(*) FROM payments_report_rows r CROSS JOIN %s b
		WHERE r.run = ? AND r.type = ? AND b.processor_id = r.provider_id
			AND r.amount = b.amount AND r.currency = b.currency AND b.status = 'succeeded'`, b.Table)
}

func selectDiffering(b payments.Book) string {
	return fmt.Sprintf(`SELECT r.line, r.provider_id, r.reference, r.shown, b.id, b.merchant, b.operation, b.amount, b.currency, b.status
		FROM payments_report_rows r CROSS JOIN %s b
		WHERE r.run = ? AND r.type = ? AND b.processor_id = r.provider_id AND r.amount IS NOT NULL
			AND (r.amount <> b.amount OR r.currency <> b.currency OR b.status <> 'succeeded')`, b.Table)
}

func selectMissingHere(b payments.Book) string {
	return fmt.Sprintf(`SELECT r.line, r.provider_id, r.reference, r.shown FROM payments_report_unmatched r
		WHERE r.run = ? AND r.type = ? AND r.explained = 0 AND r.amount IS NOT NULL
			AND NOT EXISTS (SELECT 1 FROM %s b WHERE b.processor_id = r.provider_id)`, b.Table)
}

// What a report has shown, now or before, or what there is a finding about, is not
// missing there.
func selectMissingThere(b payments.Book) string {
	return fmt.Sprintf(`SELECT b.processor_id, b.id, b.merchant, b.operation, b.amount, b.currency FROM %s b
		WHERE b.status = 'succeeded' AND b.created_us >= ? AND b.created_us < ?
			AND NOT EXISTS (SELECT 1 FROM payments_reconciled s WHERE s.type = ? AND s.seq = b.seq)
			AND NOT EXISTS (SELECT 1 FROM payments_findings f
				WHERE f.type = ? AND f.provider_id = b.processor_id AND f.kind <> 'missing_there')`, b.Table)
}

// An effect that an earlier report has shown under another id. SQLite goes through
// the former reports' rows once, PostgreSQL looks the few unmatched rows up.
func selectShownTwice(b payments.Book) string {
	return fmt.Sprintf(`SELECT r.line, r.provider_id, r.reference, r.shown, b.id, b.merchant, b.operation, b.processor_id
		FROM payments_reconciled s CROSS JOIN payments_report_unmatched r CROSS JOIN %s b
		WHERE r.run = ? AND s.type = ? AND s.reference <> '' AND r.type = s.type AND r.reference = s.reference
			AND b.seq = s.seq AND b.processor_id <> r.provider_id`, b.Table)
}

// selectByOperation finds what an operation has written.
func selectByOperation(b payments.Book) string {
	return fmt.Sprintf(`SELECT seq, id, coalesce(processor_id, ''), amount, currency, status FROM %s WHERE merchant = ? AND operation = ?`, b.Table)
}

const (
	selectChargeCurrency = `SELECT currency FROM payments_charges WHERE processor_id = ?`

	countReconciled     = `SELECT count(*) FROM payments_reconciled WHERE type = ? AND seq = ?`
	insertOneReconciled = `INSERT INTO payments_reconciled (type, seq, reference, run) VALUES (?, ?, ?, ?) ON CONFLICT (type, seq) DO NOTHING`

	selectUnknownCurrency = `SELECT line, type, provider_id, reference, shown FROM payments_report_rows WHERE run = ? AND amount IS NULL`
	selectSameID          = `SELECT type, provider_id, min(reference), count(*), min(line), max(line) FROM payments_report_rows
		WHERE run = ? GROUP BY type, provider_id HAVING count(*) > 1`
	selectSameReference = `SELECT type, reference, min(provider_id), max(provider_id), count(*), min(line), max(line) FROM payments_report_unmatched
		WHERE run = ? AND reference <> '' GROUP BY type, reference HAVING min(provider_id) <> max(provider_id)`
)

// Findings. One that is found again ages. What a person has accepted stays so
// until it looks otherwise. A run that was overtaken changes nothing.
const (
	upsertFinding = `INSERT INTO payments_findings (provider, kind, type, provider_id, reference, merchant, operation, ours, theirs, detail,
			status, first_us, last_us, first_run, last_run, runs, closed_us, closed_by)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?)
		ON CONFLICT (provider, kind, type, provider_id, reference) DO UPDATE SET
			merchant = excluded.merchant, operation = excluded.operation,
			status = CASE WHEN ` + stillAccepted + ` THEN 'accepted' ELSE excluded.status END,
			closed_us = CASE WHEN ` + stillAccepted + ` THEN payments_findings.closed_us ELSE excluded.closed_us END,
			closed_by = CASE WHEN ` + stillAccepted + ` THEN payments_findings.closed_by ELSE excluded.closed_by END,
			ours = excluded.ours, theirs = excluded.theirs, detail = excluded.detail, last_us = excluded.last_us,
			runs = payments_findings.runs + CASE WHEN payments_findings.last_run = excluded.last_run THEN 0 ELSE 1 END,
			last_run = excluded.last_run
		WHERE payments_findings.last_run <= excluded.last_run`
	stillAccepted = `(payments_findings.status = 'accepted' AND payments_findings.ours = excluded.ours AND payments_findings.theirs = excluded.theirs)`

	findingColumns = `id, provider, kind, type, provider_id, reference, merchant, operation, ours, theirs, detail,
		status, first_us, last_us, first_run, last_run, runs, coalesce(closed_us, 0), closed_by`
	selectOpen  = `SELECT ` + findingColumns + ` FROM payments_findings WHERE status = 'open' AND id > ? ORDER BY id LIMIT ?`
	selectOfRun = `SELECT ` + findingColumns + ` FROM payments_findings WHERE last_run = ? AND id > ? ORDER BY id LIMIT ?`
	// What a report has shown of a reference is not unsaid by one that lacks it.
	selectShownBefore = `SELECT id, theirs FROM payments_findings
		WHERE provider = ? AND type = ? AND reference = ? AND theirs <> '' ORDER BY id LIMIT 1`
	selectFinding = `SELECT ` + findingColumns + ` FROM payments_findings WHERE id = ?`
	acceptFinding = `UPDATE payments_findings SET status = 'accepted', closed_us = (SELECT now_us FROM payments_clock), closed_by = ?
		WHERE id = ? AND status = 'open'`

	countFindings = `SELECT kind, status, count(*) FROM payments_findings WHERE last_run = ? GROUP BY kind, status`
	countOpen     = `SELECT count(*) FROM payments_findings WHERE status = 'open' AND last_run <> ?`
	countResolved = `SELECT count(*) FROM payments_findings WHERE status = 'resolved' AND closed_by = ?`

	openElsewhere = `SELECT count(*) FROM payments_findings WHERE provider = ? AND status = 'open' AND last_run < ?`
	// The report has the row again, and nothing is wrong with it.
	selectSeenSound = `SELECT DISTINCT f.id FROM payments_report_rows r CROSS JOIN payments_findings f
		WHERE r.run = ? AND f.type = r.type AND f.provider_id = r.provider_id AND f.provider = ? AND f.status = 'open' AND f.last_run < ?
			AND f.kind IN ('missing_here', 'missing_there', 'amount_differs', 'unknown_currency', 'duplicate_row')`
	resolveOne = `UPDATE payments_findings SET status = 'resolved', closed_us = ?, closed_by = ? WHERE id = ? AND status = 'open' AND last_run < ?`
	// All keys were looked at.
	resolveKeys = `UPDATE payments_findings SET status = 'resolved', closed_us = ?, closed_by = ?
		WHERE provider = ? AND status = 'open' AND kind IN ('still_unknown', 'healable') AND last_run < ?`
	selectUnknownTypes = `SELECT id, type FROM payments_findings WHERE provider = ? AND status = 'open' AND kind = 'unknown_type' AND last_run < ?`
)

// resolveWritten is for what the books have got meanwhile.
func resolveWritten(b payments.Book) string {
	return fmt.Sprintf(`UPDATE payments_findings SET status = 'resolved', closed_us = ?, closed_by = ?
		WHERE provider = ? AND status = 'open' AND kind = 'missing_here' AND type = ? AND last_run < ?
			AND EXISTS (SELECT 1 FROM %s b WHERE b.processor_id = payments_findings.provider_id)`, b.Table)
}

// marks are so many arguments in a list.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }
