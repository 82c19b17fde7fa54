package outbox

// All statements of the package.
const (
	insertEvent = `INSERT INTO payments_events (id, kind, merchant, amount, currency, payload, occurred_us) VALUES (?, ?, ?, ?, ?, ?, ?)`

	// The right to publish. Its holder prolongs it with each batch; nothing but the
	// work that is done twice depends on it.
	takeLock = `UPDATE payments_events_lock SET holder = ?, until_us = (SELECT now_us FROM payments_clock) + ?
		WHERE id = 1 AND (holder = ? OR until_us <= (SELECT now_us FROM payments_clock))`
	dropLock = `UPDATE payments_events_lock SET until_us = 0 WHERE id = 1 AND holder = ?`

	anyEvent    = `SELECT EXISTS (SELECT 1 FROM payments_events)`
	firstEvents = `SELECT id, kind, payload FROM payments_events ORDER BY seq LIMIT ?`
	// Exactly these: an event of a lower seq may be committed later than one of a
	// higher, so nothing is deleted by its place.
	deleteEvents = `DELETE FROM payments_events WHERE id IN (`

	waitingEvents = `SELECT count(*), coalesce(min(occurred_us), 0) FROM payments_events`
)
