package inbox

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// ActionRetry is the action of the audit entry by which a person asks for another try.
const ActionRetry = "inbox retry"

// Entry is what is known of one message.
type Entry struct {
	// Consumer is whose message it is.
	Consumer string
	// Record is its key's: in doubt while it is parked. Record.Key.Value names the
	// message to Show, Retry and Drop, as its id does.
	Record onlyonce.Record
	// Kept tells whether the message is in the store; Message is then what is kept of
	// it, without Deliveries.
	Kept    bool
	Message Message
	// Error is why it was parked first; Record.Reason has the last try's.
	Error string
	// OtherPayload: another payload was handled under its id. It can only be dropped.
	OtherPayload bool
	// Waits: it will be tried again by itself, as a webhook's event is.
	Waits bool
	// RetryAsked: a person has asked for another try, which has not begun yet.
	RetryAsked bool
	// Dropped: a person has said that it is not to be handled.
	Dropped bool
	// Audit is what people did, oldest first; only from Show.
	Audit []onlyonce.AuditEntry
}

// Page is one page of a list.
type Page struct {
	Entries []Entry
	// Next is empty on the last page.
	Next string
}

// List gives the messages of a consumer that are in doubt, parked above all, or of all
// consumers if it is empty; from behind a cursor, which is the Next of the page before.
func List(ctx context.Context, store onlyonce.Store, consumer, after string) (Page, error) {
	ops, err := operators(store)
	if err != nil {
		return Page{}, err
	}
	filter := onlyonce.ListFilter{State: onlyonce.InDoubt, After: after}
	if consumer != "" {
		filter.Scope = scopeOf(consumer)
	}
	for {
		found, err := ops.List(ctx, filter)
		if err != nil {
			return Page{}, fmt.Errorf("list messages: %w", err)
		}
		page := Page{Next: found.Next}
		for _, rec := range found.Records {
			if !Owns(rec.Key) {
				continue
			}
			e, err := entryOf(ctx, store, rec)
			if err != nil {
				return Page{}, err
			}
			e.Audit = nil
			page.Entries = append(page.Entries, e)
		}
		if len(page.Entries) > 0 || page.Next == "" {
			return page, nil
		}
		filter.After = page.Next
	}
}

// Show gives one message by its id, or by the value of its key as List has it.
// CodeNotFound: there is none, or it is forgotten.
func Show(ctx context.Context, store onlyonce.Store, consumer, id string) (Entry, error) {
	for _, key := range []onlyonce.Key{{Scope: scopeOf(consumer), Value: id}, KeyOf(consumer, id)} {
		if key.Validate() != nil {
			continue
		}
		rec, found, err := store.Get(ctx, key)
		if err != nil {
			return Entry{}, fmt.Errorf("read message: %w", err)
		}
		if found {
			return entryOf(ctx, store, rec)
		}
	}
	return Entry{}, &onlyonce.Error{
		Code: onlyonce.CodeNotFound, Op: "find message",
		Hint: fmt.Sprintf("consumer %q has no message %q; onlyonce inbox list lists those that are parked", consumer, id),
	}
}

// Act is what a person does about a message.
type Act struct {
	Consumer string
	// ID is the message's, or the value of its key.
	ID string
	// Actor is who it is, Reason why; both are kept for good.
	Actor, Reason string
}

// Retry asks for another try of a parked message. It only leaves a mark, for the
// Recoverer of the inbox to find. The mark counts until that try begins; where the try
// fails, the message is parked again.
//
//   - CodeNotFound: there is no such message;
//   - CodeNotInDoubt: it is not parked;
//   - CodeConfig: no Actor; or it cannot be run again: another payload was handled under
//     its id, or nothing is kept of it.
func Retry(ctx context.Context, store onlyonce.Store, act Act) (Entry, error) {
	if act.Actor == "" {
		return Entry{}, actError("retry message", "needs an actor")
	}
	ops, err := operators(store)
	if err != nil {
		return Entry{}, err
	}
	e, err := Show(ctx, store, act.Consumer, act.ID)
	if err != nil {
		return e, err
	}
	rec := e.Record
	switch {
	case rec.State != onlyonce.InDoubt:
		return e, &onlyonce.Error{
			Code: onlyonce.CodeNotInDoubt, Op: "retry message", Operation: rec.Key.Operation(),
			Hint: fmt.Sprintf("it is %s: only what is parked can be tried again", rec.State),
		}
	case e.OtherPayload:
		return e, actError("retry message", "cannot be run: another payload was used under its id. Drop it, or let its sender send it under an id of its own")
	case !e.Kept:
		return e, actError("retry message", "is not kept in the store: its source delivers it again, or it can be settled by onlyonce keys settle")
	}
	entry := onlyonce.AuditEntry{Key: rec.Key, Action: ActionRetry, Actor: act.Actor, Reason: act.Reason, Fence: rec.Fence}
	if err := ops.AddAudit(ctx, entry); err != nil {
		return e, fmt.Errorf("ask for another try: %w", err)
	}
	rs, _ := onlyonce.RecoveryOf(store)
	if _, err := rs.Requeue(ctx, rec.Key); err != nil {
		return e, fmt.Errorf("it will be tried, but perhaps later: give it the next turn: %w", err)
	}
	return Show(ctx, store, act.Consumer, act.ID)
}

// Drop says that a parked message is not to be handled: its key is completed, so that a
// redelivery is a duplicate, and what was kept of it goes. Its errors are those of
// Engine.Settle; CodeNotInDoubt where it is just being tried.
func Drop(ctx context.Context, engine *onlyonce.Engine, act Act) (Entry, error) {
	e, err := Show(ctx, engine.Store(), act.Consumer, act.ID)
	if err != nil {
		return e, err
	}
	_, err = engine.Settle(ctx, onlyonce.Settlement{
		Key: e.Record.Key, Applied: &onlyonce.Answer{Status: droppedStatus, Body: []byte("dropped")},
		Actor: act.Actor, Reason: act.Reason,
	})
	if err != nil {
		return e, fmt.Errorf("drop message: %w", err)
	}
	return Show(ctx, engine.Store(), act.Consumer, e.Record.Key.Value)
}

// droppedStatus is the stored answer of a message that was dropped.
const droppedStatus = http.StatusGone

// entryOf reads what belongs to a record.
func entryOf(ctx context.Context, store onlyonce.Store, rec onlyonce.Record) (Entry, error) {
	e := Entry{Consumer: strings.TrimPrefix(rec.Key.Scope, scopePrefix), Record: rec}
	e.Dropped = rec.Answer != nil && rec.Answer.Status == droppedStatus
	text, has, err := readKept(ctx, store, rec.Key)
	if err != nil {
		return e, fmt.Errorf("read what is kept: %w", err)
	}
	if has {
		e.Kept = true
		e.open(text)
	}
	ops, err := operators(store)
	if err != nil {
		return e, err
	}
	if e.Audit, err = ops.Audit(ctx, rec.Key); err != nil {
		return e, fmt.Errorf("read audit: %w", err)
	}
	e.RetryAsked = rec.State == onlyonce.InDoubt && asked(e.Audit, rec)
	return e, nil
}

// open takes over what is kept of the message. What a newer program has kept can be
// listed and dropped all the same.
func (e *Entry) open(text []byte) {
	k, err := decode(text)
	if err != nil {
		e.Error = err.Error()
		return
	}
	e.Message, e.Error, e.OtherPayload = k.message(), k.Error, k.Other
	e.Waits = k.Waits && strings.HasPrefix(e.Record.Reason, onlyonce.ReasonHeld+waitingReason)
}

// retryAsked tells whether somebody has asked for a try that has not begun.
func retryAsked(ctx context.Context, store onlyonce.Store, rec onlyonce.Record) (bool, error) {
	ops, err := operators(store)
	if err != nil {
		return false, err
	}
	audit, err := ops.Audit(ctx, rec.Key)
	if err != nil {
		return false, &onlyonce.Error{
			Code: onlyonce.CodeStoreUnavailable, Op: "read audit", Operation: rec.Key.Operation(), RetryAfter: time.Second, Err: err,
			Hint: "nothing was run; the next look finds the message again",
		}
	}
	return asked(audit, rec), nil
}

// asked: a try raises the fence, so that a mark counts once.
func asked(audit []onlyonce.AuditEntry, rec onlyonce.Record) bool {
	return slices.ContainsFunc(audit, func(a onlyonce.AuditEntry) bool {
		return a.Action == ActionRetry && a.Fence == rec.Fence
	})
}

func operators(store onlyonce.Store) (onlyonce.OperatorStore, error) {
	ops, ok := onlyonce.OperatorsOf(store)
	if !ok {
		return nil, configError("store", "%s keeps no audit", store.Features().Name)
	}
	return ops, nil
}

func actError(op, hint string) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: op, Hint: "the message " + hint}
}

// readKept reads what is kept of a message, in its stored form.
func readKept(ctx context.Context, store onlyonce.Store, key onlyonce.Key) ([]byte, bool, error) {
	rs, ok := onlyonce.RecoveryOf(store)
	if !ok {
		return nil, false, configError("store", "%s keeps no messages", store.Features().Name)
	}
	return rs.Kept(ctx, key) //nolint:wrapcheck // the caller says what was read
}
