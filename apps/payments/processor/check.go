package processor

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
)

// MaxAmount is the largest amount of one charge, in minor units.
const MaxAmount = 999_999_999_999

// maxReference is the longest reference, in bytes.
const maxReference = 255

// check refuses what can never be charged, and finds out how the card behaves.
func (r ChargeRequest) check() (behaviour, *problem) {
	if r.Amount <= 0 || r.Amount > MaxAmount {
		return behaviour{}, invalid("amount must be from 1 to %d", int64(MaxAmount))
	}
	if _, err := money.ParseCurrency(string(r.Currency)); err != nil {
		return behaviour{}, invalid("currency %q is not an upper-case ISO 4217 code", r.Currency)
	}
	if len(r.Reference) > maxReference {
		return behaviour{}, invalid("reference is longer than %d bytes", maxReference)
	}
	card, ok := behaviourOf(r.Source)
	if !ok {
		return behaviour{}, &problem{http.StatusBadRequest, CodeUnknownSource, "there is no such source"}
	}
	if r.Simulate == "" {
		return card, nil
	}
	if card.fault, ok = faultNamed(r.Simulate); !ok {
		return behaviour{}, unknownFault()
	}
	return card, nil
}

// check refuses what can never be refunded, and finds the fault to commit.
func (r RefundRequest) check() (fault, *problem) {
	if r.Charge == "" {
		return fault{}, invalid("charge is required")
	}
	if r.Amount <= 0 {
		return fault{}, invalid("amount must be above 0")
	}
	if len(r.Reference) > maxReference {
		return fault{}, invalid("reference is longer than %d bytes", maxReference)
	}
	if r.Simulate == "" {
		return fault{}, nil
	}
	f, ok := faultNamed(r.Simulate)
	if !ok {
		return fault{}, unknownFault()
	}
	return f, nil
}

func unknownFault() *problem {
	return &problem{http.StatusBadRequest, CodeUnknownFault, "simulate names no fault"}
}

// invalid is a refusal of a request that makes no sense.
func invalid(format string, args ...any) *problem {
	return &problem{http.StatusBadRequest, CodeInvalidRequest, fmt.Sprintf(format, args...)}
}

func newCharge(r ChargeRequest, card behaviour, now time.Time) *Charge {
	c := &Charge{
		ID: newID("pc_"), Status: StatusSucceeded,
		Amount: r.Amount, Currency: r.Currency, Source: r.Source,
		Reference: r.Reference, Metadata: r.Metadata,
		DeclineCode: card.declineCode, Message: card.message, CreatedAt: now,
	}
	if card.declineCode != "" {
		c.Status = StatusDeclined
	}
	return c
}

func newRefund(r RefundRequest, charge Charge, now time.Time) *Refund {
	return &Refund{
		ID: newID("rf_"), Status: StatusSucceeded,
		Charge: r.Charge, Amount: r.Amount, Currency: charge.Currency,
		Reference: r.Reference, CreatedAt: now,
	}
}

func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }
