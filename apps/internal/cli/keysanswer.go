package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/provider"
)

// answerFile is the answer an operator gives. A body that is a JSON string is
// the text itself, any other JSON is the body as it stands.
type answerFile struct {
	Status  int                        `json:"status"`
	Headers map[string]json.RawMessage `json:"headers"`
	Body    json.RawMessage            `json:"body"`
}

const answerHint = `write it like {"status": 201, "headers": {"Content-Type": "application/json"}, "body": {"id": "ch_…"}}`

func readInput(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

func parseAnswer(text []byte) (onlyonce.Answer, error) {
	var file answerFile
	if err := decodeStrictly(text, &file); err != nil {
		return onlyonce.Answer{}, fmt.Errorf("read answer: %w", err)
	}
	if file.Status < 200 || file.Status > 599 {
		return onlyonce.Answer{}, fmt.Errorf("read answer: status %d is not one from 200 to 599", file.Status)
	}
	header := http.Header{}
	for name, raw := range file.Headers {
		var one string
		var many []string
		switch {
		case json.Unmarshal(raw, &one) == nil:
			header.Set(name, one)
		case json.Unmarshal(raw, &many) == nil:
			header[http.CanonicalHeaderKey(name)] = many
		default:
			return onlyonce.Answer{}, fmt.Errorf("read answer: header %s is neither a string nor a list of strings", name)
		}
	}
	body := append([]byte{}, file.Body...) // empty is not absent
	var plain string
	if json.Unmarshal(file.Body, &plain) == nil {
		body = []byte(plain)
	} else if header.Get("Content-Type") == "" && len(body) > 0 {
		header.Set("Content-Type", "application/json")
	}
	return onlyonce.Answer{Status: file.Status, Header: header, Body: body}, nil
}

// decodeStrictly reads one JSON value without unknown members.
func decodeStrictly(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one value")
	}
	return nil
}

// resultFile is the result of a step that an operator has seen at the provider.
type resultFile struct {
	Step       string          `json:"step"`
	Occurrence int             `json:"occurrence"`
	Result     json.RawMessage `json:"result"`
}

const resultHint = `write it like {"step": "charge", "result": {"status": "succeeded", "id": "pc_…"}}; status is succeeded or declined`

// isResult tells a step's result from an answer, which names no step.
func isResult(text []byte) bool {
	var probe struct {
		Step json.RawMessage `json:"step"`
	}
	return json.Unmarshal(text, &probe) == nil && probe.Step != nil
}

// parseResult reads a step's result. A result that is a JSON string is the text itself,
// any other JSON is the result as it stands.
func parseResult(text []byte) (onlyonce.StepResult, error) {
	var file resultFile
	if err := decodeStrictly(text, &file); err != nil {
		return onlyonce.StepResult{}, fmt.Errorf("read result: %w", err)
	}
	switch {
	case file.Step == "" || file.Occurrence < 0:
		return onlyonce.StepResult{}, errors.New("read result: it names no step")
	case len(file.Result) == 0:
		return onlyonce.StepResult{}, errors.New("read result: it has no result")
	}
	result := append([]byte{}, file.Result...)
	var plain string
	if json.Unmarshal(file.Result, &plain) == nil && file.Result[0] == '"' {
		result = []byte(plain)
	}
	return onlyonce.StepResult{Name: file.Step, Occurrence: file.Occurrence, Result: result}, nil
}

// paymentsResult is a result as the payments service records it: a provider's final
// outcome, and no other JSON, since the service writes what it says into its books.
func paymentsResult(result []byte) ([]byte, error) {
	var out provider.Outcome
	if err := decodeStrictly(result, &out); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	switch {
	case out.Status != provider.Succeeded && out.Status != provider.Declined:
		return nil, fmt.Errorf("read result: status %q is neither succeeded nor declined", out.Status)
	case out.ID == "":
		return nil, errors.New("read result: it has no id, under which the provider knows it")
	case out.Status == provider.Declined && out.Code == "":
		return nil, errors.New("read result: it is declined and has no code that says why")
	}
	canonical, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	return canonical, nil
}

// checkAmount refuses a result that is of another amount than its step asked for,
// where both say one.
func checkAmount(steps []onlyonce.StepRecord, r onlyonce.StepResult) error {
	i := slices.IndexFunc(steps, func(s onlyonce.StepRecord) bool { return s.Name == r.Name && s.Occurrence == r.Occurrence })
	if i < 0 {
		return nil // settling says so
	}
	var asked, got struct {
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
	}
	if json.Unmarshal(steps[i].Request, &asked) != nil || json.Unmarshal(r.Result, &got) != nil {
		return nil
	}
	if (asked.Amount != 0 && got.Amount != 0 && asked.Amount != got.Amount) ||
		(asked.Currency != "" && got.Currency != "" && asked.Currency != got.Currency) {
		return fmt.Errorf("the step asked for %d %s, the result says %d %s", asked.Amount, asked.Currency, got.Amount, got.Currency)
	}
	return nil
}
