package processor_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// killed copies the journal of a server that still runs, as kill -9 would leave
// it, cut to length bytes, and returns the copy's path.
func killed(t *testing.T, path string, length int) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(left, data[:min(length, len(data))], 0o600); err != nil {
		t.Fatal(err)
	}
	return left
}

const whole = 1 << 30

// TestRestart checks that everything answered, and every fault that struck, is
// remembered.
func TestRestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	first := setup(t, processor.Config{Path: path, Hang: time.Nanosecond})
	sources := processor.Sources()
	attempt := func(ctx context.Context, b *bundle) []outcome {
		var all []outcome
		for _, source := range sources {
			all = append(all, outcomeOf(b.client.Charge(ctx, "key-"+source, charge(source, "order-"+source).Encode())))
		}
		return all
	}
	attempt(t.Context(), first)
	paid, found, err := first.client.FindCharge(t.Context(), "order-tok_visa")
	if err != nil || !found {
		t.Fatalf("FindCharge = %t, %v", found, err)
	}
	refund := processor.RefundRequest{Charge: paid.ID, Amount: 1500}
	if _, err := first.client.Refund(t.Context(), "key-refund", refund.Encode()); err != nil {
		t.Fatal(err)
	}

	second := setup(t, processor.Config{Path: killed(t, path, whole), Hang: time.Nanosecond})
	if diff := cmp.Diff(first.server.Stats(), second.server.Stats()); diff != "" {
		t.Errorf("statistics after the restart (-before +after):\n%s", diff)
	}
	want := attempt(t.Context(), first)
	if diff := cmp.Diff(want, attempt(t.Context(), second)); diff != "" {
		t.Errorf("second attempts (-without +after a restart):\n%s", diff)
	}
	again, err := second.client.Charge(t.Context(), "key-tok_visa", charge("tok_visa", "order-tok_visa").Encode())
	paid.Replayed = true
	if diff := cmp.Diff(paid, again); diff != "" || err != nil {
		t.Errorf("replay after the restart, %v (-want +got):\n%s", err, diff)
	}
	if _, err := second.client.Refund(t.Context(), "key-refund-2", refund.Encode()); processor.FateOf(err) != processor.Refused {
		t.Errorf("a second refund of everything after the restart: %v, want refused", err)
	}
}

// TestTornTail cuts the journal at every byte: what was written whole is there,
// what was not is gone, and the server goes on from there.
func TestTornTail(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	b := setup(t, processor.Config{Path: path})
	for i := range 3 {
		mustCharge(t, b, fmt.Sprintf("key-%d", i), charge("tok_visa", "order-1"))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(t.TempDir(), "journal")
	for length := range len(data) + 1 {
		if err := os.WriteFile(left, data[:length], 0o600); err != nil {
			t.Fatal(err)
		}
		server, err := processor.NewServer(processor.Config{Path: left})
		if err != nil {
			t.Fatalf("cut at %d: %v", length, err)
		}
		want := bytes.Count(data[:length], []byte("\n"))
		if got := server.Stats().Charges; got != want {
			t.Errorf("cut at %d: %d charges, want %d", length, got, want)
		}
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}

	torn := killed(t, path, len(data)-1)
	second := setup(t, processor.Config{Path: torn})
	if got := mustCharge(t, second, "key-2", charge("tok_visa", "order-1")); got.Replayed {
		t.Error("a charge that was never answered is replayed")
	}
	third := setup(t, processor.Config{Path: killed(t, torn, whole)})
	if got := third.server.Stats().Charges; got != 3 {
		t.Errorf("%d charges after a torn line and another, want 3", got)
	}
}

func TestDamagedJournalIsRefused(t *testing.T) {
	t.Parallel()
	for name, journal := range map[string]string{
		"not JSON":                 "{}\nnonsense\n{}\n",
		"refund of nothing":        "{}\n" + `{"refund":{"id":"rf_1","charge":"pc_1","amount":1}}` + "\n",
		"zeros after a power loss": "{}\n\x00\x00\x00\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "journal")
			if err := os.WriteFile(path, []byte(journal), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := processor.NewServer(processor.Config{Path: path}); err == nil || !strings.Contains(err.Error(), "line 2") {
				t.Errorf("NewServer: %v, want an error that names line 2", err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != journal {
				t.Errorf("the damaged journal was changed to %q, %v", after, err)
			}
		})
	}
	if _, err := processor.NewServer(processor.Config{Path: t.TempDir()}); err == nil {
		t.Error("a folder was taken for a journal")
	}
}

// TestNothingIsAnsweredBeforeItIsWritten looks into the file as each of many
// concurrent answers arrives, and checks that a replay keeps their order.
func TestNothingIsAnsweredBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	b := setup(t, processor.Config{Path: path})
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			got, err := b.client.Charge(t.Context(), fmt.Sprintf("key-%d", i), charge("tok_visa", "").Encode())
			if err != nil {
				t.Error(err)
				return
			}
			if data, err := os.ReadFile(path); err != nil || !bytes.Contains(data, []byte(got.ID)) {
				t.Errorf("charge %s was answered and is not in the journal, %v", got.ID, err)
			}
		})
	}
	all.Wait()
	restarted := setup(t, processor.Config{Path: killed(t, path, whole)})
	before, _, err := b.client.ListCharges(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	after, _, err := restarted.client.ListCharges(t.Context(), "", 0)
	if diff := cmp.Diff(before, after); diff != "" || err != nil || len(after) != 64 {
		t.Errorf("%d charges after the restart, %v (-before +after):\n%s", len(after), err, diff)
	}
}

// TestClosedServerRefuses also stands for a disk that is full: what cannot be
// recorded is not answered as done.
func TestClosedServerRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t, processor.Config{Path: filepath.Join(t.TempDir(), "journal")})
	healthy := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.http.URL+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := b.client.HTTP.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	if got := healthy(); got != http.StatusOK {
		t.Errorf("healthz = %d", got)
	}
	for range 2 {
		if err := b.server.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got := outcomeOf(b.client.Charge(t.Context(), "key-1", charge("tok_visa", "order-1").Encode()))
	if diff := cmp.Diff(outcome{HTTP: 503, Code: processor.CodeUnavailable, Fate: "unknown"}, got); diff != "" {
		t.Errorf("charge (-want +got):\n%s", diff)
	}
	if got := healthy(); got != http.StatusServiceUnavailable {
		t.Errorf("healthz of a closed processor = %d", got)
	}
}
