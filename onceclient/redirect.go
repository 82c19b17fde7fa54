package onceclient

import (
	"net/http"
	"net/url"

	"github.com/onlyonce-go/onlyonce"
)

// maxRedirects is how many redirects one attempt follows.
const maxRedirects = 5

// hop is one request of an attempt.
type hop struct {
	entry Entry
	url   *url.URL
	// redirects counts those before it.
	redirects int
	// foreign: it goes to another origin than the entry's, which gets no credentials.
	foreign bool
	// again: the server has answered 401 in this attempt.
	again bool
}

// next is the request that an answer asks for in the same attempt, nil if it is an
// answer. The error says why it must not be made.
func (s *httpSender) next(h hop, r Reply) (*hop, error) {
	if r.Answer == nil || r.Verdict != Denied {
		return nil, nil
	}
	switch status := r.Answer.Status; {
	case follows(status) && r.Answer.Header.Get("Location") != "":
		return h.follow(r.Answer.Header.Get("Location"))
	case status == http.StatusUnauthorized && r.BeforeKey && s.cfg.Authorize != nil && !h.again && !h.foreign:
		h.again = true
		return &h, nil
	case redirects(status):
		// It may have come after an attempt that was carried out: no word of another intent.
		return nil, redirectError("it is none of 307 or 308, so that another request would be sent; set the URL to where it leads")
	default:
		return nil, nil
	}
}

// follow is the same request to where a redirect points.
func (h hop) follow(location string) (*hop, error) {
	if h.redirects >= maxRedirects {
		return nil, redirectError("there are more than 5; set the URL to where the last leads")
	}
	to, err := h.url.Parse(location)
	if err != nil || to.Host == "" || (to.Scheme != "http" && to.Scheme != "https") {
		return nil, redirectError("it does not lead to a URL of http or https")
	}
	if h.url.Scheme == "https" && to.Scheme == "http" {
		return nil, redirectError("it leads from https to http, where everybody could read the request")
	}
	first, err := url.Parse(h.entry.Target)
	if err != nil {
		return nil, redirectError("the entry's target is no URL")
	}
	to.User, to.Fragment, to.RawFragment = nil, "", ""
	h.url, h.foreign = to, origin(to) != origin(first)
	h.redirects++
	return &h, nil
}

func redirectError(hint string) error {
	return &onlyonce.Error{Code: CodeRedirect, Op: "follow redirect", Hint: hint}
}
