package payments

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// FuzzReadCharge holds what is accepted against what it must be: JSON that the
// standard library reads as the same values, within the limits.
func FuzzReadCharge(f *testing.F) {
	for _, seed := range []string{
		`{"amount":1500,"currency":"ARS","source":"tok_visa"}`,
		`{"amount":1,"currency":"JPY","source":"x","description":"é","metadata":{"a":"b"},"order":"o"}`,
		`{"amount":-0,"currency":"ARS","source":"tok_visa"}`,
		`{"amount":1e3}`, `{"amount":1,"amount":2}`, `{}{}`, `[]`, `nul`, "\xff", `{"\u0061mount":5,"currency":"ARS","source":"s"}`,
		`{"metadata":{"a":"1","a":"2"}}`, `{"amount":9223372036854775808}`, ` {"amount" : 1 , "currency":"ARS","source":"s"} `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/charges", bytes.NewReader(body))
		in, err := readCharge(r, body)
		if err != nil {
			return
		}
		var want struct {
			Amount      int64
			Currency    string
			Source      string
			Description string
			Metadata    map[string]string
			Order       string
		}
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("%q was accepted: %v", body, err)
		}
		if in.Amount != want.Amount || string(in.Currency) != want.Currency || in.Source != want.Source ||
			in.Description != want.Description || in.Order != want.Order || len(in.Metadata) != len(want.Metadata) {
			t.Fatalf("%q was read as %+v, is %+v", body, in, want)
		}
		if in.Amount < 1 || in.Amount > processor.MaxAmount || in.Source == "" {
			t.Fatalf("%q was accepted: %+v", body, in)
		}
	})
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	for kind, ok := range map[string]bool{
		"":                                  true,
		"application/json":                  true,
		"Application/JSON; charset=UTF-8":   true,
		"application/vnd.acme+json":         true,
		"application/json; charset=latin1":  false,
		"text/plain":                        false,
		"application/x-www-form-urlencoded": false,
		"application/jsonp":                 false,
		"nonsense;;":                        false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/charges", nil)
		r.Header.Set("Content-Type", kind)
		_, fault := readBody(r, []byte(`{}`))
		if (fault == nil) != ok {
			t.Errorf("%q: %v", kind, fault)
		}
		if fault != nil && fault.Status != http.StatusUnsupportedMediaType {
			t.Errorf("%q: status %d", kind, fault.Status)
		}
	}
}

// The first thing that is wrong is named, and only that.
func TestFirstFault(t *testing.T) {
	t.Parallel()
	o, fault := readObject("", []byte(`{"amount":"x","currency":"nope","more":1}`))
	if fault != nil {
		t.Fatal(fault)
	}
	o.amount()
	o.currency()
	err := o.done()
	if err == nil || !strings.Contains(err.Error(), "amount") || strings.Contains(err.Error(), "currency") {
		t.Errorf("the fault is %v", err)
	}
}

func TestCursor(t *testing.T) {
	t.Parallel()
	for _, seq := range []int64{1, 2, 1 << 40, 1<<63 - 1} {
		cursor := writeCursor("charges", seq)
		if got, ok := readCursor("charges", cursor); !ok || got != seq {
			t.Errorf("%d becomes %d, %t", seq, got, ok)
		}
		if strings.Contains(cursor, "charges") {
			t.Errorf("the cursor %s can be read", cursor)
		}
		if _, ok := readCursor("refunds", cursor); ok {
			t.Error("a cursor fits another list")
		}
	}
	for _, cursor := range []string{"", "!", "Y2hhcmdlcw", writeCursor("charges", 0), writeCursor("charges", -1), writeCursor("charges", 1) + "A"} {
		if seq, ok := readCursor("charges", cursor); ok {
			t.Errorf("%q was read as %d", cursor, seq)
		}
	}
}

func TestNewIDsSortByTime(t *testing.T) {
	t.Parallel()
	last := ""
	for range 1000 {
		id := newID("ch_")
		if id <= last || len(id) != 35 {
			t.Fatalf("%s comes after %s", id, last)
		}
		last = id
	}
}

// Every kind of problem has its texts, and its own code.
func TestKinds(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range kinds() {
		if seen[k.code] || k.title == "" || k.text == "" || k.with == "" || k.status < 400 {
			t.Errorf("kind %+v", k)
		}
		seen[k.code] = true
		if p := problem(k.code, "detail"); p.Type != problemPath+k.code || p.Status != k.status {
			t.Errorf("problem %+v", p)
		}
	}
}
