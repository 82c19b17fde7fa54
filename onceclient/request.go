package onceclient

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
)

// operation is a Request that was looked at: what the journal keeps of it, and what it
// must not.
type operation struct {
	entry   Entry
	secrets http.Header
}

// operation checks a request, and gives it an intent and a key where it has none.
func (c *Client) operation(req Request) (operation, error) {
	const op = "check onceclient.Request"
	if req.Intent == "" {
		req.Intent = "once-" + newUUID()
	}
	if err := checkIntent(req.Intent); err != nil {
		return operation{}, err
	}
	if !isToken(req.Method) {
		return operation{}, configError(op, "Method is empty or no method; set it to POST, say")
	}
	header, err := canonical(req.Header)
	if err != nil {
		return operation{}, err
	}
	key, err := c.takeKey(req.Key, header)
	if err != nil {
		return operation{}, err
	}
	target := req.URL
	if c.cfg.Sender == nil {
		if target, err = checkURL(req.URL, header); err != nil {
			return operation{}, err
		}
	} else if target == "" {
		return operation{}, configError(op, "URL is empty; set it to where the request goes")
	}
	o := operation{secrets: c.takeSecrets(header), entry: Entry{
		Intent: req.Intent, Key: key, Method: req.Method, Target: target, Header: header,
		// The caller may use its buffer again while an abandoned attempt still reads.
		Body:      bytes.Clone(req.Body),
		CreatedAt: c.cfg.Now(), State: Open,
	}}
	return o, nil
}

func checkIntent(intent string) error {
	if len(intent) > 255 || !utf8.ValidString(intent) || strings.ContainsFunc(intent, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return configError("check onceclient.Request", "Intent must be at most 255 bytes of printable UTF-8; use the order's number, say")
	}
	return nil
}

// canonical is a copy in which each header has one spelling, without what is
// net/http's to set.
func canonical(header http.Header) (http.Header, error) {
	out := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if !isToken(name) {
			return nil, configError("check onceclient.Request", fmt.Sprintf("Header holds %q, which is no name of a header", name))
		}
		for _, v := range header[name] {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return nil, configError("check onceclient.Request", "Header "+name+" has a value with a control character, which cannot be sent")
			}
			out.Add(name, v)
		}
	}
	for _, name := range notSent() {
		delete(out, name)
	}
	return out, nil
}

// notSent are the headers that are net/http's to set.
func notSent() []string {
	return []string{"Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Upgrade"}
}

// takeKey is the key, of the header or made anew, and takes it out of the header.
func (c *Client) takeKey(key string, header http.Header) (string, error) {
	for _, v := range header[c.cfg.KeyHeader] {
		if key == "" {
			key = v
		}
		if v != key || len(header[c.cfg.KeyHeader]) > 1 {
			return "", configError("check onceclient.Request", "there are several idempotency keys; set Key, or one "+c.cfg.KeyHeader+" header")
		}
	}
	delete(header, c.cfg.KeyHeader)
	if key == "" {
		return newUUID(), nil
	}
	return key, checkKey(key)
}

// checkKey takes what is one key in each reading of the header: bare, or quoted as
// RFC 9651 wants it. It is sent as it is.
func checkKey(key string) error {
	if err := onlyonce.ValidateKeyValue(key); err != nil {
		return err
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(key, `"`), `"`)
	quoted := len(key) == len(bare)+2
	if bare == "" || (!quoted && len(key) != len(bare)) || strings.ContainsAny(bare, `"\`) || (!quoted && strings.ContainsAny(bare, " ,;")) {
		return &onlyonce.Error{
			Code: onlyonce.CodeKeyInvalid, Op: "check onceclient.Request",
			Hint: `Key holds a space, a quote, a backslash, a comma or a semicolon, which servers read differently; use letters, digits and -._:/`,
		}
	}
	return nil
}

// checkURL is the URL as it is kept: absolute, and without what is secret or stays
// here. A password in it goes to the header.
func checkURL(text string, header http.Header) (string, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Hostname() == "" {
		// The text may hold a password, and so may the error.
		return "", configError("check onceclient.Request", "URL is not an absolute one of http or https")
	}
	if u.User != nil && header.Get("Authorization") == "" {
		password, _ := u.User.Password()
		r := http.Request{Header: header}
		r.SetBasicAuth(u.User.Username(), password)
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	return u.String(), nil
}

// takeSecrets takes the credentials out of a header.
func (c *Client) takeSecrets(header http.Header) http.Header {
	secrets := http.Header{}
	for name, values := range header {
		if c.cfg.secret(name) {
			secrets[name] = values
			delete(header, name)
		}
	}
	return secrets
}

// differs names what of a request is another than it was, never values.
func differs(was, is Entry) []string {
	var names []string
	if was.Method != is.Method {
		names = append(names, "method")
	}
	if was.Target != is.Target {
		names = append(names, "url")
	}
	all := maps.Clone(was.Header)
	if all == nil {
		all = map[string][]string{}
	}
	maps.Copy(all, is.Header)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !incidental(name) && !slices.Equal(was.Header[name], is.Header[name]) {
			names = append(names, "header:"+name)
		}
	}
	if !bytes.Equal(was.Body, is.Body) {
		names = append(names, "body")
	}
	return names
}

// incidental tells whether a header may be another each time that the same is asked.
func incidental(name string) bool {
	switch name {
	case "Accept-Encoding", "Baggage", "B3", "Date", "Expect", "Referer", "Sentry-Trace", "Traceparent", "Tracestate",
		"Uber-Trace-Id", "User-Agent", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "X-Correlation-Id", "X-Request-Id":
		return true
	default:
		return strings.HasPrefix(name, "X-B3-")
	}
}

// isToken tells whether s is a token of RFC 9110, as methods and headers' names are.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
	})
}

// newUUID is a random UUID, of version 4.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// sendable is for how long an entry may still be sent.
func (c Config) sendable(e Entry) time.Duration {
	return e.CreatedAt.Add(c.Retention / 10 * 9).Sub(c.Now())
}

// late is not nil when an entry may not be sent any more. An entry from the future shows
// that a clock was set back: by more than the margin, and its age is not known.
func (c Config) late(e Entry) error {
	late := &onlyonce.Error{Code: CodeRetentionOver, Op: "send " + e.Method}
	switch {
	case e.CreatedAt.Sub(c.Now()) > c.Retention/10:
		late.Hint = "the entry is from the future, so that nobody knows how old it is, and the server may have forgotten the key: set the clocks of the machines that share the journal, and look up what became of it"
	case c.sendable(e) <= 0:
		late.Hint = "the server may have forgotten the key, and would take this for a new operation: look up what became of it, or set Config.Retention to what the server publishes"
	default:
		return nil
	}
	return late
}
