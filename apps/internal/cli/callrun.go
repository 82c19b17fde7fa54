package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

// callRun is one run of the command, with its journal open.
type callRun struct {
	*callCmd

	std     Streams
	now     func() time.Time
	asked   *callRequest
	journal onceclient.Journal
	base    *http.Transport
}

// client makes the client that does the operations of a journal.
func (r *callRun) client(journal onceclient.Journal) (*onceclient.Client, error) {
	cfg := onceclient.Config{
		Journal: journal, Base: r.base, KeyHeader: r.KeyHeader, Retention: time.Duration(r.Retention),
		MaxAnswer: int64(r.MaxAnswer), Timeout: r.Timeout, AttemptTimeout: r.AttemptTimeout, Attempts: r.Attempts, Observe: r.observe,
	}
	if len(r.asked.credentials) > 0 {
		cfg.Authorize = r.asked.authorize
	}
	return onceclient.New(cfg)
}

// once does one operation, and prints its answer.
func (r *callRun) once(ctx context.Context) error {
	to := callOutput{r.std.Out, r.Output}
	if err := to.check(); err != nil {
		return err
	}
	client, err := r.client(r.journal)
	if err != nil {
		return err
	}
	request, err := r.which(ctx)
	if errors.Is(err, onceclient.ErrLocked) {
		return r.report(to, onceclient.Outcome{Intent: r.asked.Intent}, err)
	}
	if err != nil {
		return err
	}
	if r.asked.made {
		r.say("this operation is %s; if it is cut short, go on with: %s", request.Intent, r.again(request.Intent))
	}
	var outcome onceclient.Outcome
	err = r.whenFree(ctx, request.Intent, func() error {
		outcome, err = client.Do(ctx, request)
		return err
	})
	if outcome.Intent == "" && err != nil && ctx.Err() != nil {
		return r.interrupted(request.Intent)
	}
	return r.report(to, outcome, err)
}

// interrupted is a run that was ended before it had begun. One before may have sent
// something, if there can be one.
func (r *callRun) interrupted(intent string) error {
	code := exitUnknown
	if r.asked.made {
		code = exitUnsent
	}
	return &callError{"interrupted; this run has sent nothing", "run it again, or go on with what was begun before: " + r.again(intent), code}
}

// which is the operation that is meant: the command line's, or one of the journal's.
func (r *callRun) which(ctx context.Context) (onceclient.Request, error) {
	if r.URL != "" && r.asked.Key == "" {
		return r.asked.Request, nil
	}
	entry, err := r.recall(ctx, r.asked.Intent)
	missing := errors.Is(err, onceclient.ErrNoEntry)
	switch {
	case r.URL != "" && missing:
		return r.asked.Request, nil
	case missing:
		return onceclient.Request{}, misuse("the journal has no operation "+strconv.Quote(r.asked.Intent), "say the URL and the data to begin it; onlyonce call --list shows what is open")
	case err != nil:
		return onceclient.Request{}, err
	case r.URL == "":
		r.asked.origin = onceclient.Origin(entry.Target)
		return requestOf(entry), nil
	case entry.Key != r.asked.Key:
		return onceclient.Request{}, misuse(fmt.Sprintf("the key of %s is %q, and stays so", entry.Intent, entry.Key), "leave --key out to go on with it, or name another operation by another --intent")
	}
	return r.asked.Request, nil
}

// lockEvery is how often a run that waits for another one looks.
const lockEvery = 200 * time.Millisecond

// recall reads an operation that was begun before, when nobody works on it.
func (r *callRun) recall(ctx context.Context, intent string) (entry onceclient.Entry, err error) {
	err = r.whenFree(ctx, intent, func() error {
		entry, err = r.read(ctx, intent)
		return err
	})
	return entry, err
}

// read reads an entry as it stands, unless somebody works on it.
func (r *callRun) read(ctx context.Context, intent string) (onceclient.Entry, error) {
	lock, entry, err := r.journal.Lock(ctx, intent)
	if err != nil {
		return entry, fmt.Errorf("read %s: %w", intent, err)
	}
	if err := lock.Unlock(); err != nil {
		return entry, fmt.Errorf("unlock %s: %w", intent, err)
	}
	return entry, nil
}

// whenFree does something with an operation. While another process works on it, it
// waits, for as long as it would try itself.
func (r *callRun) whenFree(ctx context.Context, intent string, do func() error) error {
	err := do()
	if !errors.Is(err, onceclient.ErrLocked) {
		return err
	}
	r.say("another process is working on %s, or was just killed: waiting", intent)
	patience := time.NewTimer(r.Timeout)
	defer patience.Stop()
	look := time.NewTicker(lockEvery)
	defer look.Stop()
	for errors.Is(err, onceclient.ErrLocked) {
		select {
		case <-ctx.Done():
			return err
		case <-patience.C:
			return err
		case <-look.C:
			err = do()
		}
	}
	return err
}

// requestOf asks again for what an entry has.
func requestOf(entry onceclient.Entry) onceclient.Request {
	return onceclient.Request{
		Intent: entry.Intent, Key: entry.Key, Method: entry.Method, URL: entry.Target, Header: entry.Header, Body: entry.Body,
	}
}

// say tells whoever watches how it goes.
func (r *callRun) say(format string, args ...any) {
	if !r.Silent {
		fmt.Fprintf(r.std.Err, "onlyonce: %s\n", r.std.safe(oneLine(fmt.Sprintf(format, args...))))
	}
}

// oneLine is a text of several errors in one line, in the words of the command line.
func oneLine(text string) string {
	return strings.NewReplacer("\n", "; ", "Config.Retention", "--retention", "Config.MaxAnswer", "--max-answer").Replace(text)
}

// observe tells of attempts that were not the end.
func (r *callRun) observe(_ context.Context, e onceclient.Event) {
	if e.Kind != onceclient.EventWaiting {
		return
	}
	why := "no answer"
	switch {
	case e.Status != 0:
		why = statusText(e.Status)
	case e.Err != nil:
		why = e.Err.Error()
	}
	of := ""
	if r.Resume {
		of = e.Intent + ": "
	}
	r.say("%sattempt %d: %s; attempt %d follows in %s", of, e.Attempt, why, e.Attempt+1, waitText(e.Wait))
}

// waitText is a wait for people.
func waitText(d time.Duration) string {
	if d < time.Second {
		return max(d.Round(10*time.Millisecond), 10*time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// again is the command that goes on with an operation. Credentials are not in it.
func (r *callRun) again(intent string) string {
	words := []string{"onlyonce", "call"}
	if intent == "" {
		words = append(words, "--resume")
	} else {
		words = append(words, "--intent", quoted(intent))
	}
	words = append(words, r.surroundings()...)
	return strings.Join(words, " ")
}

// surroundings are the flags that a run needs besides what the journal has.
func (r *callRun) surroundings() (words []string) {
	for _, flag := range []struct{ name, value, plain string }{
		{"--journal", absolute(r.Journal), ""},
		{"--key-header", r.KeyHeader, "Idempotency-Key"},
		{"--cacert", absolute(r.CACert), ""},
		{"--cert", absolute(r.Cert), ""},
	} {
		if flag.value != flag.plain {
			words = append(words, flag.name, quoted(flag.value))
		}
	}
	for _, header := range r.Header {
		name, _, _ := strings.Cut(header, ":")
		switch {
		case strings.HasPrefix(header, "@") && header != "@-":
			words = append(words, "-H", quoted("@"+absolute(header[1:])))
		case onceclient.IsCredential(name) && !strings.EqualFold(name, r.KeyHeader):
			words = append(words, "-H", quoted(name+": …"))
		}
	}
	if r.User != "" {
		user, _, _ := strings.Cut(r.User, ":")
		words = append(words, "-u", quoted(user+":…"))
	}
	return words
}

// quoted is a word as a shell reads it.
func quoted(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("@%_+=:,./-", c)
	}
	if word != "" && strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
