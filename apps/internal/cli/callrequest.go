package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// maxData is the most that is sent: all of it is kept in the journal.
const maxData = 16 << 20

// callRequest is what the command line asks for.
type callRequest struct {
	onceclient.Request

	// credentials go to origin alone, and never into the journal.
	credentials http.Header
	origin      string
	made        bool // the intent, by this program
}

// request reads the operation from the flags, files and standard input.
func (c *callCmd) request(in io.Reader) (r callRequest, err error) {
	input := &stdinOnce{in: in}
	if r.URL, r.origin, err = c.target(); err != nil {
		return r, err
	}
	if r.Body, err = c.body(input); err != nil {
		return r, err
	}
	if r.Method, err = c.method(); err != nil {
		return r, err
	}
	r.Intent, r.Key = c.Intent, c.Key
	if err := c.headers(&r, input); err != nil {
		return r, err
	}
	return r, typed(&r, c.Data)
}

// target checks the URL. A password in it is a credential like --user: it is no part
// of what is kept.
func (c *callCmd) target() (target, origin string, err error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return "", "", misuse("the URL cannot be read", "write it like https://api.example.com/charges, with %20 for a space")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "", "", misuse("the URL must begin with https:// or http:// and name a host", "write it whole: https://api.example.com/charges")
	case u.User != nil && c.User != "":
		return "", "", misuse("the URL has a user, and so has --user", "say it once, with -u USER:PASSWORD")
	}
	if u.User != nil {
		password, _ := u.User.Password()
		c.User, u.User = u.User.Username()+":"+password, nil
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String(), onceclient.Origin(u.String()), nil
}

// method is POST where there is something to send.
func (c *callCmd) method() (string, error) {
	method := strings.ToUpper(c.Request)
	switch {
	case method == "" && len(c.Data) == 0:
		return "", misuse("there is nothing to send", "give data with -d, or say -X POST for a request without a body; what only reads is safe to repeat, and curl does it")
	case method == "":
		return http.MethodPost, nil
	case method == http.MethodGet, method == http.MethodHead, method == http.MethodOptions, method == http.MethodTrace, method == http.MethodConnect:
		return "", misuse("servers take no idempotency key on "+method, "it is safe to repeat without one: use curl")
	case !isToken(method):
		return "", misuse(fmt.Sprintf("--request %q is not an HTTP method", c.Request), "say -X POST, PATCH, PUT or DELETE")
	}
	return method, nil
}

// body is the data, several joined by & as curl does; files byte for byte.
func (c *callCmd) body(in *stdinOnce) ([]byte, error) {
	var parts [][]byte
	for _, data := range c.Data {
		part := []byte(data)
		if name, isFile := strings.CutPrefix(data, "@"); isFile {
			var err error
			if part, err = in.read("--data", name); err != nil {
				return nil, err
			}
		}
		parts = append(parts, part)
	}
	body := bytes.Join(parts, []byte("&"))
	if len(body) > maxData {
		return nil, tooLarge("--data")
	}
	return body, nil
}

func tooLarge(flag string) error {
	return misuse(fmt.Sprintf("%s: more than %d MiB", flag, maxData>>20), "upload large things by other means first, and send their name")
}

// typed says what the body is, unless the caller did. It does not guess: a server that
// reads the body as something else would do something else.
func typed(r *callRequest, data []string) error {
	if r.Header.Get("Content-Type") != "" || len(r.Body) == 0 {
		return nil
	}
	text := bytes.TrimSpace(r.Body)
	switch {
	case len(text) > 0 && (text[0] == '{' || text[0] == '['):
		if !json.Valid(text) {
			return misuse("the data begins like JSON and is not valid JSON", "correct it; to send it as it is, say -H 'Content-Type: …'")
		}
		r.Header.Set("Content-Type", "application/json")
	case bytes.IndexFunc(r.Body, func(c rune) bool { return c <= ' ' || c > '~' }) < 0:
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	case strings.HasPrefix(data[len(data)-1], "@") && bytes.ContainsAny(r.Body[len(r.Body)-1:], "\r\n"):
		return misuse("the data is no JSON, and its file ends in a newline, which would be part of the last value", "curl -d leaves newlines out, and this command sends a file byte for byte: remove the newline, or say -H 'Content-Type: …' to send it as it is")
	default:
		return misuse("the data is neither JSON nor an encoded form (name=value&…, with %20 for a space)", "say what it is: -H 'Content-Type: …'")
	}
	return nil
}

// headers sorts what was given into what is kept and what is not.
func (c *callCmd) headers(r *callRequest, in *stdinOnce) error {
	r.Header, r.credentials = http.Header{}, http.Header{}
	lines, err := c.headerLines(in)
	if err != nil {
		return err
	}
	var keys []string
	for _, line := range lines {
		name, value, err := splitHeader(line)
		switch {
		case err != nil:
			return err
		case strings.EqualFold(name, c.KeyHeader):
			keys = append(keys, value)
		case onceclient.IsCredential(name):
			r.credentials.Add(name, value)
		default:
			r.Header.Add(name, value)
		}
	}
	if len(r.Header.Values("Content-Type")) > 1 {
		return misuse("--header: two of Content-Type", "give it once")
	}
	if err := r.takeKey(keys, c.KeyHeader); err != nil {
		return err
	}
	return c.basic(r.credentials)
}

// takeKey takes a key that was given as a header, as for curl.
func (r *callRequest) takeKey(values []string, header string) error {
	if len(values) == 0 {
		return nil
	}
	if len(values) > 1 || r.Key != "" {
		return misuse("the key is given more than once", "say it once, with --key or as the header "+header)
	}
	if _, err := oncehttp.ParseKey(values, false); err != nil {
		return misuse("--header: "+header+" has no valid key", "a key is 1 to 255 printable ASCII characters: --key KEY")
	}
	r.Key = values[0] // in the form in which it was given
	return nil
}

// basic adds --user, as curl does.
func (c *callCmd) basic(credentials http.Header) error {
	if c.User == "" {
		return nil
	}
	if credentials.Get("Authorization") != "" {
		return misuse("there are two credentials: --user and a header Authorization", "give one of them")
	}
	if !strings.Contains(c.User, ":") {
		return misuse("--user has no password", "say -u USER:PASSWORD, or -u USER: if it is empty; out of sight of other users as the variable ONLYONCE_CALL_USER")
	}
	credentials.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.User)))
	return nil
}

// headerLines are the lines of --header, those in files among them.
func (c *callCmd) headerLines(in *stdinOnce) (lines []string, err error) {
	for _, given := range c.Header {
		name, isFile := strings.CutPrefix(given, "@")
		if !isFile {
			lines = append(lines, given)
			continue
		}
		text, err := in.read("--header", name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimRight(line, "\r\n"); line != "" {
				lines = append(lines, line)
			}
		}
	}
	return lines, nil
}

// splitHeader reads one line; its value is in no message, for it may be a secret.
func splitHeader(line string) (name, value string, err error) {
	name, value, found := strings.Cut(line, ":")
	if !found {
		return "", "", misuse("--header: a header has no colon", "write -H 'Name: value', in quotes")
	}
	value = strings.Trim(value, " \t")
	switch {
	case !isToken(name):
		return "", "", misuse(fmt.Sprintf("--header: %.40q is not the name of a header", name), "write -H 'Name: value'")
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return "", "", misuse("--header: the value of "+name+" has a control character", "a header is one line; for several say -H several times, or -H @FILE")
	case value == "":
		return "", "", misuse("--header: "+name+" has no value", "leave it out")
	case isFraming(name):
		return "", "", misuse("--header: "+name+" is the connection's, and is set as it must be", "leave it out")
	}
	return http.CanonicalHeaderKey(name), value, nil
}

// isFraming tells headers that say how a message is carried: a wrong one would make
// two of it.
func isFraming(name string) bool {
	switch strings.ToLower(name) {
	case "connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade":
		return true
	}
	return false
}

// isToken tells names of headers and methods (RFC 9110).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// stdinOnce reads files, and standard input once.
type stdinOnce struct {
	in   io.Reader
	used bool
}

// read reads a file whole; - is standard input.
func (s *stdinOnce) read(flag, name string) ([]byte, error) {
	var text []byte
	var err error
	switch {
	case name == "":
		return nil, misuse(flag+" @ names no file", "write @FILE, or @- for standard input")
	case name == "-" && s.used:
		return nil, misuse(flag+": standard input is read already", "give one of the two in a file")
	case name == "-":
		s.used = true
		text, err = io.ReadAll(io.LimitReader(s.in, maxData+1))
	default:
		text, err = readFile(name)
	}
	if err != nil {
		if pathError, ok := errors.AsType[*os.PathError](err); ok {
			err = pathError.Err
		}
		return nil, misuse(fmt.Sprintf("%s: read %s: %v", flag, name, err), "after @ comes the name of a file that can be read; nothing was sent")
	}
	if len(text) > maxData {
		return nil, tooLarge(flag)
	}
	return text, nil
}

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, maxData+1))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return text, nil
}

// misuse is a command line that cannot be done, and nothing was.
func misuse(text, hint string) error { return &usageError{text, hint} }

// misusedCall says what to write instead of what curl would have taken. Words that were
// not expected may be parts of a secret, and are not repeated.
func misusedCall(err error, args []string) error {
	text, hint := err.Error(), "onlyonce call --help explains the command"
	switch {
	case strings.HasPrefix(text, "unknown flag -k"), strings.HasPrefix(text, "unknown flag --insecure"):
		hint = "a server that may be anybody is not paid through: name who vouches for it with --cacert FILE"
	case strings.HasPrefix(text, "unexpected argument"):
		text, hint = "there is more than one URL", "put headers and data in quotes: -H 'Name: value' -d '{…}'"
		if slices.Contains(args, "--json") {
			hint = "--json is how the outcome is printed; give data with -d, of which JSON is recognised"
		}
	}
	return &usageError{text, hint}
}
