package payments

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// failure is a real error of the client, made by a server that answers so.
func failure(t *testing.T, status int, body string) error {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return charge1(t, server.URL)
}

func charge1(t *testing.T, url string) error {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &processor.Client{BaseURL: url, HTTP: &http.Client{Transport: transport}}
	_, err := client.Charge(t.Context(), "k", processor.ChargeRequest{Amount: 1, Currency: "ARS", Source: "tok_visa"}.Encode())
	if err == nil {
		t.Fatal("the charge succeeded")
	}
	return err
}

// What an error of the processor proves, on the first send of a key and on a
// later one. (D3, D4)
func TestJudge(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	final := `{"code":"unknown_source","message":"there is no such source"}`
	for name, tt := range map[string]struct {
		err             error
		refused, proved bool
	}{
		"unknown source":     {err: failure(t, 400, final), refused: true},
		"another 400":        {err: failure(t, 400, `{"code":"invalid_request"}`), proved: true},
		"rate limited":       {err: failure(t, 429, `{"code":"rate_limited"}`), proved: true},
		"unauthorized":       {err: failure(t, 401, `{}`), proved: true},
		"no connection":      {err: charge1(t, gone.URL), proved: true},
		"in progress":        {err: failure(t, 409, `{"code":"in_progress"}`)},
		"500":                {err: failure(t, 500, `{"code":"internal_error"}`)},
		"504":                {err: failure(t, 504, `gateway`)},
		"201 that says less": {err: failure(t, 201, `{}`)},
		"an error of ours":   {err: errors.New("something")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := asker{final: []string{processor.CodeUnknownSource}}
			text, err := a.judge(result{}, tt.err, false)
			if refused := err == nil && strings.Contains(string(text), "unknown_source"); refused != tt.refused {
				t.Errorf("refused is %t: %s, %v", refused, text, err)
			}
			if proved := errors.Is(err, errNotApplied); proved != tt.proved {
				t.Errorf("proof of nothing is %t: %v", proved, err)
			}
			text, err = a.judge(result{}, tt.err, true)
			if text != nil || err == nil || errors.Is(err, errNotApplied) {
				t.Errorf("a later send proves something: %s, %v", text, err)
			}
		})
	}
}

func TestJudgeKeepsResults(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		text, err := asker{}.judge(result{ID: "pc_1", Declined: "card_declined"}, nil, again)
		if err != nil || string(text) != `{"id":"pc_1","declined":"card_declined"}` {
			t.Errorf("%s, %v", text, err)
		}
	}
}

// What is found under our reference, and is not what we sent, proves nothing.
func TestFindRefusesAnotherAmount(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data":[{"id":"pc_1","status":"succeeded","amount":1500,"currency":"ARS","charge":"pc_0"}]}`))
	}))
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s := &Service{cfg: Config{Processor: &processor.Client{BaseURL: server.URL, HTTP: &http.Client{Transport: transport}}}}
	find := func(a asker) error {
		_, _, err := a.find(context.WithoutCancel(t.Context()), "oo_1")
		return err
	}
	if err := find(s.chargeAsker(chargeInput{Amount: 1500, Currency: "ARS"})); err != nil {
		t.Error(err)
	}
	if err := find(s.chargeAsker(chargeInput{Amount: 1501, Currency: "ARS"})); !errors.Is(err, errDiffers) {
		t.Errorf("another amount gives %v", err)
	}
	if err := find(s.chargeAsker(chargeInput{Amount: 1500, Currency: "EUR"})); !errors.Is(err, errDiffers) {
		t.Errorf("another currency gives %v", err)
	}
	if err := find(s.refundAsker(refundInput{Amount: 1})); !errors.Is(err, errDiffers) {
		t.Errorf("another refund gives %v", err)
	}
}
