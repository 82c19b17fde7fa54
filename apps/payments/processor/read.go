package processor

import (
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
)

// The size of a page.
const (
	defaultPage = 100
	maxPage     = 1000
)

func (s *Server) listCharges(w http.ResponseWriter, r *http.Request) {
	serveBook(w, r, s, &s.ledger.charges)
}

func (s *Server) listRefunds(w http.ResponseWriter, r *http.Request) {
	serveBook(w, r, s, &s.ledger.refunds)
}

// serveBook answers a look-up where the query has a reference, else a page.
func serveBook[T any](w http.ResponseWriter, r *http.Request, s *Server, b *book[T]) {
	query := r.URL.Query()
	if query.Has("reference") {
		if s.config.NoLookup {
			refuse(w, http.StatusMethodNotAllowed, CodeLookupUnsupported, "this processor cannot be asked by reference")
			return
		}
		visible := func(item T) bool { return s.now().Sub(b.created(item)) >= s.config.VisibleAfter }
		respond(w, http.StatusOK, page[T]{Data: find(s.ledger, b, query.Get("reference"), visible)})
		return
	}
	start, startErr := strconv.Atoi(orElse(query.Get("cursor"), "0"))
	limit, limitErr := strconv.Atoi(orElse(query.Get("limit"), strconv.Itoa(defaultPage)))
	if startErr != nil || limitErr != nil || start < 0 || limit < 1 || limit > maxPage {
		refuse(w, http.StatusBadRequest, CodeInvalidRequest, "cursor or limit is not valid")
		return
	}
	respond(w, http.StatusOK, pageOf(s.ledger, b, start, limit))
}

// find returns what is visible under a reference, oldest first; never nil.
func find[T any](l *ledger, b *book[T], reference string, visible func(T) bool) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := []T{}
	for _, at := range b.byReference[reference] {
		if visible(b.all[at]) {
			found = append(found, b.all[at])
		}
	}
	return found
}

// pageOf returns up to limit items from the start-th on. Nothing is ever taken
// out of a book or put in its middle, so a reader that follows the cursors sees
// each item once, also while others are added and across restarts.
func pageOf[T any](l *ledger, b *book[T], start, limit int) page[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	start = min(start, len(b.all))
	end := min(start+limit, len(b.all))
	p := page[T]{Data: append([]T{}, b.all[start:end]...)}
	if end < len(b.all) {
		p.Next = strconv.Itoa(end)
	}
	return p
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) {
	if err := s.journal.failure(); err != nil {
		refuse(w, http.StatusServiceUnavailable, CodeUnavailable, err.Error())
		return
	}
	respond(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *Server) getStats(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, s.Stats())
}

// Stats returns what GET /v1/stats answers.
func (s *Server) Stats() Stats {
	l := s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	st := Stats{
		Refunds:            len(l.refunds.all),
		ChargesByReference: make(map[string]int),
		RefundsByReference: make(map[string]int),
		Charged:            make(map[money.Currency]int64),
		Refunded:           make(map[money.Currency]int64),
	}
	for _, c := range l.charges.all {
		if !c.Succeeded() {
			st.Declined++
			continue
		}
		st.Charges++
		count(st.ChargesByReference, c.Reference)
		total(st.Charged, c.Currency, c.Amount)
	}
	for _, r := range l.refunds.all {
		count(st.RefundsByReference, r.Reference)
		total(st.Refunded, r.Currency, r.Amount)
	}
	st.DuplicateCharges = repeated(st.ChargesByReference)
	st.DuplicateRefunds = repeated(st.RefundsByReference)
	return st
}

func count(by map[string]int, reference string) {
	if reference != "" {
		by[reference]++
	}
}

func total(by map[money.Currency]int64, currency money.Currency, minor int64) {
	sum, err := money.Amount{Minor: by[currency], Currency: currency}.Add(money.Amount{Minor: minor, Currency: currency})
	if err != nil {
		sum.Minor = math.MaxInt64
	}
	by[currency] = sum.Minor
}

// repeated returns the references that were counted more than once, in order.
func repeated(counts map[string]int) []string {
	references := []string{}
	for reference, n := range counts {
		if n > 1 {
			references = append(references, reference)
		}
	}
	slices.Sort(references)
	return references
}
