package tests_test

import (
	"encoding/json"
	"testing"
)

// transfer is one entry of the ledger's list.
type transfer struct {
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Entries []struct {
		Currency string `json:"currency"`
		Amount   int64  `json:"amount"`
	} `json:"entries"`
}

// judgeLedger: one transfer a charge, each and all summing to zero.
func (f *fleet) judgeLedger(t *testing.T, charges int) {
	t.Helper()
	subjects := map[string]int{}
	var sum int64
	for _, tr := range f.transfers(t) {
		var own int64
		for _, e := range tr.Entries {
			own += e.Amount
		}
		if own != 0 || len(tr.Entries) < 2 {
			t.Errorf("transfer %+v does not sum to zero", tr)
		}
		sum += own
		if tr.Kind == "charge" {
			subjects[tr.Subject]++
		}
	}
	if len(subjects) != charges || sum != 0 {
		t.Errorf("the ledger has %d charges and sums to %d, want %d and 0", len(subjects), sum, charges)
	}
	for s, n := range subjects {
		if n != 1 {
			t.Errorf("charge %s is in the ledger %d times", s, n)
		}
	}
}

// transfers pages through the whole ledger.
func (f *fleet) transfers(t *testing.T) []transfer {
	t.Helper()
	var all []transfer
	for cursor := ""; ; {
		url := f.servers[0].URL + "/ledger?limit=100"
		if cursor != "" {
			url += "&cursor=" + cursor
		}
		var page struct {
			Data []transfer `json:"data"`
			Next *string    `json:"next_cursor"`
		}
		f.fetch(t, url, &page)
		all = append(all, page.Data...)
		if page.Next == nil || *page.Next == "" {
			return all
		}
		cursor = *page.Next
	}
}

// countKeys reads what keys list --json printed.
func countKeys(t *testing.T, out string) int {
	t.Helper()
	var list struct {
		Keys []json.RawMessage `json:"keys"`
		More bool              `json:"more"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || list.More {
		t.Fatalf("keys list: more %v, %v: %s", list.More, err, out)
	}
	return len(list.Keys)
}
