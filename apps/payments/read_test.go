package payments_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
)

// What cannot be read is refused with the field's name and uses no key up; the
// corrected request may use the same one. (O1, B49)
func TestBadInputs(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.SQLite(t), options{})
	for _, tt := range []struct{ path, body, field string }{
		{"/charges", ``, "body"},
		{"/charges", `{`, "body"},
		{"/charges", `null`, "body"},
		{"/charges", `[]`, "body"},
		{"/charges", `"text"`, "body"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":"tok_visa"} {}`, "body"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":"tok_visa"}x`, "body"},
		{"/charges", `{"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":null,"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":"1500","currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":1500.0,"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":15.5,"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":1e3,"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":0,"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":-1500,"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":1000000000000,"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":99999999999999999999,"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":true,"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":{},"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":1500,"amount":1500,"currency":"ARS","source":"tok_visa"}`, "amount"},
		{"/charges", `{"amount":1500,"source":"tok_visa"}`, "currency"},
		{"/charges", `{"amount":1500,"currency":"ars","source":"tok_visa"}`, "currency"},
		{"/charges", `{"amount":1500,"currency":"XXX","source":"tok_visa"}`, "currency"},
		{"/charges", `{"amount":1500,"currency":32,"source":"tok_visa"}`, "currency"},
		{"/charges", `{"amount":1500,"currency":"ARS"}`, "source"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":""}`, "source"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":["tok_visa"]}`, "source"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":"a\u0000b"}`, "source"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":"tok_visa","descr":"x"}`, "descr"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":"tok_visa","description":null}`, "description"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":"tok_visa","metadata":[]}`, "metadata"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":"tok_visa","metadata":{"a":1}}`, "metadata/a"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":"tok_visa","metadata":{"a":"1","a":"2"}}`, "metadata/a"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":"tok_visa","description":"` + strings.Repeat("x", 1001) + `"}`, "description"},
		{"/charges", "{\"amount\":1500,\"currency\":\"ARS\",\"source\":\"\xff\"}", "source"},
		{"/charges", `{"amount":1500,"currency":"ARS","source":"\ud800"}`, "source"},
		{"/refunds", `{"amount":1}`, "charge"},
		{"/refunds", `{"charge":"ch_1"}`, "amount"},
		{"/refunds", `{"charge":"ch_1","amount":0}`, "amount"},
		{"/refunds", `{"charge":1,"amount":1}`, "charge"},
		{"/refunds", `{"charge":"ch_1","amount":1,"currency":"ARS"}`, "currency"},
		{"/orders", `{}`, "lines"},
		{"/orders", `{"lines":[]}`, "lines"},
		{"/orders", `{"lines":{}}`, "lines"},
		{"/orders", `{"lines":[1]}`, "lines/0"},
		{"/orders", `{"lines":[{"product":"p","quantity":0}]}`, "lines/0/quantity"},
		{"/orders", `{"lines":[{"product":"p","quantity":1,"price":1}]}`, "lines/0/price"},
		{"/orders", `{"lines":[{"product":"p","quantity":1},{"product":"p","quantity":1}]}`, "lines/1/product"},
	} {
		r := b.post(t, tt.path, "k1", tt.body)
		if r.status != 400 || r.text(t, "error") != "invalid_request" || r.text(t, "field") != tt.field {
			t.Errorf("%s %s: %d %s; want 400 with field %q", tt.path, tt.body, r.status, r.body, tt.field)
			continue
		}
		if got := r.header.Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("content type is %q", got)
		}
		if !strings.Contains(r.text(t, "detail"), tt.field) {
			t.Errorf("detail does not name the field: %s", r.body)
		}
	}
	b.post(t, "/charges", "k1", chargeBody(1500, "tok_visa")).want(t, 201, "")
	b.once(t, 1, 0)
}

func TestRefusedBeforeTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.SQLite(t), options{})
	r := b.call(t, http.MethodPost, "/charges", chargeBody(1500, "tok_visa"), "Idempotency-Key", "k1", "Content-Type", "text/plain")
	r.want(t, 415, "unsupported_media_type")
	large := `{"amount":1500,"currency":"ARS","source":"tok_visa","description":"` + strings.Repeat("x", 300<<10) + `"}`
	b.post(t, "/charges", "k1", large).want(t, 413, "request_body_too_large")
	b.call(t, http.MethodPut, "/orders/o1", large).want(t, 413, "request_body_too_large")
	b.post(t, "/charges", "k1", chargeBody(1500, "tok_visa")).want(t, 201, "")
	b.call(t, http.MethodDelete, "/charges", "").want(t, 405, "method_not_allowed")
	if got := b.call(t, http.MethodDelete, "/charges", "").header.Get("Allow"); got != "GET, POST" {
		t.Errorf("Allow is %q", got)
	}
	b.get(t, "/nothing").want(t, 404, "not_found")
	b.get(t, "/charges/ch_none").want(t, 404, "not_found")
	for _, id := range []string{"%00", "%ff", "ch_%00x"} { // what no database could hold is nothing, not a fault
		b.get(t, "/charges/"+id).want(t, 404, "not_found")
		b.get(t, "/orders/"+id).want(t, 404, "not_found")
	}
	b.get(t, "/healthz").want(t, 200, "")
	b.get(t, "/readyz").want(t, 200, "")
}

// Every problem's type leads to its documentation.
func TestProblemTypesResolve(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.SQLite(t), options{})
	for _, r := range []reply{
		b.get(t, "/nothing"),
		b.post(t, "/charges", "k1", chargeBody(1500, "tok_chargeDeclined")),
		b.call(t, http.MethodPost, "/charges", "{}"),
		b.post(t, "/charges", "k2", "{}"),
	} {
		page := b.get(t, r.text(t, "type"))
		if page.status != 200 || !strings.Contains(page.body, r.text(t, "title")) {
			t.Errorf("%s: %d %s", r.text(t, "type"), page.status, page.body)
		}
	}
	b.get(t, "/problems/none").want(t, 404, "not_found")
}

func TestLists(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			var want []string
			for _, key := range []string{"a", "b", "c", "d", "e"} {
				want = append([]string{b.charged(t, key, 100)}, want...)
			}
			var got []string
			path := "/charges?limit=2"
			for pages := 0; path != ""; pages++ {
				if pages > 3 {
					t.Fatal("the list does not end")
				}
				r := b.get(t, path).want(t, 200, "")
				list, _ := r.member(t, "data").([]any)
				for _, item := range list {
					object, _ := item.(map[string]any)
					id, _ := object["id"].(string)
					got = append(got, id)
				}
				path = ""
				if next, ok := r.member(t, "next_cursor").(string); ok {
					path = "/charges?limit=2&cursor=" + next
					b.get(t, "/refunds?cursor="+next).want(t, 400, "invalid_request")
				}
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("listed %v, want %v", got, want)
			}
			for query, field := range map[string]string{"limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "cursor=": "cursor", "cursor=abc": "cursor", "foo=1": "foo", "limit=1&limit=2": "limit"} {
				if r := b.get(t, "/charges?"+query).want(t, 400, "invalid_request"); r.text(t, "field") != field {
					t.Errorf("%s: %s", query, r.body)
				}
			}
			for _, path := range []string{"/refunds", "/orders"} {
				if r := b.get(t, path).want(t, 200, ""); r.body != `{"data":[],"next_cursor":null}` {
					t.Errorf("%s: %s", path, r.body)
				}
			}
		})
	}
}
