package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/server"
)

func TestParseAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		want onlyonce.Answer
	}{
		"an object is a JSON body": {
			`{"status":201,"body":{"id": "ch_1"}}`,
			onlyonce.Answer{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: []byte(`{"id": "ch_1"}`)},
		},
		"a string is the body itself": {
			`{"status":200,"headers":{"content-type":"text/plain"},"body":"done\n"}`,
			onlyonce.Answer{Status: 200, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte("done\n")},
		},
		"headers may have several values": {
			`{"status":201,"headers":{"Link":["</a>","</b>"],"location":"/charges/1"},"body":[1]}`,
			onlyonce.Answer{Status: 201, Header: map[string][]string{"Link": {"</a>", "</b>"}, "Location": {"/charges/1"}, "Content-Type": {"application/json"}}, Body: []byte(`[1]`)},
		},
		"there need be no body": {
			`{"status":204}`,
			onlyonce.Answer{Status: 204, Header: map[string][]string{}, Body: []byte{}},
		},
		"an empty body is one": {
			`{"status":200,"body":""}`,
			onlyonce.Answer{Status: 200, Header: map[string][]string{}, Body: []byte{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseAnswer([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseAnswerRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                        "EOF",
		`{}`:                      "status 0",
		`{"status":199}`:          "status 199",
		`{"status":600}`:          "status 600",
		`{"status":"201"}`:        "cannot unmarshal",
		`{"status":201,"code":1}`: `unknown field "code"`,
		`{"status":201} {}`:       "more than one value",
		`{"status":201,"headers":{"Location":1}}`: "Location is neither",
		`[201]`: "cannot unmarshal",
	} {
		_, err := parseAnswer([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", text, err, want)
		}
	}
}

// asPayments reads a result as a store of the payments service gets it.
func asPayments(text string) (onlyonce.StepResult, error) {
	r, err := parseResult([]byte(text))
	if err == nil {
		r.Result, err = paymentsResult(r.Result)
	}
	return r, err
}

// Another program's result is the bytes that its code will be given. (X3)
func TestParseAnyResult(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a": [1.50]}`: `{"a": [1.50]}`, `7`: `7`, `null`: `null`, `"ch_1"`: `ch_1`, `"\"ch_1\""`: `"ch_1"`, `""`: ``,
	} {
		got, err := parseResult([]byte(`{"step":"charge","occurrence":2,"result":` + text + `}`))
		if err != nil || string(got.Result) != want || got.Result == nil || got.Occurrence != 2 {
			t.Errorf("%s gives %q, %v", text, got.Result, err)
		}
	}
}

// A step's result in the payments service is a provider's final word, and nothing
// else. (X3)
func TestParseResult(t *testing.T) {
	t.Parallel()
	got, err := asPayments(`{"step":"charge","occurrence":1,"result":{"id":"pc_1","status":"declined","code":"lost_card"}}`)
	want := onlyonce.StepResult{Name: "charge", Occurrence: 1, Result: []byte(`{"status":"declined","id":"pc_1","code":"lost_card"}`)}
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v: %s", err, cmp.Diff(want, got))
	}
	for text, want := range map[string]string{
		`{"step":"charge"}`:                                                            "has no result",
		`{"step":"","result":{}}`:                                                      "names no step",
		`{"step":"charge","occurrence":-1,"result":{}}`:                                "names no step",
		`{"step":1,"result":{}}`:                                                       "cannot unmarshal",
		`{"step":"charge","result":{}}`:                                                `status ""`,
		`{"step":"charge","result":"succeeded"}`:                                       "invalid character",
		`{"step":"charge","result":{"status":"refused","id":"pc_1"}}`:                  `status "refused"`,
		`{"step":"charge","result":{"status":"succeeded"}}`:                            "has no id",
		`{"step":"charge","result":{"status":"declined","id":"pc_1"}}`:                 "has no code",
		`{"step":"charge","result":{"status":"succeeded","id":"pc_1","Declined":"x"}}`: `unknown field "Declined"`,
		`{"step":"charge","result":{"status":"succeeded","id":"pc_1"},"status":201}`:   `unknown field "status"`,
		`{"step":"charge","result":{"status":"succeeded","id":"pc_1"}} {}`:             "more than one value",
	} {
		if _, err := asPayments(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", text, err, want)
		}
		if !isResult([]byte(text)) && !strings.HasSuffix(text, "{}") {
			t.Errorf("%s is not taken for a result", text)
		}
	}
	if isResult([]byte(`{"status":201,"body":{"step":"charge"}}`)) {
		t.Error("an answer is taken for a result")
	}
}

// What is said to be done about a key fits how it stands.
func TestNext(t *testing.T) {
	t.Parallel()
	charge := func(state onlyonce.StepState) []onlyonce.StepRecord {
		return []onlyonce.StepRecord{
			{Intent: onlyonce.Intent{Name: "reserve", Provider: onlyonce.ProviderStore}, State: onlyonce.StepDone},
			{Intent: onlyonce.Intent{Name: "charge", Provider: "processor", Reference: "oo_1", Occurrence: 1}, State: state},
		}
	}
	for name, tt := range map[string]struct {
		rec   onlyonce.Record
		steps []onlyonce.StepRecord
		kept  bool
		want  string // empty: nothing
	}{
		"completed":          {onlyonce.Record{State: onlyonce.Completed}, charge(onlyonce.StepDone), false, ""},
		"under way":          {onlyonce.Record{State: onlyonce.InProgress}, charge(onlyonce.StepBegun), true, ""},
		"free":               {onlyonce.Record{State: onlyonce.FailedRetryable}, charge(onlyonce.StepNotApplied), true, ""},
		"free behind a step": {onlyonce.Record{State: onlyonce.FailedRetryable}, charge(onlyonce.StepDone), true, "keys recover gives it another turn, or it is settled"},
		"free, unfinished":   {onlyonce.Record{State: onlyonce.FailedRetryable}, charge(onlyonce.StepBegun), true, `"occurrence": 1`},
		"a step has begun":   {onlyonce.Record{State: onlyonce.InDoubt}, charge(onlyonce.StepBegun), true, `"occurrence": 1`},
		"nothing is kept":    {onlyonce.Record{State: onlyonce.InDoubt}, charge(onlyonce.StepBegun), false, "a retry by its client"},
		"a step is done":     {onlyonce.Record{State: onlyonce.InDoubt}, charge(onlyonce.StepDone), true, "only the answer is missing"},
		"no steps":           {onlyonce.Record{State: onlyonce.InDoubt, Abandon: onlyonce.AbandonResume}, nil, false, "a retry by its client"},
		"no steps, wrapped":  {onlyonce.Record{State: onlyonce.InDoubt}, nil, false, "it must be settled"},
		"other steps":        {onlyonce.Record{State: onlyonce.InDoubt, Reason: onlyonce.ReasonChangedSteps + "x"}, charge(onlyonce.StepDone), true, "the version of the service"},
		"declared":           {onlyonce.Record{State: onlyonce.InDoubt, Reason: onlyonce.ReasonDeclared}, charge(onlyonce.StepDone), true, "log"},
	} {
		got := strings.Join(situation{tt.rec, tt.steps, tt.kept, true}.next(), "\n")
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// Every kind of failure has its exit code, and usage its hint.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		code int
		hint bool
	}{
		"nothing":         {nil, exitDone, false},
		"a fault":         {errors.New("broken"), exitWrong, false},
		"usage":           {&usageError{"wrong", "do it right"}, exitUsage, true},
		"a setting":       {fmt.Errorf("serve: %w", &server.Error{Field: "--listen", Text: "is taken", Hint: "choose another"}), exitUsage, true},
		"a store's URL":   {&onlyonce.Error{Code: onlyonce.CodeConfig, Hint: "store: unknown"}, exitUsage, false},
		"no such key":     {&onlyonce.Error{Code: onlyonce.CodeNotFound}, exitWrong, false},
		"store down":      {&onlyonce.Error{Code: onlyonce.CodeStoreUnavailable}, exitWrong, false},
		"lost reply":      {fmt.Errorf("settle: %w", onlyonce.ErrUncertain), exitUnknown, false},
		"lost the key":    {onlyonce.ErrLeaseLost, exitUnknown, false},
		"outcome unknown": {onlyonce.ErrOutcomeUnknown, exitUnknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var errs bytes.Buffer
			if code := (Streams{Err: &errs}).fail(tt.err); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if strings.Contains(errs.String(), "hint: ") != tt.hint {
				t.Errorf("it says %q; hint wanted: %t", errs.String(), tt.hint)
			}
			if (errs.Len() > 0) != (tt.err != nil) {
				t.Errorf("it says %q", errs.String())
			}
		})
	}
}

// run runs a command line in this process.
func run(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = Run(context.WithoutCancel(t.Context()), args, Streams{In: strings.NewReader(""), Out: &o, Err: &e})
	return o.String(), e.String(), code
}

// Every command explains itself, and every flag in its help has a variable
// unless it is only for one call.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"serve", "processor", "keys list", "keys show", "keys settle", "keys recover", "sweep", "merchants key", "migrate up", "migrate print", "version",
	} {
		out, errs, code := run(t, append(strings.Fields(command), "--help")...)
		if code != 0 || errs != "" || !strings.Contains(out, "Usage: onlyonce "+command) {
			t.Errorf("%s --help: %d %s %s", command, code, out, errs)
		}
		for _, flag := range []string{"--listen", "--store", "--config", "--processor-timeout", "--lease"} {
			_, after, ok := strings.Cut(out, flag+"=")
			variable := "ONLYONCE_" + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(flag, "--"), "-", "_"))
			if ok && !strings.Contains(strings.Join(strings.Fields(after), " "), "$"+variable) {
				t.Errorf("%s: %s has no %s", command, flag, variable)
			}
		}
	}
}

func TestExpand(t *testing.T) {
	t.Setenv("ONLYONCE_TEST_NAME", "value")
	for text, want := range map[string]string{
		"plain":                     "plain",
		"a ${ONLYONCE_TEST_NAME} b": "a value b",
		"$ONLYONCE_TEST_NAME":       "$ONLYONCE_TEST_NAME",
		"${ONLYONCE_TEST_NAME}${ONLYONCE_TEST_NAME}": "valuevalue",
		"$${}": "$${}",
	} {
		if got, err := expand(text); err != nil || got != want {
			t.Errorf("%s becomes %s, %v; want %s", text, got, err, want)
		}
	}
	if _, err := expand("${ONLYONCE_TEST_ABSENT}"); err == nil || !strings.Contains(err.Error(), "ONLYONCE_TEST_ABSENT") {
		t.Errorf("an unset variable gives %v", err)
	}
}
