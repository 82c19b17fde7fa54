package payments

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onlyonce-go/onlyonce"
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

// What an error of the processor proves of the send that it answers. (D3)
func TestJudge(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	final := `{"code":"unknown_source","message":"there is no such source"}`
	for name, tt := range map[string]struct {
		err             error
		refused, proved bool
	}{
		"unknown source":     {err: failure(t, 400, final), refused: true, proved: true},
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
			text, err := judge(result{}, tt.err)
			if proved := tookNothing(err); text != nil || proved != tt.proved {
				t.Errorf("proof of nothing is %t: %s, %v", proved, text, err)
			}
			a := asker{final: []string{processor.CodeUnknownSource}}
			if res, err := a.refusal(err); (err == nil && res.Refused == "unknown_source") != tt.refused {
				t.Errorf("it makes %+v, %v", res, err)
			}
			// What Call puts it in is doubt, whatever its cause.
			doubt := &onlyonce.Error{Code: onlyonce.CodeOutcomeUnknown, Err: err}
			if _, err := a.refusal(doubt); err == nil || tookNothing(doubt) {
				t.Errorf("a later send proves something: %v", err)
			}
		})
	}
}

func TestJudgeKeepsResults(t *testing.T) {
	t.Parallel()
	text, err := judge(result{ID: "pc_1", Declined: "card_declined"}, nil)
	if err != nil || string(text) != `{"id":"pc_1","declined":"card_declined"}` {
		t.Errorf("%s, %v", text, err)
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
