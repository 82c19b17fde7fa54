package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/server"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/provider"
)

func TestMain(m *testing.M) { apptest.Exit(m.Run()) }

func config(t *testing.T) server.Config {
	t.Helper()
	return server.Config{
		Listen: "127.0.0.1:0", Store: apptest.SQLite(t),
		ProcessorTimeout: 300 * time.Millisecond, DrainTimeout: 10 * time.Second,
	}
}

func start(t *testing.T, cfg server.Config) *server.Server {
	t.Helper()
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

func post(t *testing.T, client *http.Client, url, key, source string) (int, string) {
	t.Helper()
	body := fmt.Sprintf(`{"amount":1500,"currency":"ARS","source":%q}`, source)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/charges", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func newClient(t *testing.T) *http.Client {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// What was stored is replayed after a restart, and what was in doubt is
// resolved: the processor's journal survives too.
func TestRestart(t *testing.T) {
	t.Parallel()
	cfg, client := config(t), newClient(t)
	s := start(t, cfg)
	status, first := post(t, client, s.URL, "k1", "tok_visa")
	if status != 201 {
		t.Fatalf("%d %s", status, first)
	}
	if status, body := post(t, client, s.URL, "k2", "tok_timeout"); status != 409 {
		t.Fatalf("%d %s", status, body)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = start(t, cfg)
	if status, again := post(t, client, s.URL, "k1", "tok_visa"); status != 201 || again != first {
		t.Errorf("after a restart: %d %s, first %s", status, again, first)
	}
	if status, body := post(t, client, s.URL, "k2", "tok_timeout"); status != 201 {
		t.Errorf("%d %s", status, body)
	}
	remote := &processor.Client{BaseURL: s.ProcessorURL, HTTP: client}
	if stats, err := remote.Stats(t.Context()); err != nil || stats.Charges != 2 || len(stats.DuplicateCharges) != 0 {
		t.Errorf("the processor has %+v, %v", stats, err)
	}
}

// leaveDoubt makes a server that leaves a key in doubt and stops, and makes the
// key's turn come at once.
func leaveDoubt(t *testing.T, cfg server.Config, client *http.Client, source string) {
	t.Helper()
	s := start(t, cfg)
	if status, body := post(t, client, s.URL, "k1", source); status != http.StatusConflict {
		t.Fatalf("%d %s", status, body)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), cfg.Store)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if due, err := d.Keys().Requeue(t.Context(), onlyonce.Key{Scope: payments.DevMerchant, Value: "k1"}); err != nil || !due {
		t.Fatalf("requeued: %t, %v", due, err)
	}
}

// state is where a key stands.
func state(t *testing.T, client *http.Client, url, key string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/idempotency-keys/"+key, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v struct{ State string }
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v.State
}

// What a stop has left in doubt is looked at before requests are taken. (X1)
func TestStartCatchesUp(t *testing.T) {
	t.Parallel()
	for name, promises := range map[string]*provider.Traits{
		"all": nil, "keys": {Memory: time.Hour}, "look-up": {Lookup: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, client := config(t), newClient(t)
			cfg.Promises = promises
			leaveDoubt(t, cfg, client, "tok_error_after")
			s := start(t, cfg)
			if got := state(t, client, s.URL, "k1"); got != "completed" {
				t.Errorf("the key is %s", got)
			}
			remote := &processor.Client{BaseURL: s.ProcessorURL, HTTP: client}
			if stats, err := remote.Stats(t.Context()); err != nil || stats.Charges != 1 || len(stats.DuplicateCharges) != 0 {
				t.Errorf("the processor has %+v, %v", stats, err)
			}
		})
	}
}

// A processor that promises nothing is never sent anything twice: the key stays in
// doubt. (D4, D5)
func TestNothingIsPromised(t *testing.T) {
	t.Parallel()
	cfg, client := config(t), newClient(t)
	cfg.Promises = &provider.Traits{}
	leaveDoubt(t, cfg, client, "tok_error_before")
	s := start(t, cfg)
	if got := state(t, client, s.URL, "k1"); got != "in_doubt" {
		t.Errorf("the key is %s", got)
	}
	remote := &processor.Client{BaseURL: s.ProcessorURL, HTTP: client}
	if stats, err := remote.Stats(t.Context()); err != nil || stats.Charges != 0 {
		t.Errorf("the processor has %+v, %v", stats, err)
	}
}

// Catching up holds the start up for so long and no longer; it goes on behind the
// requests. (X1)
func TestCatchingUpIsBounded(t *testing.T) {
	t.Parallel()
	cfg, client := config(t), newClient(t)
	cfg.Promises = &provider.Traits{Memory: time.Hour}
	arrived, finish := make(chan struct{}, 1), make(chan struct{})
	remote, err := server.StartProcessor(t.Context(), "127.0.0.1:0", processor.Config{Work: func(context.Context, string) {
		arrived <- struct{}{}
		<-finish
	}, NoLookup: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = remote.Close(context.WithoutCancel(t.Context())) })
	cfg.Processor, cfg.ProcessorTimeout = remote.URL, 10*time.Second
	leaveDoubt(t, cfg, client, "tok_error_before") // which does not get to work
	cfg.CatchUpTimeout = 10 * time.Millisecond
	s := start(t, cfg)
	<-arrived
	if got := state(t, client, s.URL, "k1"); got != "in_progress" {
		t.Errorf("the key is %s", got)
	}
	close(finish)
	for t.Context().Err() == nil && state(t, client, s.URL, "k1") != "completed" {
	}
}

// A request under way is finished before the server has stopped. (C8)
func TestDrain(t *testing.T) {
	t.Parallel()
	working, finish := make(chan struct{}), make(chan struct{})
	remote, err := server.StartProcessor(t.Context(), "127.0.0.1:0", processor.Config{Work: func(context.Context, string) {
		close(working)
		<-finish
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = remote.Close(context.WithoutCancel(t.Context())) })
	cfg, client := config(t), newClient(t)
	cfg.Processor, cfg.ProcessorTimeout = remote.URL, 10*time.Second
	s := start(t, cfg)
	answered := make(chan int, 1)
	go func() {
		status, _ := post(t, client, s.URL, "k1", "tok_visa")
		answered <- status
	}()
	<-working
	closed := make(chan error, 1)
	go func() { closed <- s.Close(t.Context()) }()
	select {
	case err := <-closed:
		t.Fatalf("it stopped under a running request: %v", err)
	case err := <-s.Failed(): // it no longer accepts
		if !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
	close(finish)
	if status := <-answered; status != 201 {
		t.Errorf("the request under way got %d", status)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	good := config(t)
	running := start(t, good)
	for name, tt := range map[string]struct {
		change func(c *server.Config)
		want   string
	}{
		"every interface without merchants": {func(c *server.Config) { c.Listen = "0.0.0.0:0" }, "no merchants are configured"},
		"a host name without merchants":     {func(c *server.Config) { c.Listen = "example.com:0" }, "no merchants are configured"},
		"no host without merchants":         {func(c *server.Config) { c.Listen = ":0" }, "no merchants are configured"},
		"no port":                           {func(c *server.Config) { c.Listen = "127.0.0.1" }, "not HOST:PORT"},
		"a taken port":                      {func(c *server.Config) { c.Listen = strings.TrimPrefix(running.URL, "http://") }, "in use"},
		"a store in memory":                 {func(c *server.Config) { c.Store = "memory:" }, "memory: keeps no tables"},
		"an unknown store":                  {func(c *server.Config) { c.Store = "redis://x" }, "is not one this program knows"},
		"a processor that is no URL":        {func(c *server.Config) { c.Processor = "localhost:9090" }, "not an http URL"},
		"a negative lease":                  {func(c *server.Config) { c.Lease = -1 }, "negative"},
		"a short lease":                     {func(c *server.Config) { c.Lease = 1 }, "between 100 ms and 24 h"},
		"another's journal":                 {func(c *server.Config) { c.Store = good.Store }, "used by another process"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			tt.change(&cfg)
			s, err := server.Start(t.Context(), cfg)
			if err == nil {
				_ = s.Close(t.Context())
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want %q", err, tt.want)
			}
		})
	}
}

// Two servers on one SQLite file: each key has one charge and one answer.
func TestTwoServersOnOneFile(t *testing.T) {
	t.Parallel()
	cfg, client := config(t), newClient(t)
	one := start(t, cfg)
	cfg.Processor = one.ProcessorURL
	two := start(t, cfg)
	const keys = 12
	answers := make([]map[string]bool, keys)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for key := range keys {
		answers[key] = map[string]bool{}
		for i := range 4 {
			wg.Go(func() {
				url := []string{one.URL, two.URL}[i%2]
				for {
					status, body := post(t, client, url, fmt.Sprint("k", key), "tok_visa")
					if status == http.StatusConflict || status == http.StatusServiceUnavailable {
						continue // as a client would
					}
					mu.Lock()
					defer mu.Unlock()
					answers[key][fmt.Sprint(status, " ", body)] = true
					return
				}
			})
		}
	}
	wg.Wait()
	for key, seen := range answers {
		if len(seen) != 1 {
			t.Errorf("key %d got %v", key, seen)
		}
	}
	remote := &processor.Client{BaseURL: one.ProcessorURL, HTTP: client}
	if stats, err := remote.Stats(t.Context()); err != nil || stats.Charges != keys || len(stats.DuplicateCharges) != 0 {
		t.Errorf("the processor has %+v, %v", stats, err)
	}
}

// With merchants it may be reached from elsewhere.
func TestMerchantsAllowEveryInterface(t *testing.T) {
	t.Parallel()
	_, hash := payments.NewAPIKey()
	cfg := config(t)
	var err error
	if cfg.Merchants, err = payments.ParseMerchants(map[string][]string{"acme": {hash}}); err != nil {
		t.Fatal(err)
	}
	cfg.Listen = "0.0.0.0:0"
	s := start(t, cfg)
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), "]:")
	if status, body := post(t, newClient(t), "http://127.0.0.1:"+port, "k1", "tok_visa"); status != http.StatusUnauthorized {
		t.Errorf("%d %s", status, body)
	}
}
