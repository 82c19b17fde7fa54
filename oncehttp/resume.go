package oncehttp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// keptRequest is the form in which a request lies in the store (rule D6). Of its
// headers none is kept that is a credential; the query is kept as it was sent, since
// the request is told by it. Fields are only ever added: a request that an older
// deploy kept must be read by a newer one.
type keptRequest struct {
	Version int    `json:"version"`
	Method  string `json:"method"`
	// URL is path and query as they were sent.
	URL string `json:"url"`
	// Pattern and Values are what an http.ServeMux made of the path.
	Pattern string            `json:"pattern,omitempty"`
	Values  map[string]string `json:"values,omitempty"`
	Header  http.Header       `json:"header,omitempty"`
	// Body is as it was sent, before its Content-Encoding is undone.
	Body      []byte `json:"body,omitempty"`
	Principal []byte `json:"principal,omitempty"`
}

const keptVersion = 1

// keptHeaders are the names that are kept with a request.
func keptHeaders(lists ...[]string) ([]string, error) {
	names := []string{"Content-Type", "Content-Encoding"}
	for _, list := range lists {
		for _, name := range list {
			name = http.CanonicalHeaderKey(name)
			if credential(name) {
				return nil, configError("StepsRoute.RequestHeaders", name+" looks like a credential, which must not be kept")
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// credential tells whether a header's name is that of a credential.
func credential(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"authorization", "cookie", "api-key", "apikey", "token", "secret", "password", "signature"},
		func(part string) bool { return strings.Contains(name, part) })
}

// keepRequest is the request as it is kept; nil where it is not.
func (c *call) keepRequest() ([]byte, error) {
	if c.door.kept == nil {
		return nil, nil
	}
	k := keptRequest{
		Version: keptVersion, Method: c.r.Method, URL: c.r.URL.RequestURI(), Pattern: c.r.Pattern,
		Values: map[string]string{}, Header: http.Header{}, Body: c.raw,
	}
	for _, name := range wildcards(c.r.Pattern) {
		k.Values[name] = c.r.PathValue(name)
	}
	for _, name := range c.door.kept {
		if values := c.r.Header.Values(name); len(values) > 0 {
			k.Header[name] = values
		}
	}
	if save := c.door.guard.set.principal.save; save != nil {
		var err error
		if k.Principal, err = save(c.request(c.r.Context())); err != nil {
			return nil, unauthenticated(err)
		}
	}
	text, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("keep request: %w", err)
	}
	return text, nil
}

// wildcards are the names in a pattern of an http.ServeMux.
func wildcards(pattern string) []string {
	var names []string
	for {
		_, rest, found := strings.Cut(pattern, "{")
		name, after, closed := strings.Cut(rest, "}")
		if !found || !closed {
			return names
		}
		if name = strings.TrimSuffix(name, "..."); name != "" && name != "$" {
			names = append(names, name)
		}
		pattern = after
	}
}

// addResumer makes a recoverable operation known.
func (g *Guard) addResumer(d *door) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case d.op.Name == "":
		return configError("Route.Op.Name", "must be set where Recoverable is: a kept request is found again by it")
	case g.resumers[d.op.Name] != nil:
		return configError("Route.Op.Name", fmt.Sprintf("%q is the name of another recoverable route", d.op.Name))
	case !g.engine.Store().Features().Recovery:
		return configError("engine", "has a store that keeps no requests: "+g.engine.Store().Features().Name)
	}
	g.resumers[d.op.Name] = d
	return nil
}

// Resumers are the recoverable operations of all routes made so far, for an
// onlyonce.Recoverer: each runs a kept request again through the same decoding,
// fingerprint, claim and handler as its caller's retry would. The answer is
// stored for that retry.
func (g *Guard) Resumers() map[string]onlyonce.ResumeFunc {
	g.mu.Lock()
	defer g.mu.Unlock()
	resumers := map[string]onlyonce.ResumeFunc{}
	for name, d := range maps.All(g.resumers) {
		resumers[name] = d.resume
	}
	return resumers
}

// resume runs a kept request again.
func (d *door) resume(ctx context.Context, due onlyonce.Due) (onlyonce.Result, error) {
	r, err := d.restored(ctx, due.Keep)
	if err != nil {
		return onlyonce.Result{}, &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "read kept request", Operation: due.Record.Key.Operation(), Err: err,
			Hint: "the kept request cannot be read by this program; its key can still be settled by hand",
		}
	}
	key := due.Record.Key
	c := &call{
		// There is no w: nothing is answered here, what a caller would be sent is stored.
		door: d, r: r, op: d.op, key: sentKey{value: key.Value}, keyed: true, scope: key.Scope,
	}
	if err := c.readBody(); err != nil {
		return onlyonce.Result{}, err
	}
	work, err := c.check() //nolint:contextcheck // the call holds the request and its context
	if err != nil {
		return onlyonce.Result{}, malformed(err)
	}
	req := onlyonce.Request{Key: key, Canonical: c.canonical(), Keep: due.Keep}
	return work(r.Context(), c.op, req) //nolint:contextcheck // ctx, with the principal
}

// restored is the request that was kept.
func (d *door) restored(ctx context.Context, kept []byte) (*http.Request, error) {
	var k keptRequest
	if err := json.Unmarshal(kept, &k); err != nil {
		return nil, err
	}
	if k.Version != keptVersion {
		return nil, fmt.Errorf("version %d is not known, only %d is", k.Version, keptVersion)
	}
	if restore := d.guard.set.principal.restore; restore != nil {
		var err error
		if ctx, err = restore(ctx, k.Principal); err != nil {
			return nil, fmt.Errorf("restore principal: %w", err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, k.Method, "/", bytes.NewReader(k.Body))
	if err != nil {
		return nil, err
	}
	if r.URL, err = url.ParseRequestURI(k.URL); err != nil { // as a server does
		return nil, err
	}
	r.RequestURI, r.Pattern = k.URL, k.Pattern
	for name, values := range k.Header {
		r.Header[name] = slices.Clone(values)
	}
	for name, value := range k.Values {
		r.SetPathValue(name, value)
	}
	return r, nil
}
