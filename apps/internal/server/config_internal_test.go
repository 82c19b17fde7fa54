package server

import (
	"errors"
	"testing"
	"time"
)

func TestJournalBeside(t *testing.T) {
	t.Parallel()
	for store, want := range map[string]string{
		"sqlite:onlyonce.db":       "onlyonce-processor.jsonl",
		"sqlite:/var/lib/pay.db":   "/var/lib/pay-processor.jsonl",
		"sqlite:./a.b/c":           "./a.b/c-processor.jsonl",
		"postgres://localhost/pay": "onlyonce-processor.jsonl",
	} {
		if got := journalBeside(store); got != want {
			t.Errorf("%s: %s, want %s", store, got, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.1.2.3": true, "::1": true, "localhost": true,
		"": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "example.com": false, "localhost.example.com": false,
	} {
		if got := loopback(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c := Config{}.WithDefaults()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.Listen != "127.0.0.1:3000" || c.Store != "sqlite:onlyonce.db" || c.ProcessorJournal != "onlyonce-processor.jsonl" {
		t.Errorf("defaults are %+v", c)
	}
	c.DrainTimeout = -time.Second
	e, ok := errors.AsType[*Error](c.Validate())
	if !ok || e.Field != "--drain-timeout" || e.Hint == "" {
		t.Errorf("a negative time gives %v", e)
	}
}
