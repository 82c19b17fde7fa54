package oncehttp

import (
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// LookupHandler tells a caller where a key of its own scope stands and what it
// works on (rule X4): for clients that lost an answer and must not send again, and
// for support. Mount it on GET with a path value named key, such as
// "GET /idempotency-keys/{key}"; a key with characters that paths encode is sent
// encoded. It runs and claims nothing, and names no values of the request.
//
// authorize, if it is not nil, sees the record and may refuse it: a *Problem is
// answered as it stands, any other error with 403.
func (g *Guard) LookupHandler(authorize func(r *http.Request, record onlyonce.Record) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{door: &door{guard: g}, w: w, r: disbelieve(r)}
		found, err := c.lookUpKey(authorize) //nolint:contextcheck // the call holds the request and its context
		if err != nil {
			c.refuse("", err) //nolint:contextcheck // as above
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		if found.RetryAfter > 0 {
			w.Header().Set("Retry-After", wholeSeconds(time.Duration(found.RetryAfter)*time.Second))
		}
		send(w, JSON(http.StatusOK, found))
	})
}

// send writes an answer that is not stored.
func send(w http.ResponseWriter, a onlyonce.Answer) {
	maps.Copy(w.Header(), a.Header)
	w.WriteHeader(a.Status)
	w.Write(a.Body) //nolint:errcheck // the caller is gone; there is nobody to tell
}

// keyState is what a caller is told of a key.
type keyState struct {
	Operation string         `json:"operation"`
	Name      string         `json:"name"`
	State     onlyonce.State `json:"state"`
	Resource  string         `json:"resource,omitempty"`
	Attempts  int            `json:"attempts"`
	CreatedAt time.Time      `json:"created_at"`
	// Status and Location are the stored answer's.
	Status      int        `json:"status,omitempty"`
	Location    string     `json:"location,omitempty"`
	CompletedAt *time.Time `json:"completed_at,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	// RetryAfter is when to ask again, in seconds; 0: the state is settled, or the
	// same request may be sent at once.
	RetryAfter int `json:"retry_after,omitempty"`
}

// lookUpKey finds the record of the caller's own key.
func (c *call) lookUpKey(authorize func(r *http.Request, record onlyonce.Record) error) (keyState, error) {
	g := c.door.guard
	scope, err := g.scope(c.r)
	if err != nil {
		return keyState{}, unauthenticated(err)
	}
	key := onlyonce.Key{Scope: scope, Value: c.r.PathValue("key")}
	if err := key.Validate(); err != nil {
		return keyState{}, err
	}
	c.scope = scope
	rec, found, err := g.engine.Record(c.r.Context(), key)
	switch {
	case errors.Is(err, onlyonce.ErrMisdirected):
		return keyState{}, err
	case err != nil:
		return keyState{}, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "look key up", Operation: key.Operation(), Err: err}
	case !found:
		return keyState{}, &onlyonce.Error{
			Code: onlyonce.CodeNotFound, Op: "look key up", Operation: key.Operation(),
			Hint: "There is no record of this key in your account: it was never claimed, left no trace, or has expired.",
		}
	}
	if authorize != nil {
		if err := authorize(c.r, rec); err != nil {
			return keyState{}, refusedBy(key, err)
		}
	}
	return stateOf(rec), nil
}

// stateOf is what a record tells its caller.
func stateOf(rec onlyonce.Record) keyState {
	s := keyState{
		Operation: rec.Key.Operation(), Name: rec.Operation, State: rec.State, Resource: rec.Resource,
		Attempts: rec.Attempts, CreatedAt: rec.CreatedAt,
	}
	if rec.Answer != nil {
		s.Status, s.Location = rec.Answer.Status, http.Header(rec.Answer.Header).Get("Location")
	}
	if !rec.CompletedAt.IsZero() {
		s.CompletedAt = &rec.CompletedAt
	}
	if !rec.ExpiresAt.IsZero() {
		s.ExpiresAt = &rec.ExpiresAt
	}
	switch rec.State {
	case onlyonce.InProgress:
		s.RetryAfter = 1
	case onlyonce.InDoubt:
		s.RetryAfter = int(kindOf(onlyonce.CodeOutcomeUnknown).later / time.Second)
	case onlyonce.Completed, onlyonce.FailedRetryable:
	}
	return s
}
