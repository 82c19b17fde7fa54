package onceclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/singlesend"
)

// httpSender makes attempts over HTTP. Whatever could send a request a second time goes
// through it: redirects, new credentials, and what net/http does by itself.
type httpSender struct {
	cfg  Config
	base http.RoundTripper
}

// Send makes one attempt: one request, and those that the server's redirects and its
// 401 ask for, all with the same method, key and body.
func (s *httpSender) Send(ctx context.Context, entry Entry) Reply {
	h := hop{entry: entry}
	u, err := url.Parse(entry.Target)
	if err != nil {
		return Reply{Verdict: Unsent, Err: fmt.Errorf("read target: %w", err)}
	}
	h.url = u
	reply, err := s.one(ctx, h)
	if err != nil {
		return Reply{Verdict: Unsent, Err: err}
	}
	for {
		next, err := s.next(h, reply)
		if next == nil || err != nil {
			reply.Err = errors.Join(reply.Err, err)
			return reply
		}
		h = *next
		then, err := s.one(ctx, h)
		if err != nil {
			if !follows(reply.Answer.Status) {
				reply.Err = errors.Join(reply.Err, err)
				return reply
			}
			then = Reply{Verdict: Unsent, Err: err}
		}
		if then.Verdict == Unsent {
			// The request before has left, though it was answered.
			then.Verdict = Again
		}
		reply = then
	}
}

// one makes one request. The error says that it could not be made, for the want of
// credentials.
func (s *httpSender) one(ctx context.Context, h hop) (Reply, error) {
	req, err := s.request(ctx, h)
	if err != nil {
		return Reply{}, err
	}
	twice := func() error {
		return &onlyonce.Error{
			Code: CodeSentBefore, Op: "send " + h.entry.Method,
			Hint: "the transport beneath was about to send it once more; switch its retries off, this client knows when a retry is safe",
		}
	}
	out, guard := singlesend.Prepare(req, singlesend.Rules{
		Effect: true, Cancel: true, Late: func() error { return s.cfg.late(h.entry) }, Reconnected: twice, Reread: twice,
	})
	if err := ctx.Err(); err != nil {
		return Reply{Verdict: Unsent, Err: context.Cause(ctx)}, nil
	}
	res, err := s.base.RoundTrip(out)
	switch {
	case err == nil:
		return s.read(ctx, res), nil
	case guard.Unconnected():
		return Reply{Verdict: Unsent, Err: because(ctx, err)}, nil
	default:
		return Reply{Verdict: Again, Err: because(ctx, guard.Explain(err))}, nil
	}
}

// because says why the context has ended, where that is why a request has failed.
func because(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// request makes the one of a hop. Of what Authorize does to it the header counts.
func (s *httpSender) request(ctx context.Context, h hop) (*http.Request, error) {
	plain := func() (*http.Request, error) {
		return http.NewRequestWithContext(ctx, h.entry.Method, h.url.String(), bytes.NewReader(h.entry.Body))
	}
	req, err := plain()
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header = http.Header(h.entry.Header).Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	host := req.Header.Get("Host")
	delete(req.Header, "Host")
	if h.foreign {
		maps.DeleteFunc(req.Header, func(name string, _ []string) bool { return s.cfg.secret(name) })
		host = ""
	}
	s.setKey(req.Header, h.entry.Key)
	if s.cfg.Authorize != nil && !h.foreign {
		if err := s.cfg.Authorize(ctx, req, h.again); err != nil {
			return nil, fmt.Errorf("get credentials: %w", err)
		}
		s.setKey(req.Header, h.entry.Key)
	}
	out, err := plain()
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if out.Header, err = canonical(req.Header); err != nil {
		return nil, fmt.Errorf("get credentials: %w", err)
	}
	if host != "" {
		out.Host = host
	}
	return out, nil
}

// setKey makes the key the only one of a header, under any spelling of its name.
func (s *httpSender) setKey(header http.Header, key string) {
	for name := range header {
		if http.CanonicalHeaderKey(name) == s.cfg.KeyHeader {
			delete(header, name)
		}
	}
	header[s.cfg.KeyHeader] = []string{key}
}

// read makes a reply of an answer. What it means is decided before the body is read.
func (s *httpSender) read(ctx context.Context, res *http.Response) Reply {
	defer res.Body.Close()
	if res.StatusCode < http.StatusOK {
		// What follows is another protocol's, and may never end.
		return Reply{Verdict: Again, Err: fmt.Errorf("status %d, which is no answer", res.StatusCode)}
	}
	var r Reply
	r.Verdict, r.BeforeKey = decide(res.StatusCode, res.Header)
	r.AtWork = atWork(res.StatusCode, res.Header)
	r.Replayed = mark(res.Header) == markReplayed
	if r.Verdict == Again {
		r.RetryAfter = retryAfter(res.Header, s.cfg.Now())
	}
	body, long, err := readUpTo(res.Body, s.cfg.MaxAnswer)
	if err != nil {
		if r.Verdict != Unclear {
			r.Verdict = Again // the next answer brings it
		}
		r.Err = because(ctx, fmt.Errorf("read body of answer with status %d: %w", res.StatusCode, err))
		return r
	}
	r.Answer = &Answer{Status: res.StatusCode, Header: res.Header, Body: body}
	if long {
		r.Answer.Body = nil
		if r.Verdict != Again {
			r.Verdict = Unclear
		}
		r.Err = &onlyonce.Error{
			Code: CodeAnswerTooLong, Op: fmt.Sprintf("read answer with status %d", res.StatusCode),
			Hint: fmt.Sprintf("it has more than %d bytes; raise Config.MaxAnswer and do the same intent again", s.cfg.MaxAnswer),
		}
		return r
	}
	r.Reference = reference(r.Answer)
	if r.Verdict == Again || r.Verdict == Unclear {
		r.Err = fmt.Errorf("status %d", res.StatusCode)
	}
	return r
}

// readUpTo reads all, and says whether that is more than a limit.
func readUpTo(r io.Reader, limit int64) (all []byte, long bool, err error) {
	limit = min(limit, math.MaxInt64-1)
	all, err = io.ReadAll(io.LimitReader(r, limit+1))
	return all, int64(len(all)) > limit, err
}

// reference is the server's name for the operation, where its answer is a problem that
// says one.
func reference(a *Answer) string {
	if a == nil {
		return ""
	}
	kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil || (kind != "application/problem+json" && kind != "application/json") {
		return ""
	}
	var problem struct {
		Operation any `json:"operation"`
	}
	if json.Unmarshal(a.Body, &problem) != nil {
		return ""
	}
	name, _ := problem.Operation.(string)
	if len(name) > 255 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return name
}
