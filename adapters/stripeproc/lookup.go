package stripeproc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/stripe/stripe-go/v85"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/provider"
)

// Of a reference there is one object, or a few where earlier sends were proved not
// applied. Of a charge there may be many refunds.
const (
	pageSize = 100
	maxPages = 20
)

// FindCharge searches for payment intents with our reference, by one HTTP request
// for each page. An error proves nothing, and stands for every answer but a clear
// one: also for a payment intent that is not final yet.
func (p *Provider) FindCharge(ctx context.Context, s onlyonce.Sending) (provider.Outcome, bool, error) {
	const op = "search payment intents"
	if p.cfg.NoSearch {
		return provider.Outcome{}, false, fmt.Errorf("stripe: %s: the account has no search; the charge has to be looked up by hand", op)
	}
	if !searchable(s.Reference) {
		return provider.Outcome{}, false, fmt.Errorf("stripe: %s: %q is no reference of ours", op, s.Reference)
	}
	query := url.Values{
		"query": {"metadata['" + ReferenceKey + "']:'" + s.Reference + "'"},
		"limit": {strconv.Itoa(pageSize)},
	}
	var found finding
	for range maxPages {
		var page page[stripe.PaymentIntent]
		if err := p.client.list(ctx, asking(op, pathSearch, query), &page); err != nil {
			return provider.Outcome{}, false, err
		}
		for i := range page.Data {
			// Search compares without regard to case.
			if pi := &page.Data[i]; pi.Metadata[ReferenceKey] == s.Reference {
				found.add(p.chargeOutcome(pi))
			}
		}
		if !page.HasMore {
			return found.result()
		}
		if page.NextPage == "" {
			return provider.Outcome{}, false, fmt.Errorf("stripe: %s: there are more, but no next page is named", op)
		}
		query.Set("page", page.NextPage)
	}
	return provider.Outcome{}, false, tooMany(op)
}

// FindRefund lists the refunds of the payment intent in the recorded request, by
// one HTTP request for each page, and picks those with our reference. Lists are
// not behind, as search is.
func (p *Provider) FindRefund(ctx context.Context, s onlyonce.Sending) (provider.Outcome, bool, error) {
	const op = "list refunds"
	form, err := url.ParseQuery(string(s.Request))
	if err != nil || form.Get(fieldPaymentIntent) == "" {
		return provider.Outcome{}, false, errors.Join(fmt.Errorf("stripe: %s: the recorded request names no payment intent", op), err)
	}
	query := url.Values{
		fieldPaymentIntent: {form.Get(fieldPaymentIntent)},
		"limit":            {strconv.Itoa(pageSize)},
	}
	var found finding
	for range maxPages {
		var page page[stripe.Refund]
		if err := p.client.list(ctx, asking(op, pathRefunds, query), &page); err != nil {
			return provider.Outcome{}, false, err
		}
		for i := range page.Data {
			if r := &page.Data[i]; r.Metadata[ReferenceKey] == s.Reference {
				found.add(p.refundOutcome(r))
			}
		}
		if !page.HasMore {
			return found.result()
		}
		if len(page.Data) == 0 {
			return provider.Outcome{}, false, fmt.Errorf("stripe: %s: there are more, but the page is empty", op)
		}
		query.Set("starting_after", page.Data[len(page.Data)-1].ID)
	}
	return provider.Outcome{}, false, tooMany(op)
}

// page is one page of a search or of a list.
type page[T any] struct {
	stripe.APIResource
	Object   string `json:"object"`
	Data     []T    `json:"data"`
	HasMore  bool   `json:"has_more"`
	NextPage string `json:"next_page"`
}

func (p *page[T]) complete() bool {
	return (p.Object == "list" || p.Object == "search_result") && p.Data != nil
}

// listing is a page that can tell whether it is one.
type listing interface {
	stripe.LastResponseSetter
	complete() bool
}

// asking is the request for one page. It has no key: Stripe ignores one on GET.
func asking(op, path string, query url.Values) request {
	return request{op: op, method: http.MethodGet, path: path, form: []byte(query.Encode())}
}

// list reads one page. An answer that is not one, but JSON all the same, must not
// pass for "nothing found", after which a charge may be made again.
func (c *client) list(ctx context.Context, r request, v listing) error {
	if err := c.do(ctx, r, v); err != nil {
		return err
	}
	if !v.complete() {
		return fmt.Errorf("stripe: %s: the answer is no list: look at what stands between", r.op)
	}
	return nil
}

func tooMany(op string) error {
	return fmt.Errorf("stripe: %s: more than %d pages; look it up by hand", op, maxPages)
}

// finding is what was found under one reference.
type finding struct {
	moved, declined *provider.Outcome
	// unclear is why nothing can be said yet.
	unclear error
}

func (f *finding) add(out provider.Outcome, err error) {
	switch {
	case err != nil:
		f.unclear = errors.Join(f.unclear, err)
	case out.Status == provider.Succeeded:
		// Stripe lists the newest first; the first that was made counts.
		f.moved = &out
	default:
		f.declined = &out
	}
}

// result is the one that moved money. While another may still move some, "declined"
// is no answer.
func (f *finding) result() (provider.Outcome, bool, error) {
	switch {
	case f.moved != nil:
		return *f.moved, true, nil
	case f.unclear != nil:
		return provider.Outcome{}, false, fmt.Errorf("stripe: %w", f.unclear)
	case f.declined != nil:
		return *f.declined, true, nil
	}
	return provider.Outcome{}, false, nil
}
