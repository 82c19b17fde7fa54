package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

// exitUnsent says that nothing has left, so that it is as if nothing had been asked.
const exitUnsent = 4

// callCmd sends one request until it has the server's answer.
type callCmd struct {
	URL string `arg:"" name:"URL" optional:"" help:"Where to send it. Without: what the journal has of --intent; with --resume and --list: only what goes to that host."`

	Request string   `short:"X" placeholder:"METHOD" env:"-" help:"The method: POST, PATCH, PUT or DELETE. Default with --data: POST."`
	Data    []string `short:"d" sep:"none" placeholder:"DATA" env:"-" help:"What to send: text, @FILE or @- for standard input; files byte for byte, newlines too. Several are joined by &."`
	Header  []string `short:"H" sep:"none" placeholder:"'NAME: VALUE'" env:"-" help:"A header, or @FILE with one a line. Repeatable. Credentials (Authorization, Cookie, names with token, key or secret) are sent and not kept."`
	User    string   `short:"u" placeholder:"USER:PASSWORD" env:"ONLYONCE_CALL_USER" help:"Basic authentication; not kept."`
	Cert    string   `short:"E" placeholder:"FILE" env:"ONLYONCE_CALL_CERT" help:"A client certificate and its key, in PEM."`
	CACert  string   `name:"cacert" placeholder:"FILE" env:"ONLYONCE_CALL_CACERT" help:"Who is believed to say who a server is, in PEM, instead of the system's."`

	Intent    string `placeholder:"NAME" env:"-" help:"Your name for the operation: order-42/charge. A second run with it goes on, or gives the recorded answer. Default: one is made, and printed."`
	Key       string `placeholder:"KEY" env:"-" help:"The idempotency key. Default: one is made, once for an intent."`
	KeyHeader string `default:"Idempotency-Key" placeholder:"NAME" env:"ONLYONCE_CALL_KEY_HEADER" help:"The header that carries the key."`
	Journal   string `placeholder:"FOLDER" env:"ONLYONCE_CALL_JOURNAL" help:"Where operations are kept from before they are sent: a folder, or sqlite:PATH. Default: $XDG_STATE_HOME/onlyonce/journal, else ~/.local/state/onlyonce/journal."`

	Timeout        time.Duration `default:"2m" env:"ONLYONCE_CALL_TIMEOUT" help:"How long to try in all."`
	AttemptTimeout time.Duration `default:"30s" env:"ONLYONCE_CALL_ATTEMPT_TIMEOUT" help:"How long one attempt may take."`
	Attempts       int           `default:"12" env:"ONLYONCE_CALL_ATTEMPTS" help:"How often to try."`
	Retention      span          `default:"24h" env:"ONLYONCE_CALL_RETENTION" help:"How long the server keeps its answers. Nothing is sent later than that, less a tenth: the server would take it for a new operation."`
	MaxAnswer      byteSize      `default:"10MiB" env:"ONLYONCE_CALL_MAX_ANSWER" help:"The longest answer that is taken: 500KB, 64MiB."`

	Output  string `short:"o" placeholder:"FILE" env:"-" help:"Write the answer's body there, and not to standard output."`
	Include bool   `short:"i" env:"-" help:"Print status and headers before the body."`
	JSON    bool   `name:"json" env:"-" help:"Print what became of it as JSON, the answer inside."`
	Silent  bool   `short:"s" env:"-" help:"Say nothing of attempts and waiting, only what went wrong."`

	Resume bool `env:"-" help:"Go on with all operations that may have been sent and have no answer. What was never sent (exit code 4) is begun again by its --intent."`
	List   bool `env:"-" help:"List the operations that may have been sent and have no answer, and send nothing."`
	Prune  span `placeholder:"AGE" env:"-" help:"Forget answers that are older: 90d. What is open stays. An intent that is forgotten is a new operation."`
}

// Help is printed under the command's usage.
func (*callCmd) Help() string {
	return `Like curl, and safe to run again: the request and its idempotency key are in a journal before the first byte is
sent, every attempt is the same to the byte, and what was cut short by a crash, Ctrl-C or a lost answer goes on where it was.

  onlyonce call https://api.example.com/charges -d @charge.json --intent order-42/charge -H @token.txt
  onlyonce call --intent order-42/charge -H @token.txt     # go on with it, or print its answer again
  onlyonce call --list
  onlyonce call --resume https://api.example.com -H @token.txt

The answer's body goes to standard output, all else to standard error. Exit codes: 0 answered, 1 refused by the server (its
reason is the output), 2 the command line or the journal is wrong and nothing was sent, 3 the outcome is not known and the same command
may be run again, 4 nothing was ever sent. The URL, the data and other headers are kept in the journal: secrets do not belong in a URL.`
}

// callError is how a call ended that has no answer.
type callError struct {
	text, hint string
	code       int
}

func (e *callError) Error() string { return e.text }

// Validate refuses what cannot be meant.
func (c *callCmd) Validate() error {
	modes := 0
	for _, set := range []bool{c.Resume, c.List, c.Prune != 0} {
		if set {
			modes++
		}
	}
	single := c.Request != "" || c.Data != nil || c.Intent != "" || c.Key != ""
	switch {
	case modes > 1:
		return fmt.Errorf("--resume, --list and --prune are three different things: say one")
	case modes > 0 && single:
		return fmt.Errorf("--resume, --list and --prune are about many operations: leave --intent, --key, --request and --data out")
	case modes == 0 && c.URL == "" && c.Intent == "":
		return fmt.Errorf("there is no URL: say where to send it, or --intent NAME of an operation that was begun")
	case modes == 0 && c.URL == "" && (c.Request != "" || c.Data != nil || c.Key != ""):
		return fmt.Errorf("there is no URL: an operation of the journal is gone on with as it is; leave --key, --request and --data out, or say the URL")
	case c.JSON && (c.Include || c.Output != ""):
		return fmt.Errorf("--json has status, headers and body in it: leave --include and --output out")
	case (c.Resume || c.List || c.Prune != 0) && (c.Include || c.Output != ""):
		return fmt.Errorf("--include and --output are for one answer")
	}
	return c.validateLimits()
}

func (c *callCmd) validateLimits() error {
	switch {
	case c.Timeout <= 0, c.AttemptTimeout <= 0, c.Retention <= 0:
		return fmt.Errorf("--timeout, --attempt-timeout and --retention must be positive")
	case c.MaxAnswer <= 0:
		return fmt.Errorf("--max-answer must be positive")
	case c.Attempts < 1:
		return fmt.Errorf("--attempts must be at least 1, got %d", c.Attempts)
	case c.Prune < 0:
		return fmt.Errorf("--prune must be positive: 90d")
	case !isToken(c.KeyHeader), isFraming(c.KeyHeader), slices.Contains(onceclient.Credentials(), http.CanonicalHeaderKey(c.KeyHeader)):
		return fmt.Errorf("--key-header %q cannot carry a key", c.KeyHeader)
	case !isIntent(c.Intent):
		return fmt.Errorf("--intent must be at most 255 bytes of printable UTF-8")
	}
	return nil
}

// isIntent tells what a journal takes as a name.
func isIntent(s string) bool {
	return len(s) <= 255 && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Run calls.
func (c *callCmd) Run(ctx context.Context, std Streams) error {
	r, err := c.prepare(std.In)
	if err != nil {
		return err
	}
	_, password, _ := strings.Cut(c.User, ":")
	std.secrets = append(std.secrets, r.secrets(password)...)
	return std.veiled(c.with(ctx, std, &r))
}

// prepare reads all that the command line names, before anything is opened or sent.
func (c *callCmd) prepare(in io.Reader) (r callRequest, err error) {
	if c.Resume || c.List || c.Prune != 0 || c.URL == "" {
		return c.others(in)
	}
	r, err = c.request(in)
	if err == nil && r.Intent == "" {
		r.Intent, r.made = "call-"+strings.ToLower(rand.Text()), true
	}
	return r, err
}

// with does what is asked with an open journal.
func (c *callCmd) with(ctx context.Context, std Streams, r *callRequest) error {
	run := &callRun{callCmd: c, std: std, now: time.Now, asked: r}
	journal, shut, err := openJournal(ctx, c.Journal)
	if err != nil {
		return err
	}
	defer shut()
	run.journal = journal
	if run.base, err = c.transport(); err != nil {
		return err
	}
	defer run.base.CloseIdleConnections()
	switch {
	case c.List:
		return run.list(ctx)
	case c.Resume:
		return run.resume(ctx)
	case c.Prune != 0:
		return run.prune(ctx)
	default:
		return run.once(ctx)
	}
}
