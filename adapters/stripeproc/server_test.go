package stripeproc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// server speaks as much of Stripe's API as charging and refunding needs, on
// 127.0.0.1, and misbehaves on command. It saves results under idempotency keys as
// Stripe documents it: with the parameters, once execution has begun, errors too.
type server struct {
	http *httptest.Server
	now  func() time.Time

	mu sync.Mutex
	// memory is how long a key is kept; lag is how far search is behind.
	memory, lag time.Duration
	saved       map[string]saved
	faults      []fault
	intents     []*intent
	refunds     []*refund
	posts       []post
	gets        int
	// searches are what the next searches answer instead, status 200.
	searches []string
	// pageSize bounds pages further than the limit that is asked for; 0: it does not.
	pageSize int
}

// post is a POST that arrived, whatever was answered.
type post struct {
	path, key, body string
	header          http.Header
}

type saved struct {
	params string
	at     time.Time
	status int
	body   []byte
}

type intent struct {
	id, status, currency, reference string
	amount                          int64
	failure                         map[string]any
	created                         time.Time
}

type refund struct {
	id, status, intent, reference, currency string
	amount                                  int64
}

// fault is what happens to one POST.
type fault string

const (
	works fault = ""
	// After: the request is executed and its result saved, then the reply is lost.
	resetAfter, gatewayAfter, htmlAfter, hangAfter, cutAfter fault = "reset after", "504 after", "html 502 after", "hang after", "cut after"
	// error500After saves a 500 although the charge was made; error500Before without.
	error500After, error500Before fault = "500 after", "500 before"
	// Before: nothing is executed or saved.
	resetBefore, htmlBefore, notFoundHTML fault = "reset before", "html 502 before", "html 404"
	inUse, rateLimit, lockTimeout         fault = "409", "429", "429 lock"
	badKey, forbidden, redirect           fault = "401", "403", "307"
	emptyAnswer, foreignAnswer, failedDep fault = "{}", "somebody else's", "424"
)

func newServer(now func() time.Time) *server {
	s := &server{now: now, memory: 24 * time.Hour, saved: map[string]saved{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/payment_intents", s.post(s.createIntent))
	mux.HandleFunc("POST /v1/refunds", s.post(s.createRefund))
	mux.HandleFunc("GET /v1/payment_intents/search", s.search)
	mux.HandleFunc("GET /v1/refunds", s.listRefunds)
	s.http = httptest.NewServer(mux)
	return s
}

// will queues what happens to the next POSTs.
func (s *server) will(faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// set changes the server under its lock.
func (s *server) set(change func(s *server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// charged is how many charges moved money.
func (s *server) charged() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, pi := range s.intents {
		if pi.status == "succeeded" {
			n++
		}
	}
	return n
}

// refunded is how many refunds moved money.
func (s *server) refunded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.refunds {
		if r.status == "succeeded" || r.status == "pending" {
			n++
		}
	}
	return n
}

// arrived are the POSTs so far.
func (s *server) arrived() []post {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.posts)
}

// looked is how many look-ups have arrived.
func (s *server) looked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets
}

// executor executes a request: the result, and whether it is saved under the key.
type executor func(form url.Values) (status int, body any, save bool)

// post is the idempotency layer before an endpoint.
func (s *server) post(execute executor) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		f, status, body, replayed := s.handle(r, raw, execute)
		if replayed {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		w.Header().Set("Request-Id", "req_test")
		s.reply(w, r, answerOf{f, status, body})
	}
}

// handle does under one lock what Stripe does in a transaction: that two requests
// with one key are never executed side by side is not what is tested here.
func (s *server) handle(r *http.Request, raw []byte, execute executor) (f fault, status int, body []byte, replayed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	s.posts = append(s.posts, post{r.URL.Path, key, string(raw), r.Header.Clone()})
	if len(s.faults) > 0 {
		f, s.faults = s.faults[0], s.faults[1:]
	}
	if status, body := refusal(f); status != 0 {
		return f, status, marshal(body), false
	}
	if slices.Contains([]fault{resetBefore, htmlBefore, notFoundHTML, redirect, emptyAnswer}, f) {
		return f, http.StatusOK, nil, false
	}
	params := r.URL.Path + "?" + string(raw)
	if old, ok := s.saved[key]; ok && key != "" && s.now().Sub(old.at) < s.memory {
		if old.params != params {
			return f, 400, marshal(errorBody("idempotency_error", "", "Keys for idempotent requests can only be used with the same parameters they were first used with.")), false
		}
		return f, old.status, old.body, true
	}
	form, err := url.ParseQuery(string(raw))
	if err != nil {
		return f, 400, marshal(errorBody("invalid_request_error", "", "unreadable form")), false
	}
	if f == error500Before {
		status, body := 500, marshal(errorBody("api_error", "", "An unknown error occurred"))
		s.saved[key] = saved{params, s.now(), status, body}
		return f, status, body, false
	}
	status, result, save := execute(form)
	body = marshal(result)
	if f == error500After {
		status, body = 500, marshal(errorBody("api_error", "", "An unknown error occurred"))
	}
	if save {
		s.saved[key] = saved{params, s.now(), status, body}
	}
	return f, status, body, false
}

// refusal is the answer of what stands before execution.
func refusal(f fault) (int, any) {
	switch f {
	case inUse:
		return 409, errorBody("invalid_request_error", "idempotency_key_in_use", "There is currently another in-progress request using this Idempotent Key.")
	case rateLimit:
		return 429, errorBody("invalid_request_error", "rate_limit", "Request rate limit exceeded.")
	case lockTimeout:
		return 429, errorBody("invalid_request_error", "lock_timeout", "This object cannot be accessed right now because another API request or Stripe process is currently accessing it.")
	case badKey:
		return 401, errorBody("invalid_request_error", "", "Invalid API Key provided: "+testKey)
	case forbidden:
		return 403, errorBody("invalid_request_error", "", "The provided key does not have the required permissions for this endpoint.")
	case failedDep:
		return 424, errorBody("invalid_request_error", "", "An external dependency failed.")
	case foreignAnswer:
		return 200, (&intent{id: "pi_foreign", status: "succeeded", currency: "eur", amount: 1, reference: "other"}).json()
	default:
		return 0, nil
	}
}

type answerOf struct {
	fault  fault
	status int
	body   []byte
}

// reply answers, or loses the answer.
func (s *server) reply(w http.ResponseWriter, r *http.Request, a answerOf) {
	switch a.fault {
	case resetAfter, resetBefore:
		reset(w)
		return
	case hangAfter:
		<-r.Context().Done()
		return
	case gatewayAfter:
		w.WriteHeader(http.StatusGatewayTimeout)
		return
	case htmlAfter, htmlBefore, notFoundHTML:
		w.Header().Set("Content-Type", "text/html")
		status := http.StatusBadGateway
		if a.fault == notFoundHTML {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		fmt.Fprint(w, "<html><body>Bad Gateway "+testKey+"</body></html>")
		return
	case redirect:
		w.Header().Set("Location", r.URL.Path)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	case emptyAnswer:
		a.body = []byte("{}")
	case cutAfter:
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
		a.body = a.body[:len(a.body)/2]
	default:
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// reset breaks the connection, without a last word.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func errorBody(kind, code, message string) map[string]any {
	return map[string]any{"error": map[string]any{"type": kind, "code": code, "message": message, "doc_url": "https://stripe.com/docs"}}
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// chargeFields are the parameters that a charge may have.
var chargeFields = []string{
	"amount", "currency", "confirm", "payment_method", "customer", "description",
	"payment_method_types[0]", "off_session", "error_on_requires_action",
}

// createIntent is POST /v1/payment_intents. What a card does is in its name.
func (s *server) createIntent(form url.Values) (int, any, bool) {
	if unknown := unknownField(form, chargeFields); unknown != "" {
		return 400, errorBody("invalid_request_error", "parameter_unknown", "Received unknown parameter: "+unknown), false
	}
	amount, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	if err != nil || amount < 50 {
		return 400, errorBody("invalid_request_error", "amount_too_small", "Amount must be at least €0.50 eur"), false
	}
	method := form.Get("payment_method")
	if method == "pm_missing" {
		return 404, errorBody("invalid_request_error", "resource_missing", "No such PaymentMethod: 'pm_missing'"), true
	}
	pi := &intent{
		id: fmt.Sprintf("pi_%d", len(s.intents)+1), status: "succeeded", currency: form.Get("currency"),
		amount: amount, reference: form.Get("metadata[onlyonce_reference]"), created: s.now(),
	}
	s.intents = append(s.intents, pi)
	switch method {
	case "pm_processing":
		pi.status = "processing"
	case "pm_action":
		pi.status = "requires_action"
	case "pm_declined", "pm_auth":
		pi.status = "requires_payment_method"
		pi.failure = map[string]any{"type": "card_error", "code": "card_declined", "decline_code": "insufficient_funds", "message": "Your card has insufficient funds."}
		if method == "pm_auth" {
			pi.failure = map[string]any{"type": "card_error", "code": "authentication_required", "message": "Your card was declined. This transaction requires authentication."}
		}
		body := maps.Clone(pi.failure)
		body["payment_intent"] = pi.json()
		return 402, map[string]any{"error": body}, true
	}
	return 200, pi.json(), true
}

func unknownField(form url.Values, known []string) string {
	for name := range form {
		if !slices.Contains(known, name) && !strings.HasPrefix(name, "metadata[") {
			return name
		}
	}
	return ""
}

func (p *intent) json() map[string]any {
	m := map[string]any{
		"id": p.id, "object": "payment_intent", "amount": p.amount, "amount_received": 0, "currency": p.currency,
		"status": p.status, "client_secret": p.id + "_secret_xyz", "last_payment_error": p.failure,
		"metadata": map[string]string{"onlyonce_reference": p.reference},
	}
	if p.status == "succeeded" {
		m["amount_received"] = p.amount
	}
	return m
}

// createRefund is POST /v1/refunds.
func (s *server) createRefund(form url.Values) (int, any, bool) {
	if unknown := unknownField(form, []string{"amount", "payment_intent"}); unknown != "" {
		return 400, errorBody("invalid_request_error", "parameter_unknown", "Received unknown parameter: "+unknown), false
	}
	amount, _ := strconv.ParseInt(form.Get("amount"), 10, 64)
	id := form.Get("payment_intent")
	i := slices.IndexFunc(s.intents, func(pi *intent) bool { return pi.id == id })
	if i < 0 {
		return 404, errorBody("invalid_request_error", "resource_missing", "No such payment_intent: '"+id+"'"), true
	}
	left := s.intents[i].amount
	for _, r := range s.refunds {
		if r.intent == id && r.status != "failed" {
			left -= r.amount
		}
	}
	if amount > left {
		return 400, errorBody("invalid_request_error", "charge_already_refunded", "Charge has already been refunded."), true
	}
	r := &refund{
		id: fmt.Sprintf("re_%d", len(s.refunds)+1), status: "succeeded", intent: id, amount: amount,
		reference: form.Get("metadata[onlyonce_reference]"), currency: s.intents[i].currency,
	}
	s.refunds = append(s.refunds, r)
	return 200, r.json(), true
}

func (r *refund) json() map[string]any {
	return map[string]any{
		"id": r.id, "object": "refund", "amount": r.amount, "currency": r.currency, "status": r.status,
		"payment_intent": r.intent, "metadata": map[string]string{"onlyonce_reference": r.reference},
	}
}

var searchQuery = regexp.MustCompile(`^metadata\['onlyonce_reference'\]:'([^']*)'$`)

// search is GET /v1/payment_intents/search. It does not see the newest.
func (s *server) search(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	w.Header().Set("Content-Type", "application/json")
	if len(s.searches) > 0 {
		var body string
		body, s.searches = s.searches[0], s.searches[1:]
		fmt.Fprint(w, body)
		return
	}
	query := searchQuery.FindStringSubmatch(r.URL.Query().Get("query"))
	if query == nil {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(marshal(errorBody("invalid_request_error", "", "We were unable to parse your search query.")))
		return
	}
	found := []any{}
	for _, pi := range s.intents {
		// Search does not look at case.
		if strings.EqualFold(pi.reference, query[1]) && s.now().Sub(pi.created) >= s.lag {
			found = append(found, pi.json())
		}
	}
	from, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Query().Get("page"), "page_"))
	to := min(from+s.limit(r), len(found))
	page := map[string]any{"object": "search_result", "url": r.URL.Path, "data": found[from:to], "has_more": to < len(found), "next_page": nil}
	if to < len(found) {
		page["next_page"] = "page_" + strconv.Itoa(to)
	}
	_, _ = io.Copy(w, bytes.NewReader(marshal(page)))
}

func (s *server) limit(r *http.Request) int {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || limit < 1 || limit > 100 {
		limit = 10
	}
	if s.pageSize > 0 {
		limit = min(limit, s.pageSize)
	}
	return limit
}

// listRefunds is GET /v1/refunds: newest first, and never behind.
func (s *server) listRefunds(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	found := []*refund{}
	for _, ref := range slices.Backward(s.refunds) {
		if ref.intent == r.URL.Query().Get("payment_intent") {
			found = append(found, ref)
		}
	}
	if after := r.URL.Query().Get("starting_after"); after != "" {
		found = found[slices.IndexFunc(found, func(ref *refund) bool { return ref.id == after })+1:]
	}
	data := []any{}
	for _, ref := range found[:min(s.limit(r), len(found))] {
		data = append(data, ref.json())
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(marshal(map[string]any{"object": "list", "url": r.URL.Path, "data": data, "has_more": len(data) < len(found)}))
}
