package processor

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// ledger is what the processor remembers. It is safe for concurrent use.
type ledger struct {
	memory time.Duration // of keys

	mu       sync.Mutex
	charges  book[Charge]
	refunds  book[Refund]
	refunded map[string]int64     // by charge, refunds being recorded included
	answers  map[string]entry     // by key
	expiring []keyTime            // of answers, oldest first
	inFlight map[string]*inFlight // by key
	struck   map[string]struct{}  // attempts that a fault has struck
	history  []kind               // of charges and refunds, oldest first
}

// kind tells whose turn it is in the history.
type kind uint8

const (
	kindCharge kind = iota
	kindRefund
)

// keyTime says when a key's answer was made.
type keyTime struct {
	key string
	at  time.Time
}

// inFlight is a key being worked on.
type inFlight struct {
	key, digest string
}

// book holds things in the order they came about, found by id and reference.
type book[T any] struct {
	created     func(T) time.Time
	all         []T
	byID        map[string]int
	byReference map[string][]int
}

func newBook[T any](created func(T) time.Time) book[T] {
	return book[T]{created: created, byID: make(map[string]int), byReference: make(map[string][]int)}
}

func (b *book[T]) add(id, reference string, item T) {
	b.byID[id] = len(b.all)
	if reference != "" {
		b.byReference[reference] = append(b.byReference[reference], len(b.all))
	}
	b.all = append(b.all, item)
}

func newLedger(memory time.Duration) *ledger {
	return &ledger{
		memory:   memory,
		charges:  newBook(func(c Charge) time.Time { return c.CreatedAt }),
		refunds:  newBook(func(r Refund) time.Time { return r.CreatedAt }),
		refunded: make(map[string]int64),
		answers:  make(map[string]entry),
		inFlight: make(map[string]*inFlight),
		struck:   make(map[string]struct{}),
	}
}

// problem is a refusal with its status. A nil problem is none.
type problem struct {
	status        int
	code, message string
}

// claim takes a key for one attempt. It returns a claim to release, or the
// answer given before, or why the attempt must not go on. Without a key there
// is nothing to claim and all are nil.
func (l *ledger) claim(key, digest string, now time.Time) (*inFlight, *entry, *problem) {
	if key == "" {
		return nil, nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	if e, ok := l.answers[key]; ok {
		if e.Digest != digest {
			return nil, nil, keyReused()
		}
		return nil, &e, nil
	}
	if other, ok := l.inFlight[key]; ok {
		if other.digest != digest {
			return nil, nil, keyReused()
		}
		return nil, nil, &problem{http.StatusConflict, CodeInProgress, "a request with this key is in progress"}
	}
	claimed := &inFlight{key: key, digest: digest}
	l.inFlight[key] = claimed
	return claimed, nil, nil
}

func keyReused() *problem {
	return &problem{http.StatusConflict, CodeKeyReused, "the key was used for another request"}
}

// forget drops the keys whose time is over. It is called with mu held.
func (l *ledger) forget(now time.Time) {
	for len(l.expiring) > 0 && now.Sub(l.expiring[0].at) >= l.memory {
		oldest := l.expiring[0]
		l.expiring = l.expiring[1:]
		if e, ok := l.answers[oldest.key]; ok && e.At.Equal(oldest.at) {
			delete(l.answers, oldest.key)
		}
	}
}

// release gives up a claim; what was recorded meanwhile stays.
func (l *ledger) release(claimed *inFlight) {
	if claimed == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight[claimed.key] == claimed {
		delete(l.inFlight, claimed.key)
	}
}

// strikes reports whether the attempt is the first with its name, and notes it.
// Without a name every attempt is a first one.
func (l *ledger) strikes(attempt string) bool {
	if attempt == "" {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, before := l.struck[attempt]
	l.struck[attempt] = struct{}{}
	return !before
}

// reserve sets an amount of a charge aside for a refund and returns the charge.
func (l *ledger) reserve(id string, amount int64) (Charge, *problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.charges.byID[id]
	if !ok {
		return Charge{}, &problem{http.StatusUnprocessableEntity, CodeUnknownCharge, "there is no such charge"}
	}
	charge := l.charges.all[at]
	if !charge.Succeeded() {
		return Charge{}, &problem{http.StatusUnprocessableEntity, CodeNotRefundable, "the charge was declined"}
	}
	if amount > charge.Amount-l.refunded[id] {
		return Charge{}, &problem{
			http.StatusUnprocessableEntity, CodeRefundExceedsCharge,
			fmt.Sprintf("%d of %d are refunded already", l.refunded[id], charge.Amount),
		}
	}
	l.refunded[id] += amount
	return charge, nil
}

// apply takes an entry that is durable into memory. A refund's amount has been
// reserved before.
func (l *ledger) apply(e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Struck != "" {
		l.struck[e.Struck] = struct{}{}
	}
	switch {
	case e.Charge != nil:
		l.charges.add(e.Charge.ID, e.Charge.Reference, *e.Charge)
		l.history = append(l.history, kindCharge)
	case e.Refund != nil:
		l.refunds.add(e.Refund.ID, e.Refund.Reference, *e.Refund)
		l.history = append(l.history, kindRefund)
	default:
		return
	}
	if e.Key != "" {
		l.answers[e.Key] = e
		l.expiring = append(l.expiring, keyTime{key: e.Key, at: e.At})
	}
}

// load takes an entry of an earlier run into memory.
func (l *ledger) load(e entry) error {
	if e.Refund != nil {
		if _, p := l.reserve(e.Refund.Charge, e.Refund.Amount); p != nil {
			return fmt.Errorf("refund %s: %s", e.Refund.ID, p.message)
		}
	}
	l.apply(e)
	return nil
}
