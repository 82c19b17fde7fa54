package event

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Kind says what has happened.
type Kind string

// The kinds.
const (
	ChargeSucceeded Kind = "charge.succeeded"
	RefundSucceeded Kind = "refund.succeeded"
)

// Sign is what the event does to its merchant's balance: 1 for a charge, -1 for a
// refund, 0 for a kind that this program does not know.
func (k Kind) Sign() int64 {
	switch k {
	case ChargeSucceeded:
		return 1
	case RefundSucceeded:
		return -1
	default:
		return 0
	}
}

// Event is one fact about one operation. It is published as JSON.
type Event struct {
	// ID is a UUID, the same however often the event is written or published: it is
	// derived from what it is about. Consumers tell duplicates by it.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Merchant is whose money it is.
	Merchant string `json:"merchant"`
	// Amount is in minor units of Currency, and above zero for refunds too.
	Amount   int64          `json:"amount"`
	Currency money.Currency `json:"currency"`
	// Subject is the id of the charge or the refund, Operation the reference of the
	// idempotency key that it was made under.
	Subject   string `json:"subject"`
	Operation string `json:"operation"`
	// OccurredAt is when it was written down, by the service's clock. Events come in no
	// promised order.
	OccurredAt time.Time `json:"occurred_at"`
}

// KindAttribute is the attribute of a message that says the event's kind, for brokers
// that route by it.
const KindAttribute = "kind"

// IDOf is the id of the event of a kind about an operation, given by its reference,
// which its merchant is part of. It holds nothing random: a charge that is written
// down anew, from a backup and the provider's memory of it, is the same event, and
// consumers pass over it.
func IDOf(kind Kind, operation string) string {
	sum := sha256.Sum256([]byte("payments event 1\x00" + string(kind) + "\x00" + operation))
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 0x80 // version 8 of RFC 9562
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// Message is the event as it is published.
func (e Event) Message() (inbox.Message, error) {
	if err := e.validate(); err != nil {
		return inbox.Message{}, fmt.Errorf("encode event: %w", err)
	}
	payload, err := json.Marshal(e)
	if err != nil {
		return inbox.Message{}, fmt.Errorf("encode event: %w", err)
	}
	return inbox.Message{ID: e.ID, Payload: payload, Attributes: map[string]string{KindAttribute: string(e.Kind)}}, nil
}

// Read is the event in a message. Whatever could be misread is an error: a field twice,
// an amount that is no whole number or does not fit, a kind that this program does not
// know and that may move money, another id than the message's. Fields that it does not
// know are passed over.
func Read(msg inbox.Message) (Event, error) {
	var e Event
	if err := json.Unmarshal(msg.Payload, &e); err != nil {
		return Event{}, fmt.Errorf("read event: %w", err)
	}
	if err := e.validate(); err != nil {
		return Event{}, fmt.Errorf("read event: %w", err)
	}
	if e.ID != msg.ID {
		return Event{}, fmt.Errorf("read event: its id is %s, that of its message %q", e.ID, msg.ID)
	}
	return e, nil
}

// validate joins all that is wrong.
func (e Event) validate() error {
	var errs []error
	if id, err := uuid.Parse(e.ID); err != nil || id.String() != e.ID {
		errs = append(errs, fmt.Errorf("id %q is no UUID", e.ID))
	}
	if e.Kind.Sign() == 0 {
		errs = append(errs, fmt.Errorf("kind %q is not known", e.Kind))
	}
	if e.Merchant == "" {
		errs = append(errs, errors.New("merchant is missing"))
	}
	if e.Amount <= 0 {
		errs = append(errs, fmt.Errorf("amount %d is not above zero", e.Amount))
	}
	if _, err := money.ParseCurrency(string(e.Currency)); err != nil {
		errs = append(errs, err)
	}
	if e.OccurredAt.IsZero() {
		errs = append(errs, errors.New("occurred_at is missing"))
	}
	return errors.Join(errs...)
}
