package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
)

// Add writes an event into the transaction of what it tells of. An event that waits
// already, or one that cannot be read, is an error, which must roll the transaction
// back.
func Add(ctx context.Context, tx db.Tx, e event.Event) error {
	msg, err := e.Message()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, insertEvent, e.ID, string(e.Kind), e.Merchant, e.Amount, string(e.Currency), string(msg.Payload), e.OccurredAt.UnixMicro())
	if err != nil {
		return fmt.Errorf("add event: %w", err)
	}
	return nil
}

// Waiting is what was not published yet.
type Waiting struct {
	// Events is how many there are.
	Events int
	// Since is when the oldest of them occurred; zero: there is none.
	Since time.Time
}

// Look counts what waits. It reads all of it, so it is not for every second.
func Look(ctx context.Context, d *db.Database) (Waiting, error) {
	var w Waiting
	var since int64
	err := d.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, waitingEvents).Scan(&w.Events, &since)
	})
	if err != nil {
		return Waiting{}, fmt.Errorf("count events: %w", err)
	}
	if w.Events > 0 {
		w.Since = time.UnixMicro(since).UTC()
	}
	return w, nil
}
