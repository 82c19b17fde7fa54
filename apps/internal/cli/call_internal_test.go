package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// desk is a server that notes what arrives and answers as it is told.
type desk struct {
	url string

	mu      sync.Mutex
	arrived []arrival
	answer  http.HandlerFunc // nil: 201 {"id": 1}
}

type arrival struct {
	method, path, body string
	header             http.Header
}

func newDesk(t *testing.T, answer http.HandlerFunc) *desk {
	t.Helper()
	d := &desk{answer: answer}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d.mu.Lock()
		d.arrived = append(d.arrived, arrival{r.Method, r.URL.RequestURI(), string(body), r.Header})
		d.mu.Unlock()
		if d.answer != nil {
			d.answer(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "{\"id\": 1}\n")
	}))
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

// seen is what has arrived.
func (d *desk) seen() []arrival {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]arrival(nil), d.arrived...)
}

// status answers with a status and a body.
func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// runWith runs a command with a standard input.
func runWith(t *testing.T, in string, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = Run(context.WithoutCancel(t.Context()), args, Streams{In: strings.NewReader(in), Out: &o, Err: &e})
	return o.String(), e.String(), code
}

// phone calls with a journal of the test's own.
type phone struct{ journal string }

func newPhone(t *testing.T) phone {
	t.Helper()
	return phone{filepath.Join(t.TempDir(), "journal")}
}

func (p phone) call(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	return runWith(t, `{"from":"stdin"}`, append([]string{"call", "--journal", p.journal}, args...)...)
}

// write makes a file.
func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What the flags say is what arrives, to the byte. (L1, B101)
func TestCallSends(t *testing.T) {
	t.Parallel()
	const form, jsonType = "application/x-www-form-urlencoded", "application/json"
	file, headers := write(t, "{\"a\":\r\n 1.00}\n\n"), write(t, "X-One: 1\r\n\r\nAuthorization: Bearer abcdef\n")
	for name, tt := range map[string]struct {
		args []string
		want arrival
	}{
		"json":            {[]string{"-d", `{"a":1}`}, arrival{"POST", "/", `{"a":1}`, http.Header{"Content-Type": {jsonType}, "Accept-Encoding": nil}}},
		"file, as it is":  {[]string{"-d", "@" + file}, arrival{"POST", "/", "{\"a\":\r\n 1.00}\n\n", http.Header{"Content-Type": {jsonType}}}},
		"stdin":           {[]string{"-d", "@-"}, arrival{"POST", "/", `{"from":"stdin"}`, http.Header{"Content-Type": {jsonType}}}},
		"form":            {[]string{"-d", "a=1,2", "-d", "b=%20"}, arrival{"POST", "/", "a=1,2&b=%20", http.Header{"Content-Type": {form}}}},
		"said type":       {[]string{"-d", "a b\n", "-H", "content-type: text/plain"}, arrival{"POST", "/", "a b\n", http.Header{"Content-Type": {"text/plain"}}}},
		"attached":        {[]string{"-XPUT", "-d@" + file}, arrival{"PUT", "/", "{\"a\":\r\n 1.00}\n\n", http.Header{"Content-Type": {jsonType}}}},
		"no body":         {[]string{"-X", "post"}, arrival{"POST", "/", "", http.Header{"Content-Type": nil}}},
		"empty body":      {[]string{"-d", ""}, arrival{"POST", "/", "", http.Header{"Content-Type": nil}}},
		"headers":         {[]string{"-X", "DELETE", "-H", "X-Two: a,  b ", "-H", "@" + headers}, arrival{"DELETE", "/", "", http.Header{"X-One": {"1"}, "X-Two": {"a,  b"}, "Authorization": {"Bearer abcdef"}}}},
		"user":            {[]string{"-X", "POST", "-u", "ann:pass:word"}, arrival{"POST", "/", "", http.Header{"Authorization": {"Basic YW5uOnBhc3M6d29yZA=="}}}},
		"key":             {[]string{"-X", "POST", "--key", `"k 1"`}, arrival{"POST", "/", "", http.Header{"Idempotency-Key": {`"k 1"`}}}},
		"key as a header": {[]string{"-X", "POST", "-H", `Idempotency-Key: "k1"`}, arrival{"POST", "/", "", http.Header{"Idempotency-Key": {`"k1"`}}}},
		"key elsewhere":   {[]string{"-X", "POST", "--key", "k1", "--key-header", "X-Request"}, arrival{"POST", "/", "", http.Header{"Idempotency-Key": nil, "X-Request": {"k1"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, nil)
			out, errs, code := newPhone(t).call(t, append(tt.args, d.url)...)
			if code != 0 || out != "{\"id\": 1}\n" {
				t.Fatalf("%d %q %s", code, out, errs)
			}
			got := d.seen()
			if len(got) != 1 || got[0].method != tt.want.method || got[0].path != tt.want.path || got[0].body != tt.want.body {
				t.Fatalf("arrived: %+v", got)
			}
			for name, values := range tt.want.header {
				if strings.Join(got[0].header[name], "|") != strings.Join(values, "|") {
					t.Errorf("%s: %q, want %q", name, got[0].header[name], values)
				}
			}
		})
	}
}

// A password in the URL is a credential: it arrives as one, and is neither in the
// target nor in the journal.
func TestCallUserInURL(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, nil), newPhone(t)
	address := strings.Replace(d.url, "http://", "http://ann:pass-word@", 1) + "/x?y=1#z"
	if _, errs, code := p.call(t, "-X", "POST", address); code != 0 || strings.Contains(errs, "pass-word") {
		t.Fatalf("%d %s", code, errs)
	}
	if got := d.seen()[0]; got.path != "/x?y=1" || got.header.Get("Authorization") != "Basic YW5uOnBhc3Mtd29yZA==" {
		t.Errorf("arrived: %+v", got)
	}
	wantNotKept(t, p, "pass-word", "YW5u")
}

// wantNotKept checks that no file of the journal has a text.
func wantNotKept(t *testing.T, p phone, secrets ...string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(p.journal, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		for _, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s holds %q", path, secret)
			}
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files in the journal, %v", files, err)
	}
}

// What cannot be meant is refused before anything is kept or sent, with what to do
// instead, and without a secret.
func TestCallRefusesCommandLines(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	large, form := write(t, strings.Repeat("x", maxData+1)), write(t, "a=1\n")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no URL":                 {[]string{"-d", "{}"}, "there is no URL"},
		"no scheme":              {[]string{"-d", "{}", "api.example.com/charges"}, "must begin with https://"},
		"no host":                {[]string{"-d", "{}", "http:///charges"}, "must begin with https://"},
		"other scheme":           {[]string{"-d", "{}", "ftp://example.com/"}, "must begin with https://"},
		"unreadable URL":         {[]string{"-d", "{}", "http://a b/%zz"}, "the URL cannot be read"},
		"CR in the URL":          {[]string{"-d", "{}", d.url + "/\r\nX: y"}, "the URL cannot be read"},
		"nothing to send":        {[]string{d.url}, "there is nothing to send"},
		"GET":                    {[]string{"-X", "GET", d.url}, "no idempotency key on GET"},
		"method":                 {[]string{"-X", "PO ST", d.url}, "is not an HTTP method"},
		"no file":                {[]string{"-d", "@" + large + ".none", d.url}, "no such file"},
		"folder as data":         {[]string{"-d", "@" + filepath.Dir(large), d.url}, "is a directory"},
		"no file name":           {[]string{"-d", "@", d.url}, "names no file"},
		"stdin twice":            {[]string{"-d", "@-", "-H", "@-", d.url}, "standard input is read already"},
		"too large":              {[]string{"-d", "@" + large, d.url}, "more than 16 MiB"},
		"broken JSON":            {[]string{"-d", `{"a":`, d.url}, "is not valid JSON"},
		"form with a newline":    {[]string{"-d", "@" + form, d.url}, "its file ends in a newline"},
		"neither":                {[]string{"-d", "a b", d.url}, "neither JSON nor an encoded form"},
		"header injection":       {[]string{"-X", "POST", "-H", "X-A: secret\r\nX-B: 2", d.url}, "the value of X-A has a control character"},
		"injection by a name":    {[]string{"-X", "POST", "-H", "X-A\r\nX-B: secret", d.url}, "is not the name of a header"},
		"header without colon":   {[]string{"-X", "POST", "-H", "secret", d.url}, "a header has no colon"},
		"header without value":   {[]string{"-X", "POST", "-H", "X-A:", d.url}, "X-A has no value"},
		"framing":                {[]string{"-X", "POST", "-H", "Transfer-Encoding: chunked", d.url}, "is the connection's"},
		"two types":              {[]string{"-X", "POST", "-H", "Content-Type: a/b", "-H", "Content-Type: c/d", d.url}, "two of Content-Type"},
		"two keys":               {[]string{"-X", "POST", "-H", "Idempotency-Key: a", "-H", "idempotency-key: a", d.url}, "the key is given more than once"},
		"key and header":         {[]string{"-X", "POST", "--key", "a", "-H", "Idempotency-Key: a", d.url}, "the key is given more than once"},
		"bad key":                {[]string{"-X", "POST", "-H", "Idempotency-Key: a, b", d.url}, "no valid key"},
		"bad --key":              {[]string{"-X", "POST", "--key", "ä", d.url}, "key"},
		"two credentials":        {[]string{"-X", "POST", "-u", "ann:secret", "-H", "Authorization: Bearer secret", d.url}, "two credentials"},
		"user twice":             {[]string{"-X", "POST", "-u", "ann:secret", "http://bob:secret@localhost/"}, "the URL has a user"},
		"no password":            {[]string{"-X", "POST", "-u", "ann", d.url}, "--user has no password"},
		"unquoted header":        {[]string{"-X", "POST", "-H", "Authorization:", "Bearer", "secret", d.url}, "in quotes"},
		"curl's --json":          {[]string{"--json", `{"a":1}`, d.url}, "-d"},
		"insecure":               {[]string{"-k", "-X", "POST", d.url}, "--cacert"},
		"intent":                 {[]string{"-X", "POST", "--intent", "a\nb", d.url}, "--intent must be"},
		"long intent":            {[]string{"-X", "POST", "--intent", strings.Repeat("i", 256), d.url}, "--intent must be"},
		"key header":             {[]string{"-X", "POST", "--key-header", "Content-Length", d.url}, "cannot carry a key"},
		"no time":                {[]string{"-X", "POST", "--timeout", "0s", d.url}, "must be positive"},
		"no attempts":            {[]string{"-X", "POST", "--attempts", "0", d.url}, "at least 1"},
		"no answer":              {[]string{"-X", "POST", "--max-answer", "0", d.url}, "must be positive"},
		"two things":             {[]string{"--resume", "--list"}, "say one"},
		"resume one":             {[]string{"--resume", "--intent", "x"}, "leave --intent"},
		"begun, with data":       {[]string{"--intent", "x", "-d", "{}"}, "there is no URL"},
		"begun, with a header":   {[]string{"--intent", "x", "-H", "X-A: 1"}, "only credentials"},
		"resume for anybody":     {[]string{"--resume", "-u", "ann:secret"}, "credentials go to one host alone"},
		"output twice":           {[]string{"--json", "-i", "-X", "POST", d.url}, "leave --include"},
		"output of many":         {[]string{"--resume", "-o", "x"}, "for one answer"},
		"output nowhere":         {[]string{"-X", "POST", "-o", large + "/none/x", d.url}, "--output"},
		"output into a folder":   {[]string{"-X", "POST", "-o", filepath.Dir(large), d.url}, "it is a folder"},
		"unknown to the journal": {[]string{"--intent", "never"}, `has no operation "never"`},
		"no CA":                  {[]string{"-X", "POST", "--cacert", form, d.url}, "no certificate in it"},
		"no CA file":             {[]string{"-X", "POST", "--cacert", form + ".none", d.url}, "no such file"},
		"no client certificate":  {[]string{"-X", "POST", "-E", form, d.url}, "--cert"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPhone(t)
			out, errs, code := p.call(t, tt.args...)
			if code != exitUsage || out != "" || !strings.Contains(errs, tt.want) || !strings.Contains(errs, "hint: ") {
				t.Errorf("%d %q %s", code, out, errs)
			}
			if strings.Contains(errs, "secret") {
				t.Errorf("a secret is in %s", errs)
			}
			if out, _, code := p.call(t, "--list", "--json"); code != 0 || out != "[]\n" {
				t.Errorf("it is in the journal: %s", out)
			}
		})
	}
	t.Cleanup(func() {
		if got := d.seen(); len(got) != 0 {
			t.Errorf("arrived: %+v", got)
		}
	})
}

// A journal that cannot be used keeps everything from being sent.
func TestCallWithoutJournal(t *testing.T) {
	t.Parallel()
	d, file := newDesk(t, nil), write(t, "no journal")
	for _, journal := range []string{file, "sqlite:" + file, "sqlite:", "sqlite:" + filepath.Join(file, "x.db"), "postgres://localhost/x"} {
		out, errs, code := phone{journal}.call(t, "-X", "POST", d.url, "--intent", "order-42")
		if code != exitUsage || out != "" || !strings.Contains(errs, "journal") || !strings.Contains(errs, "hint: ") {
			t.Errorf("%s: %d %q %s", journal, code, out, errs)
		}
	}
	if got := d.seen(); len(got) != 0 {
		t.Errorf("arrived: %+v", got)
	}
}

// A second run gives the recorded answer, also when the server is another by then; with
// other data it is refused. (L1)
func TestCallAgain(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, nil), newPhone(t)
	first, errs, code := p.call(t, "-d", `{"a":1}`, d.url, "--intent", "order-42")
	if code != 0 || errs != "" {
		t.Fatalf("%d %s", code, errs)
	}
	d.answer = status(500, "")
	for _, args := range [][]string{{"--intent", "order-42"}, {"-d", `{"a":1}`, d.url, "--intent", "order-42"}} {
		out, errs, code := p.call(t, args...)
		if code != 0 || out != first || errs != "onlyonce: 201 Created, the recorded answer of order-42; nothing was sent\n" {
			t.Errorf("%d %q %s", code, out, errs)
		}
	}
	if out, errs, code := p.call(t, "--intent", "order-42", "-s"); code != 0 || out != first || errs != "" {
		t.Errorf("silent: %d %q %s", code, out, errs)
	}
	for name, args := range map[string][]string{
		"data":   {"-d", `{"a":2}`, d.url},
		"URL":    {"-d", `{"a":1}`, d.url + "/other"},
		"method": {"-d", `{"a":1}`, "-X", "PUT", d.url},
		"key":    {"-d", `{"a":1}`, d.url, "--key", "another"},
	} {
		out, errs, code := p.call(t, append(args, "--intent", "order-42")...)
		if code != exitUsage || out != "" || !strings.Contains(errs, "order-42") {
			t.Errorf("another %s: %d %q %s", name, code, out, errs)
		}
	}
	if got := d.seen(); len(got) != 1 {
		t.Errorf("arrived: %+v", got)
	}
}

// An operation without a name gets one, which is printed before it is sent, and goes on
// by it.
func TestCallMakesAnIntent(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, nil), newPhone(t)
	d.answer = status(500, "")
	_, errs, code := p.call(t, "-d", `{"a":1}`, d.url, "--attempts", "1", "-H", "Authorization: Bearer abcdef", "-u", "")
	if code != exitUnknown {
		t.Fatalf("%d %s", code, errs)
	}
	line, _, _ := strings.Cut(errs, "\n")
	_, command, found := strings.Cut(line, "go on with: onlyonce ")
	if !found || !strings.HasSuffix(command, " --journal "+p.journal+" -H 'Authorization: …'") {
		t.Fatalf("it says %s", errs)
	}
	if !strings.Contains(errs, "hint: ask again; it is done once however often you ask: onlyonce "+command+"\n") {
		t.Errorf("at the end it does not say %q:\n%s", command, errs)
	}
	d.answer = nil
	words := strings.Fields(command)
	if out, errs, code := run(t, words[:len(words)-3]...); code != 0 || out != "{\"id\": 1}\n" {
		t.Errorf("%v: %d %q %s", words, code, out, errs)
	}
	got := d.seen()
	if len(got) != 2 || got[0].header.Get("Idempotency-Key") != got[1].header.Get("Idempotency-Key") || got[0].body != got[1].body {
		t.Errorf("arrived: %+v", got)
	}
}

// Exit codes and output say how it ended; -i, -o and --json say more.
func TestCallOutcomes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		code   int
		out    string
		says   string
	}{
		"answered": {status(200, "fine\n"), 0, "fine\n", ""},
		"binary":   {status(200, "\x00\xff\r\n"), 0, "\x00\xff\r\n", ""},
		"empty":    {status(204, ""), 0, "", ""},
		"refused":  {status(422, "no such card"), 1, "no such card", "status 422"},
		"unknown":  {status(500, "oops"), 3, "", "outcome unknown"},
		"broken":   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 3, "", "outcome unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, p := newDesk(t, tt.answer), newPhone(t)
			out, errs, code := p.call(t, "-X", "POST", d.url, "--intent", "o", "--attempts", "1")
			if code != tt.code || out != tt.out || !strings.Contains(errs, tt.says) || (errs == "") != (tt.says == "") {
				t.Errorf("%d %q %s", code, out, errs)
			}
			out, errs, code = p.call(t, "--intent", "o", "--attempts", "1", "--json")
			var v callView
			if err := json.Unmarshal([]byte(out), &v); err != nil || code != tt.code {
				t.Fatalf("%d %v %s %s", code, err, out, errs)
			}
			want := map[int]string{0: outcomeAnswered, 1: outcomeRefused, 3: outcomeUnknown}[tt.code]
			if v.Outcome != want || v.Intent != "o" || v.Key == "" || (v.Again != "") != (tt.code == 3) || (v.Error != "") != (tt.code != 0) {
				t.Errorf("%+v", v)
			}
			if tt.code < 2 && (v.Body == "") != (name == "empty" || name == "binary") || (v.BodyBase64 != "") != (name == "binary") {
				t.Errorf("%+v", v)
			}
		})
	}
}

// Where nobody listens nothing was sent, and the same command may come later.
func TestCallNotSent(t *testing.T) {
	t.Parallel()
	p := newPhone(t)
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	out, errs, code := p.call(t, "-X", "POST", server.URL, "--intent", "o", "--attempts", "2", "--key", "k1")
	if code != exitUnsent || out != "" || !strings.Contains(errs, "not sent") || !strings.Contains(errs, "attempt 2 follows in ") {
		t.Errorf("%d %q %s", code, out, errs)
	}
	if !strings.Contains(errs, "hint: nothing has happened; once that is mended: onlyonce call --intent o --journal ") {
		t.Errorf("it says %s", errs)
	}
	if out, _, code := p.call(t, "--list", "--json"); code != 0 || out != "[]\n" {
		t.Errorf("open: %s", out)
	}
	out, _, code = p.call(t, "--intent", "o", "--attempts", "1", "--json")
	var v callView
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitUnsent || v.Outcome != outcomeUnsent || v.Key != "k1" {
		t.Errorf("%d %s", code, out)
	}
}

// L4: what was never sent is not to be run again when its key is too old to be sent; it is
// another operation then.
func TestCallNotSentTooLate(t *testing.T) {
	t.Parallel()
	p := newPhone(t)
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	for _, first := range []bool{true, false} {
		args := []string{"-X", "POST", server.URL, "--intent", "o", "--attempts", "1"}
		if !first {
			args = append(args, "--retention", "1ns", "--json")
		}
		out, errs, code := p.call(t, args...)
		if code != exitUnsent || strings.Contains(errs, "once that is mended") != first {
			t.Errorf("%d %s", code, errs)
		}
		if !first && (!strings.Contains(errs, "hint: nothing has happened; begin it under another --intent") || strings.Contains(out, `"again"`)) {
			t.Errorf("it says %s%s", out, errs)
		}
	}
}

// What is interrupted before it has begun has sent nothing itself; whether an earlier
// run of a named operation has, is not known.
func TestCallInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, nil), newPhone(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		more []string
		code int
	}{"named": {[]string{"--intent", "o"}, exitUnknown}, "made": {nil, exitUnsent}} {
		var out, errs bytes.Buffer
		args := append([]string{"call", "--journal", p.journal, "-X", "POST", d.url}, tt.more...)
		code := Run(ctx, args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if code != tt.code || out.String() != "" || !strings.Contains(errs.String(), "interrupted; this run has sent nothing\nhint: ") {
			t.Errorf("%s: %d %s%s", name, code, out.String(), errs.String())
		}
	}
	if got := d.seen(); len(got) != 0 {
		t.Errorf("arrived: %+v", got)
	}
}

// errClosed is a pipe whose reader has gone.
var errClosed = errors.New("broken pipe")

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errClosed }

// An answer that could not be written is not known, and is had by the same command.
func TestCallCannotWrite(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, nil), newPhone(t)
	var errs bytes.Buffer
	args := []string{"call", "--journal", p.journal, "-X", "POST", d.url, "--intent", "o"}
	code := Run(t.Context(), args, Streams{In: strings.NewReader(""), Out: brokenPipe{}, Err: &errs})
	if code != exitUnknown || !strings.Contains(errs.String(), "broken pipe") || !strings.Contains(errs.String(), "hint: the journal has it: onlyonce call --intent o") {
		t.Errorf("%d %s", code, errs.String())
	}
	if out, _, code := p.call(t, args[3:]...); code != 0 || out != "{\"id\": 1}\n" || len(d.seen()) != 1 {
		t.Errorf("%d %q, arrived %d", code, out, len(d.seen()))
	}
}

// -i prints what an HTTP message has, -o makes a file that is whole, in the place of
// what a link means; what is no file is written to.
func TestCallOutput(t *testing.T) {
	t.Parallel()
	d, p := newDesk(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-B"] = []string{"2", "3"}
		w.Header()["X-A"] = []string{"1"}
		w.Header()["Date"] = nil
		status(200, "fine")(w, nil)
	}), newPhone(t)
	out, errs, code := p.call(t, "-i", "-X", "POST", d.url, "--intent", "o")
	if want := "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Type: text/plain; charset=utf-8\r\nX-A: 1\r\nX-B: 2\r\nX-B: 3\r\n\r\nfine"; code != 0 || out != want {
		t.Errorf("%d %q %s", code, out, errs)
	}
	folder, file := t.TempDir(), write(t, "something longer than the answer")
	link := filepath.Join(folder, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(folder, "new"), link, os.DevNull} {
		if out, errs, code := p.call(t, "-o", name, "--intent", "o"); code != 0 || out != "" {
			t.Errorf("%s: %d %q %s", name, code, out, errs)
		}
		if text, err := os.ReadFile(name); name != os.DevNull && (err != nil || string(text) != "fine") {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != 2 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

// An operation without an answer leaves the file that was to have it alone.
func TestCallOutputUnknown(t *testing.T) {
	t.Parallel()
	d, file := newDesk(t, status(500, "oops")), write(t, "before")
	if _, errs, code := newPhone(t).call(t, "-X", "POST", d.url, "-o", file, "--attempts", "1"); code != exitUnknown {
		t.Errorf("%d %s", code, errs)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "before" {
		t.Errorf("%q, %v", text, err)
	}
}
