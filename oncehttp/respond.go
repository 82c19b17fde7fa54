package oncehttp

import (
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/onlyonce-go/onlyonce"
)

// respond sends the answer of a run, or of the run before.
func (c *call) respond(res onlyonce.Result) {
	if res.Status == onlyonce.Replayed {
		c.replay(res)
		return
	}
	h := c.w.Header()
	f := c.full
	if f == nil {
		// A Recover function answered, not the handler.
		f = &full{header: sendable(res.Answer.Header)}
	}
	if f.whole {
		clear(h)
	}
	stored := c.door.keep.stored(res.Answer.Header)
	for name, values := range f.header {
		// What is stored is sent as it is stored, so that a replay is the same.
		if !c.door.keep[name] {
			h[name] = values
		}
	}
	maps.Copy(h, stored)
	body := res.Answer.Body
	if res.Answer.NotRetained {
		if f.lost {
			c.notRetained(res)
			return
		}
		body = f.body
	}
	c.say(string(res.Status), res)
	c.send(res.Answer.Status, body)
}

// replay sends a stored answer. Only headers of today's allow-list are taken
// from it.
func (c *call) replay(res onlyonce.Result) {
	c.door.guard.set.logger.LogAttrs(c.r.Context(), slog.LevelInfo, "answer replayed",
		slog.String("operation", onlyonce.Key{Scope: c.scope, Value: c.key.value}.Operation()),
		slog.Int64("fence", res.Fence), slog.String("attempt", res.Attempt.String()))
	h := c.w.Header()
	for _, name := range storedHeaders() {
		delete(h, name) // a middleware's
	}
	maps.Copy(h, c.door.keep.stored(res.Answer.Header))
	h.Set("Cache-Control", "no-store")
	h.Set(HeaderReplayed, "true")
	if res.Answer.NotRetained {
		c.notRetained(res)
		return
	}
	c.say(StatusReplayed, res)
	c.send(res.Answer.Status, res.Answer.Body)
}

// notRetained sends what there is of an answer whose body was not kept.
func (c *call) notRetained(res onlyonce.Result) {
	p := c.problem(&onlyonce.Error{
		Code: CodeNotRetained, Operation: onlyonce.Key{Scope: c.scope, Value: c.key.value}.Operation(),
		Hint: "The request was carried out. Its answer was too large to be kept; do not send it again.",
	})
	p.Status = res.Answer.Status
	p.setHeaders(c.w.Header())
	c.say(string(res.Status), res)
	c.send(p.Status, p.Body())
}

// say adds the headers of rule R1.
func (c *call) say(status string, res onlyonce.Result) {
	h := c.w.Header()
	h.Set(HeaderStatus, status)
	c.echo()
	if res.State == onlyonce.Completed && res.Answer.Status >= http.StatusBadRequest {
		// It is final: the same request gets it again, whatever else it says.
		c.shouldRetry(false)
	}
	if !res.ExpiresAt.IsZero() {
		h.Set(HeaderExpires, "@"+strconv.FormatInt(res.ExpiresAt.Unix(), 10))
	}
}

// shouldRetry says in headers whether the same request may be sent again under
// the same key.
func (c *call) shouldRetry(yes bool) {
	h := c.w.Header()
	h.Set(HeaderShouldRetry, strconv.FormatBool(yes))
	for _, name := range c.door.guard.set.retryHeaders {
		h.Set(name, strconv.FormatBool(yes))
	}
}

// echo repeats the key as it was sent.
func (c *call) echo() {
	if c.keyed {
		c.w.Header().Set(HeaderKey, c.key.String())
	}
}

// send writes status and body with an explicit length. What was stored without
// a content type is sent without one.
func (c *call) send(status int, body []byte) {
	h := c.w.Header()
	h.Del("Content-Length")
	if bodyAllowed(status) {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	if _, set := h["Content-Type"]; !set && len(body) > 0 {
		h["Content-Type"] = nil // or net/http would guess one
	}
	c.w.WriteHeader(status)
	if len(body) > 0 && bodyAllowed(status) {
		c.w.Write(body) //nolint:errcheck // the caller is gone; its retry is answered from the record
	}
}

// refuse answers with a problem. status is what the engine says of a run that
// gave no answer; empty: the request was refused.
func (c *call) refuse(status string, err error) {
	p, given := errors.AsType[*Problem](err)
	if !given || onlyonce.CodeOf(err) != "" {
		// A Problem behind an *onlyonce.Error is the cause of a failed run.
		p = c.problem(err)
		c.door.guard.log(c.r.Context(), err)
	}
	if status == "" {
		status = StatusRefused
	}
	h := c.w.Header()
	h.Set(HeaderStatus, status)
	c.echo()
	h.Set("Cache-Control", "no-store")
	h.Add("Link", "<"+c.door.guard.set.docs+`>; rel="describedby"`)
	if p.RetryWith != "" {
		c.shouldRetry(p.RetryWith == SameKey)
	}
	if p.Status == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "" {
		h.Set("WWW-Authenticate", c.door.guard.set.challenge)
	}
	p.Write(c.w)
}

// sentence makes a hint, which reads like an error's text, one for people.
func sentence(hint string) string {
	if hint == "" || strings.HasSuffix(hint, ".") {
		return hint
	}
	return strings.ToUpper(hint[:1]) + hint[1:] + "."
}

// problem is what a caller is told of an error: its kind and hint, never its
// cause.
func (c *call) problem(err error) *Problem {
	e, ok := errors.AsType[*onlyonce.Error](err)
	if !ok {
		e = &onlyonce.Error{Code: onlyonce.CodeConfig}
	}
	k := kindOf(e.Code)
	p := &Problem{
		Status: k.status, Type: c.door.guard.set.docs + string(k.code), Title: k.title, Detail: sentence(e.Hint),
		Code: string(k.code), RetryWith: k.with, Operation: e.Operation,
	}
	switch {
	case k.code == onlyonce.CodeStoreUnavailable:
		p.RetryAfter = max(e.RetryAfter, c.door.guard.set.storeWait)
	case k.later > 0 && e.RetryAfter > 0:
		p.RetryAfter = e.RetryAfter
	default:
		p.RetryAfter = k.later
	}
	if p.Detail == "" || k.code == onlyonce.CodeConfig {
		p.Detail = k.text
	}
	if p.Operation == "" && c.scope != "" && c.keyed {
		p.Operation = onlyonce.Key{Scope: c.scope, Value: c.key.value}.Operation()
	}
	if k.code == onlyonce.CodeKeyReused {
		differs := e.Differs
		if differs == nil {
			differs = []string{}
		}
		p.Extra = map[string]any{"differs": differs}
	}
	if k.code == onlyonce.CodeMisdirected {
		c.sendHome(p, e)
	}
	return p
}

// sendHome says where a misdirected request belongs, in the body for callers and in a
// header for what stands between. It is no Location: a client that follows one would
// take its credentials to another origin by itself.
func (c *call) sendHome(p *Problem, e *onlyonce.Error) {
	p.Extra = map[string]any{"home": e.Home}
	item := httpsfv.NewItem(e.Home)
	if e.Address != "" {
		p.Extra["address"] = e.Address
		item.Params.Add("address", e.Address)
	}
	if text, err := httpsfv.Marshal(item); err == nil && e.Home != "" {
		c.w.Header().Set(HeaderHome, text)
	}
}
