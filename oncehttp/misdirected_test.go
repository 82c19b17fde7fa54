package oncehttp_test

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

func elsewhere(home, address string) error {
	return &onlyonce.Error{
		Code: onlyonce.CodeMisdirected, Op: "find the key's home", Home: home, Address: address, Operation: "op_1",
		Hint: "the key lives in another region; nothing was run: send the same request there, with the same key",
	}
}

// A request that reaches the wrong region is told where its key lives, in the body and
// in a header; nothing is run and nothing is stored, so that the key works at home, and
// here once it has come.
func TestMisdirected(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("/charges", oncehttp.Route{}, created)
	for _, tt := range []struct{ home, address, header string }{
		{"eu-2", "https://eu-2.example.com", `"eu-2";address="https://eu-2.example.com"`},
		{"eu-2", "", `"eu-2"`},
		{"", "", ""},
		{"eü", "", ""}, // what no header may hold is left out
	} {
		s.store.fail(elsewhere(tt.home, tt.address), nil, elsewhere(tt.home, tt.address))
		got := s.do(ask{keys: key("k1")}).expect(t, 421, "refused")
		m := got.problem(t, 421, "misdirected_request")
		if m["home"] != tt.home || (m["address"] != nil) != (tt.address != "") || (tt.address != "" && m["address"] != tt.address) {
			t.Errorf("members %v", m)
		}
		if m["retryable"] != true || m["retry_with"] != "same_key" || got.header.Get("X-Should-Retry") != "true" || got.header.Get("Retry-After") != "1" {
			t.Errorf("%v %v", m, got.header)
		}
		if h := got.header.Get("Idempotency-Home"); h != tt.header {
			t.Errorf("Idempotency-Home is %q, want %q", h, tt.header)
		}
		if got.header.Get("Location") != "" || got.header.Get("Cache-Control") != "no-store" || got.header.Get("Idempotency-Key") != `k1` {
			t.Errorf("%v", got.header)
		}
	}
	s.ran(0)
	s.store.heal()
	s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	s.ran(1)
	s.do(ask{keys: key("k1")}).expect(t, 201, "replayed")
}

// X4: a lookup in the wrong region says so, and not that there is no such key.
func TestMisdirectedLookup(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.mux.Handle("GET /idempotency-keys/{key}", s.guard.LookupHandler(nil))
	s.store.fail(nil, nil, elsewhere("eu-2", "https://eu-2.example.com"))
	got := s.lookUp("k1")
	if m := got.problem(t, 421, "misdirected_request"); m["home"] != "eu-2" || got.header.Get("Idempotency-Home") == "" {
		t.Errorf("%v %v", m, got.header)
	}
}

// Only the server says where a key lives: a handler's own header of the name is not
// sent, nor is what it stores (rules K7, O8); and the problem has its page.
func TestHomeIsNotTheHandlersToSay(t *testing.T) {
	t.Parallel()
	s := newService(t)
	if _, err := s.guard.Wrap(oncehttp.Route{KeepHeaders: []string{"Idempotency-Home"}}, nil); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("the header may be kept: %v", err)
	}
	s.mux.Handle("/docs/", s.guard.DocsHandler())
	got := s.do(ask{method: "GET", path: "/docs/misdirected_request"})
	if got.status != 200 || !strings.Contains(got.body, "Status 421") || !strings.Contains(got.body, "same_key") {
		t.Errorf("%d %s", got.status, got.body)
	}
}
