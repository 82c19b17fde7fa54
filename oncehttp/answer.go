package oncehttp

import (
	"net/http"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
)

// JSON makes an answer of a value: application/json, without HTML escapes and
// without a newline at its end. The same value gives the same bytes. A value
// that JSON does not have gives a 500, which is never stored, and whose effect
// is judged like that of every failed run.
func JSON(status int, v any) onlyonce.Answer {
	body, err := marshal(v)
	if err != nil {
		p := &Problem{Status: http.StatusInternalServerError, Code: string(onlyonce.CodeHandlerFailed), Detail: "The answer could not be written."}
		return p.Answer()
	}
	return onlyonce.Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// full is a handler's whole answer, of which a part is stored.
type full struct {
	status int
	header http.Header
	body   []byte
	// lost: the body was over the limit of what may be buffered.
	lost bool
	// whole: header is all of the answer's header, what middlewares outside
	// have set included; else it is added to theirs.
	whole bool
}

// keep makes the stored part of a handler's answer and notes the rest for the
// first caller. What is stored is what is sent: the content type is guessed
// here, as net/http would, and a content encoding is undone.
func (c *call) keep(f full, outcome onlyonce.Outcome) onlyonce.Answer {
	f.header = sendable(f.header)
	if !bodyAllowed(f.status) {
		f.body = nil
	}
	a := onlyonce.Answer{Status: f.status, Outcome: outcome, NotRetained: f.lost}
	if !f.lost {
		a.NotRetained = !f.decode(c.door.route.MaxSpool) || int64(len(f.body)) > c.door.route.MaxAnswer
	}
	if !a.NotRetained {
		a.Body = f.body
	}
	if _, set := f.header["Content-Type"]; !set && len(f.body) > 0 && f.header.Get("Content-Encoding") == "" {
		f.header.Set("Content-Type", http.DetectContentType(f.body))
	}
	a.Header = c.door.keep.stored(f.header)
	c.full = &f
	return a
}

// decode undoes the content encoding. It returns false for one that cannot be
// undone; the answer then stays as it is.
func (f *full) decode(limit int64) bool {
	encoding := f.header.Get("Content-Encoding")
	if encoding == "" {
		return true
	}
	body, err := canon.Decode(f.body, encoding, limit)
	if err != nil {
		return false
	}
	f.body = body
	delete(f.header, "Content-Encoding")
	return true
}
