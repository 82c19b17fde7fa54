package payments

import (
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// Codes of the service's own problems, in the member "error".
const (
	codeUnauthenticated      = "unauthenticated"
	codeInvalid              = "invalid_request"
	codeNotFound             = "not_found"
	codeMethod               = "method_not_allowed"
	codeTooLarge             = "request_body_too_large"
	codeMediaType            = "unsupported_media_type"
	codeKeyReused            = "idempotency_key_reused"
	codeResourceBusy         = "resource_busy"
	codeCardDeclined         = "card_declined"
	codeUnknownSource        = "unknown_source"
	codeChargeRefused        = "charge_refused"
	codeNotTaken             = "payment_not_taken"
	codeUnknownCharge        = "unknown_charge"
	codeNotRefundable        = "charge_not_refundable"
	codeRefundExceeds        = "refund_exceeds_charge"
	codeRefundRefused        = "refund_refused"
	codeUnknownProduct       = "unknown_product"
	codeMixedCurrencies      = "mixed_currencies"
	codeOutOfStock           = "out_of_stock"
	codeOrderTooLarge        = "order_too_large"
	codeOrderExists          = "order_exists"
	codeUnknownOrder         = "unknown_order"
	codeOrderAmount          = "order_amount_differs"
	codeOrderPaid            = "order_paid"
	codeOrderClosed          = "order_closed"
	codeProcessorUnavailable = "processor_unavailable"
	codeUnavailable          = "unavailable"
)

// kind is what all problems of one code have in common.
type kind struct {
	code   string
	status int
	title  string
	with   oncehttp.RetryWith
	text   string
}

func kinds() []kind {
	const (
		same = oncehttp.SameKey
		anew = oncehttp.NewKey
		none = oncehttp.NoRetry
	)
	return []kind{
		{codeUnauthenticated, http.StatusUnauthorized, "Unauthenticated", none, "The request has no API key that this service knows."},
		{codeInvalid, http.StatusBadRequest, "Invalid request", none, "The request cannot be read; the member field names what is wrong. No key was used up: the corrected request may use the same one."},
		{codeNotFound, http.StatusNotFound, "Not found", none, "There is no such resource, or it belongs to somebody else."},
		{codeMethod, http.StatusMethodNotAllowed, "Method not allowed", none, "The resource does not have this method; the header Allow names those it has."},
		{codeTooLarge, http.StatusRequestEntityTooLarge, "Request body too large", none, "The body is over the limit."},
		{codeMediaType, http.StatusUnsupportedMediaType, "Unsupported media type", none, "Bodies are JSON: Content-Type: application/json. No key was used up."},
		{codeKeyReused, http.StatusUnprocessableEntity, "Idempotency key reused", anew, "The key was used for another operation, whose result still stands though its answer has expired."},
		{codeResourceBusy, http.StatusConflict, "Resource busy", same, "Another operation works on the same order or charge, or its outcome is not known yet. This one was not begun, and its key is free: send it again later with the same key. Look first what became of the other one: GET /idempotency-keys/KEY."},
		{codeCardDeclined, http.StatusPaymentRequired, "Card declined", anew, "The card's bank refused. No money moved. Another try is another operation, with a key of its own."},
		{codeUnknownSource, http.StatusUnprocessableEntity, "Unknown source", anew, "The processor does not know the source. No money moved."},
		{codeChargeRefused, http.StatusUnprocessableEntity, "Charge refused", anew, "The processor refuses the request itself; the member processor_code says why. No money moved."},
		{codeNotTaken, http.StatusServiceUnavailable, "Payment not taken", anew, "The processor took nothing on, so no money moved. The order is cancelled and its stock is free again: check out again, with a new key. This answer is final and is replayed."},
		{codeUnknownCharge, http.StatusUnprocessableEntity, "Unknown charge", anew, "There is no such charge."},
		{codeNotRefundable, http.StatusUnprocessableEntity, "Charge not refundable", anew, "The charge took no money, so there is none to give back."},
		{codeRefundExceeds, http.StatusUnprocessableEntity, "Refund exceeds charge", anew, "All refunds of a charge together never exceed it."},
		{codeRefundRefused, http.StatusUnprocessableEntity, "Refund refused", anew, "The processor refuses the refund itself; the member processor_code says why. No money was given back."},
		{codeUnknownProduct, http.StatusUnprocessableEntity, "Unknown product", anew, "There is no such product."},
		{codeMixedCurrencies, http.StatusUnprocessableEntity, "Mixed currencies", anew, "All products of an order have the same currency."},
		{codeOutOfStock, http.StatusConflict, "Out of stock", anew, "There is less in stock than was ordered. Nothing was reserved."},
		{codeOrderTooLarge, http.StatusUnprocessableEntity, "Order too large", anew, "The order's total is more than one charge can take."},
		{codeOrderExists, http.StatusConflict, "Order exists", none, "There is another order under this id."},
		{codeUnknownOrder, http.StatusUnprocessableEntity, "Unknown order", anew, "There is no such order."},
		{codeOrderAmount, http.StatusUnprocessableEntity, "Amount differs from order", anew, "An order is paid with its exact total, in its currency."},
		{codeOrderPaid, http.StatusConflict, "Order paid", none, "The order has been paid by another charge."},
		{codeOrderClosed, http.StatusConflict, "Order closed", none, "The order was declined or cancelled and takes no payment. Order again."},
		{codeProcessorUnavailable, http.StatusServiceUnavailable, "Processor unavailable", same, "The processor could not be reached or took nothing on, so no money moved. Send the same request again with the same key."},
		{codeUnavailable, http.StatusServiceUnavailable, "Unavailable", same, "The database cannot be reached."},
	}
}

// problemPath is where the problems' documentation is served.
const problemPath = "/problems/"

// problem makes a problem of a code; detail is about this one.
func problem(code, detail string) *oncehttp.Problem {
	all := kinds()
	k := all[slices.IndexFunc(all, func(k kind) bool { return k.code == code })]
	return &oncehttp.Problem{
		Status: k.status, Type: problemPath + code, Title: k.title, Detail: detail, Code: code, RetryWith: k.with,
	}
}

// fieldProblem is a 400 that names what is wrong in the request.
func fieldProblem(field, detail string) *oncehttp.Problem {
	p := problem(codeInvalid, field+" "+detail)
	p.Extra = map[string]any{"field": field}
	return p
}

// with adds a member.
func with(p *oncehttp.Problem, name string, value any) *oncehttp.Problem {
	if p.Extra == nil {
		p.Extra = map[string]any{}
	}
	p.Extra[name] = value
	return p
}

// notKept is a refusal that frees the key: it says nothing about a later try.
func notKept(p *oncehttp.Problem) onlyonce.Answer {
	a := p.Answer()
	a.Outcome = onlyonce.NotApplied
	return a
}

func refuse(w http.ResponseWriter, p *oncehttp.Problem) {
	w.Header().Set("Cache-Control", "no-store")
	p.Write(w)
}

const problemPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{{.Title}}</title>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
<p>Status {{.Status}}, <code>error</code>: <code>{{.Code}}</code>, <code>retry_with</code>: <code>{{.With}}</code>.</p>
</html>
`

// problemDocs serves a page for each of the service's problems.
func problemDocs() http.Handler {
	page := template.Must(template.New("problem").Parse(problemPage))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := strings.TrimPrefix(r.URL.Path, problemPath)
		for _, k := range kinds() {
			if k.code == code {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				_ = page.Execute(w, map[string]any{"Title": k.title, "Text": k.text, "Status": k.status, "Code": k.code, "With": k.with})
				return
			}
		}
		refuse(w, problem(codeNotFound, "There is no such problem."))
	})
}
