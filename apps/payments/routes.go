package payments

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/canon"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// route is one pattern of the API and what answers it.
type route struct {
	pattern string
	handler http.Handler
	// open needs no merchant.
	open bool
}

// mount registers all routes, and answers for what no route answers.
func (s *Service) mount() error {
	routes, err := s.routes()
	if err != nil {
		return err
	}
	methods := map[string][]string{}
	for _, r := range routes {
		handler := r.handler
		if !r.open {
			handler = s.withMerchant(handler)
		}
		s.mux.Handle(r.pattern, handler)
		s.patterns = append(s.patterns, r.pattern)
		method, path, _ := strings.Cut(r.pattern, " ")
		methods[path] = append(methods[path], method)
	}
	for path, allowed := range methods {
		s.mux.HandleFunc(path, methodNotAllowed(allowed))
	}
	if _, taken := methods["/"]; !taken {
		s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, problem(codeNotFound, "There is nothing at this path; /openapi.json says what there is."))
		})
	}
	return nil
}

func methodNotAllowed(allowed []string) http.HandlerFunc {
	slices.Sort(allowed)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		refuse(w, problem(codeMethod, "The methods here are "+strings.Join(allowed, ", ")+"."))
	}
}

// routes are those of the API.
func (s *Service) routes() ([]route, error) {
	list := []route{
		{pattern: "GET /healthz", handler: http.HandlerFunc(s.healthz), open: true},
		{pattern: "GET /readyz", handler: http.HandlerFunc(s.readyz), open: true},
		{pattern: "GET /openapi.json", handler: s.serveOpenAPI(), open: true},
		{pattern: "GET /docs/", handler: s.guard.DocsHandler(), open: true},
		{pattern: "GET /.well-known/idempotency", handler: s.guard.DiscoveryHandler(), open: true},
		{pattern: "GET " + problemPath + "{code}", handler: problemDocs(), open: true},
	}
	keyed, err := s.keyedRoutes()
	if err != nil {
		return nil, err
	}
	plain, err := s.plainRoutes()
	if err != nil {
		return nil, err
	}
	return slices.Concat(list, keyed, plain), nil
}

// op is an operation with the service's settings.
func (s *Service) op(name string) onlyonce.Op {
	return onlyonce.Op{Name: name, Lease: s.cfg.Lease, Retention: s.cfg.Retention}
}

// keyedRoutes are the operations that need an idempotency key. Those that call the
// provider keep their request, so that they can be resumed when their client has
// gone.
func (s *Service) keyedRoutes() ([]route, error) {
	charges, err := oncehttp.Steps(s.guard, oncehttp.StepsRoute[chargeInput]{
		Route:  oncehttp.Route{Op: s.op("POST /charges"), Policy: defaults("/description", `""`, "/metadata", `{}`)},
		Decode: readCharge, Handle: s.createCharge, Recoverable: true,
		Resource: func(in chargeInput) string { return resourceOf(resourceOrder, in.Order) },
	})
	if err != nil {
		return nil, fmt.Errorf("route charges: %w", err)
	}
	refunds, err := oncehttp.Steps(s.guard, oncehttp.StepsRoute[refundInput]{
		Route:  oncehttp.Route{Op: s.op("POST /refunds"), Policy: defaults("/reason", `""`)},
		Decode: readRefund, Handle: s.createRefund, Recoverable: true,
		Resource: func(in refundInput) string { return resourceOf(resourceCharge, in.Charge) },
	})
	if err != nil {
		return nil, fmt.Errorf("route refunds: %w", err)
	}
	checkouts, err := oncehttp.Steps(s.guard, oncehttp.StepsRoute[checkoutInput]{
		Route:  oncehttp.Route{Op: s.op("POST /checkout"), Policy: defaults("/description", `""`, "/metadata", `{}`)},
		Decode: readCheckout, Handle: s.createCheckout, Recoverable: true,
	})
	if err != nil {
		return nil, fmt.Errorf("route checkouts: %w", err)
	}
	orders, err := oncehttp.Atomic(s.guard, s.engine, oncehttp.AtomicRoute[db.Tx, orderInput]{
		Route:  oncehttp.Route{Op: s.op("POST /orders")},
		Decode: readOrder, Handle: s.createOrder,
	})
	if err != nil {
		return nil, fmt.Errorf("route orders: %w", err)
	}
	return []route{
		{pattern: "POST /charges", handler: charges},
		{pattern: "POST /refunds", handler: refunds},
		{pattern: "POST /checkout", handler: checkouts},
		{pattern: "POST /orders", handler: orders},
	}, nil
}

// defaults is the policy under which members that are absent are the same as the
// values given: pairs of JSON Pointer and JSON.
func defaults(pairs ...string) canon.Policy {
	p := canon.Policy{Defaults: map[string]jsontext.Value{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		p.Defaults[pairs[i]] = jsontext.Value(pairs[i+1])
	}
	return p
}

// plainRoutes need no key: they read, or what they write has a name of the
// client's. A key that is sent all the same is answered as ignored.
func (s *Service) plainRoutes() ([]route, error) {
	handlers := map[string]http.HandlerFunc{
		"GET /idempotency-keys/{key}": s.guard.LookupHandler(nil).ServeHTTP,
		"PUT /orders/{id}":            s.putOrder,
		"GET /charges/{id}":           one(s, s.findCharge),
		"GET /refunds/{id}":           one(s, s.findRefund),
		"GET /orders/{id}":            one(s, s.findOrder),
		"GET /charges":                listing(s, "charges", s.listCharges),
		"GET /refunds":                listing(s, "refunds", s.listRefunds),
		"GET /orders":                 listing(s, "orders", s.listOrders),
		"GET /ledger":                 listing(s, "ledger", s.listTransfers),
		"GET /products":               s.getProducts,
		"GET /balance":                s.getBalance,
	}
	var list []route
	for pattern, handler := range handlers {
		wrapped, err := s.guard.Wrap(oncehttp.Route{Key: oncehttp.Off}, handler)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", pattern, err)
		}
		list = append(list, route{pattern: pattern, handler: wrapped})
	}
	return list, nil
}

func (s *Service) healthz(w http.ResponseWriter, _ *http.Request) {
	send(w, oncehttp.JSON(http.StatusOK, map[string]string{"status": "ok"}))
}

// readyTimeout is how long the database may take to be called reachable.
const readyTimeout = 2 * time.Second

func (s *Service) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := s.cfg.DB.Ping(ctx); err != nil {
		s.broken(w, r, err)
		return
	}
	send(w, oncehttp.JSON(http.StatusOK, map[string]string{"status": "ready"}))
}

// broken answers for a database that did.
func (s *Service) broken(w http.ResponseWriter, r *http.Request, err error) {
	s.warn(r.Context(), "request failed", err, slog.String("pattern", r.Pattern))
	p := problem(codeUnavailable, "The database did not answer. Try again later.")
	p.RetryAfter = time.Second
	refuse(w, p)
}

// send writes an answer.
func send(w http.ResponseWriter, a onlyonce.Answer) {
	maps.Copy(w.Header(), a.Header)
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the caller is gone
}
