package oncehttp_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// T5, P2: a client can read for how long it may retry, and what each problem means.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	s := newService(t, oncehttp.KeyHeaders("X-Request-Id"), oncehttp.DocsURL("https://docs.example.com/"))
	s.mux.Handle("GET /.well-known/idempotency", s.guard.DiscoveryHandler())
	s.wrap("POST /refunds", oncehttp.Route{Op: onlyonce.Op{Name: "POST /refunds", Retention: 30 * 24 * time.Hour, MaxWait: 90 * time.Second}}, created)
	s.wrap("PUT /items/{id}", oncehttp.Route{Op: onlyonce.Op{Name: "PUT /items/{id}"}, Key: oncehttp.Optional, KeyPointer: "/request_id"}, created)
	s.wrap("POST /unnamed", oncehttp.Route{}, created)
	s.start(false)
	got := s.do(ask{method: http.MethodGet, path: "/.well-known/idempotency", as: "-"})
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v", got.status, got.header)
	}
	var doc struct {
		Header, Docs string
		Carriers     []string
		Operations   []map[string]any
		Problems     []struct {
			Type, Error string
			Status      int
			RetryWith   string `json:"retry_with"`
		}
	}
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{
		{"operation": "POST /refunds", "key": "required", "methods": []any{"POST", "PATCH"}, "retention": "P30D", "max_wait": "PT1M30S"},
		{"operation": "PUT /items/{id}", "key": "optional", "methods": []any{"POST", "PATCH", "PUT"}, "key_pointer": "/request_id", "retention": "P1D"},
	}
	if diff := cmp.Diff(want, doc.Operations); diff != "" {
		t.Error(diff)
	}
	if doc.Header != "Idempotency-Key" || doc.Docs != "https://docs.example.com/" || !cmp.Equal(doc.Carriers, []string{"X-Request-Id"}) {
		t.Errorf("%+v", doc)
	}
	for _, p := range doc.Problems {
		if p.Error == "request_in_progress" {
			if p.Type != "https://docs.example.com/request_in_progress" || p.Status != 409 || p.RetryWith != "same_key" {
				t.Errorf("%+v", p)
			}
			return
		}
	}
	t.Error("request_in_progress is not explained")
}
