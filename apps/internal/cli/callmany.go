package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// pendingPage is how many open operations are looked up at a time.
const pendingPage = 100

// eachOpen has fn look at every open operation, oldest first; locked tells of one
// that another process works on, or has until just now. What cannot be read keeps
// nobody from the others: the error comes at the end.
func (r *callRun) eachOpen(ctx context.Context, fn func(entry onceclient.Entry, locked bool)) error {
	var faults []error
	for after := ""; ; {
		intents, err := r.journal.Pending(ctx, after, pendingPage)
		if err != nil {
			faults = append(faults, fmt.Errorf("read the journal: %w", err))
		}
		for _, intent := range intents {
			entry, err := r.read(ctx, intent)
			locked := errors.Is(err, onceclient.ErrLocked)
			switch {
			case locked:
				fn(onceclient.Entry{Intent: intent}, true)
			case errors.Is(err, onceclient.ErrNoEntry):
			case err != nil:
				faults = append(faults, err)
			case entry.State == onceclient.Open && (r.asked.origin == "" || onceclient.Origin(entry.Target) == r.asked.origin):
				fn(entry, false)
			}
		}
		if err != nil || len(intents) < pendingPage {
			return errors.Join(faults...)
		}
		after = intents[len(intents)-1]
	}
}

// openView is an open operation as it is printed.
type openView struct {
	Intent   string     `json:"intent"`
	Key      string     `json:"key,omitempty"`
	Method   string     `json:"method,omitempty"`
	URL      string     `json:"url,omitempty"`
	Created  *time.Time `json:"created,omitempty"`
	Attempts int        `json:"attempts"`
	Note     string     `json:"note,omitempty"`
	Busy     bool       `json:"busy"` // another process is working on it
	Again    string     `json:"again"`
}

// list prints what is open.
func (r *callRun) list(ctx context.Context) error {
	views := []openView{}
	err := r.eachOpen(ctx, func(e onceclient.Entry, locked bool) {
		v := openView{
			Intent: e.Intent, Key: e.Key, Method: e.Method, URL: e.Target, Attempts: e.Attempts, Note: r.std.safe(e.Note),
			Busy: locked, Again: r.again(e.Intent),
		}
		if !locked {
			v.Created = &e.CreatedAt
		}
		views = append(views, v)
	})
	if r.JSON {
		return errors.Join(err, printJSON(r.std.Out, views))
	}
	r.table(views)
	return err
}

func (r *callRun) table(views []openView) {
	if len(views) == 0 {
		r.say("nothing is open")
		return
	}
	w := tabwriter.NewWriter(r.std.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "INTENT\tKEY\tREQUEST\tAGE\tATTEMPTS\tNOTE")
	for _, v := range views {
		if v.Busy {
			fmt.Fprintf(w, "%s\t\t\t\t\tanother process is working on it\n", v.Intent)
			continue
		}
		age := r.now().Sub(*v.Created).Round(time.Second)
		fmt.Fprintf(w, "%s\t%s\t%s %s\t%s\t%d\t%s\n", v.Intent, v.Key, v.Method, v.URL, age, v.Attempts, v.Note)
	}
	_ = w.Flush() // to a person
}

// chosen is a journal of which some operations are to be gone on with.
type chosen struct {
	onceclient.Journal

	intents []string
}

// Pending lists them, in one page.
func (c chosen) Pending(_ context.Context, after string, _ int) ([]string, error) {
	if after != "" {
		return nil, nil
	}
	return c.intents, nil
}

// resume goes on with what is open, and prints what became of each.
func (r *callRun) resume(ctx context.Context) error {
	open := chosen{Journal: r.journal}
	sum := resumed{counts: map[string]int{}, views: []callView{}}
	failed := r.eachOpen(ctx, func(e onceclient.Entry, locked bool) {
		if locked {
			r.say("another process is working on %s, or was just killed: it is left alone", e.Intent)
			sum.add(outcomeUnknown, exitUnknown)
			return
		}
		open.intents = append(open.intents, e.Intent)
	})
	client, err := r.client(open)
	if err != nil {
		return err
	}
	err = client.Resume(ctx, func(out onceclient.Outcome, err error) {
		v := r.view(out, err)
		sum.add(judged(err))
		if sum.views = append(sum.views, v); !r.JSON {
			v.print(r.std.Out)
		}
	})
	if failed = errors.Join(failed, err); r.JSON {
		failed = errors.Join(failed, printJSON(r.std.Out, sum.views))
	}
	if failed != nil {
		return &callError{oneLine(failed.Error()) + "; " + sum.String(), "go on with: " + r.again(""), exitUnknown}
	}
	return sum.conclude(r)
}

// resumed is what became of several operations.
type resumed struct {
	counts map[string]int
	worst  int
	views  []callView
}

// add counts one. The worst is what is not known; then come not sent, and refused.
func (s *resumed) add(outcome string, code int) {
	s.counts[outcome]++
	bad := []int{exitDone, exitWrong, exitUsage, exitUnsent, exitUnknown}
	if slices.Index(bad, code) > slices.Index(bad, s.worst) {
		s.worst = code
	}
}

// String counts them.
func (s *resumed) String() string {
	return fmt.Sprintf("%d answered, %d refused, %d not sent, %d unknown", s.counts[outcomeAnswered], s.counts[outcomeRefused], s.counts[outcomeUnsent], s.counts[outcomeUnknown])
}

func (s *resumed) conclude(r *callRun) error {
	switch s.worst {
	case exitDone:
		r.say("%d answered, nothing is open", s.counts[outcomeAnswered])
		return nil
	case exitUnknown:
		return &callError{s.String(), "ask again later: " + r.again(""), s.worst}
	default:
		return &callError{text: s.String(), code: s.worst}
	}
}

// print is one line on what became of an operation.
func (v callView) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s", v.Intent, v.Outcome)
	if v.Status != 0 && v.Error == "" {
		fmt.Fprintf(w, " %s", statusText(v.Status))
	}
	if v.Error != "" {
		fmt.Fprintf(w, ": %s", v.Error)
	}
	fmt.Fprintln(w)
}

// prune forgets old answers.
func (r *callRun) prune(ctx context.Context) error {
	client, err := r.client(r.journal)
	if err != nil {
		return err
	}
	n, err := client.Prune(ctx, time.Duration(r.Prune))
	switch {
	case onlyonce.CodeOf(err) == onlyonce.CodeConfig:
		return misuse("--prune is less than --retention: an intent that is done again would be a new operation", "keep answers for weeks: --prune 90d")
	case err != nil:
		return fmt.Errorf("%d forgotten: %w", n, err)
	case r.JSON:
		return printJSON(r.std.Out, map[string]int{"forgotten": n})
	}
	fmt.Fprintf(r.std.Out, "%d forgotten\n", n)
	return nil
}

// others reads what a command line about operations of the journal says besides:
// credentials, and whom they are for.
func (c *callCmd) others(in io.Reader) (r callRequest, err error) {
	r.Intent = c.Intent
	if c.URL != "" {
		if _, r.origin, err = c.target(); err != nil {
			return r, err
		}
	}
	if err := c.headers(&r, &stdinOnce{in: in}); err != nil {
		return r, err
	}
	switch {
	case len(r.Request.Header) > 0 || r.Key != "":
		return r, misuse("only credentials can be given to an operation that was begun", "its other headers are in the journal, and stay as they are: leave them out")
	case c.Resume && len(r.credentials) > 0 && r.origin == "":
		return r, misuse("credentials go to one host alone", "say which: onlyonce call --resume https://api.example.com -H …")
	}
	return r, nil
}

// authorize adds the credentials to an attempt, if it goes where they are for.
func (r *callRequest) authorize(_ context.Context, req *http.Request, again bool) error {
	if onceclient.Origin(req.URL.String()) != r.origin {
		return nil
	}
	if again {
		return errors.New("the server did not take those that were given")
	}
	for name, values := range r.credentials {
		req.Header[name] = append([]string(nil), values...)
	}
	return nil
}

// secrets are what no message may show.
func (r *callRequest) secrets(password string) []string {
	secrets := []string{password}
	for _, values := range r.credentials {
		for _, value := range values {
			secrets = append(secrets, value)
			if _, bare, found := strings.Cut(value, " "); found { // behind the name of a scheme
				secrets = append(secrets, bare)
			}
		}
	}
	return slices.DeleteFunc(secrets, func(s string) bool { return len(s) < shortSecret })
}
