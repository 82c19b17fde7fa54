package bench_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/bench/chart"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// An outage: operations arrive evenly, whatever becomes of those before. By the time that
// the server is back, a thousand are waiting. It is down for as long as the budget counts.
const (
	arrivals = 100 // a second
	downAt   = 12 * time.Second
	upAt     = downAt + 10*time.Second
	arriving = upAt + 24*time.Second // for as long, others come
	binWidth = 250 * time.Millisecond
	perBin   = arrivals * int(binWidth) / int(time.Second)
	oneEvery = time.Second / arrivals
	bins     = int(2 * arriving / binWidth)
)

// server counts requests, and is down for a while.
type server struct {
	*httptest.Server
	start time.Time
	seen  [bins]atomic.Int64
	down  atomic.Int64 // requests while it was
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{start: time.Now()}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		at := time.Since(s.start)
		s.seen[min(int(at/binWidth), bins-1)].Add(1)
		if at >= downAt && at < upAt {
			s.down.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(s.Close)
	return s
}

// outage is what a client makes of it.
type outage struct {
	seen    []float64
	whole   float64       // requests while the server was down, in parts of what would have come anyway
	peak    float64       // most requests in one bin behind it, in parts of the same
	waiting int           // operations that were waiting when the server came back
	drained time.Duration // how long behind that the last of them was done
	failed  int64
}

// suffer has operations arrive at a server that goes down, and waits for all of them.
func suffer(t *testing.T, do func(ctx context.Context, url string) error) outage {
	t.Helper()
	s := newServer(t)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		waiting int
		last    time.Duration
		failed  atomic.Int64
	)
	for i := range int(arriving / oneEvery) {
		<-time.After(time.Until(s.start.Add(time.Duration(i) * oneEvery)))
		wg.Go(func() {
			began := time.Since(s.start)
			if err := do(t.Context(), s.URL); err != nil {
				failed.Add(1)
				t.Log(err)
			}
			if ended := time.Since(s.start); began < upAt && ended >= upAt {
				mu.Lock()
				defer mu.Unlock()
				waiting, last = waiting+1, max(last, ended)
			}
		})
	}
	wg.Wait()
	o := outage{waiting: waiting, drained: last - upAt, failed: failed.Load()}
	for i := range int(arriving / binWidth) {
		o.seen = append(o.seen, float64(s.seen[i].Load()))
	}
	o.whole = float64(s.down.Load()) / (arrivals * (upAt - downAt).Seconds())
	o.peak = slices.Max(o.seen[int(upAt/binWidth):]) / float64(perBin)
	return o
}

// naive asks again every second until it is answered.
func naive(client *http.Client) func(ctx context.Context, url string) error {
	return func(ctx context.Context, url string) error {
		for {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
			if err != nil {
				return err
			}
			res, err := client.Do(req)
			if err != nil {
				return err
			}
			res.Body.Close()
			if res.StatusCode == http.StatusCreated {
				return nil
			}
			<-time.After(time.Second)
		}
	}
}

// TestRetryBudget measures what a server sees of an outage, from clients with a budget
// and full jitter and from such as ask every second. It writes the chart of it into the
// folder that ONLYONCE_BENCH_CHARTS names, and is skipped without.
func TestRetryBudget(t *testing.T) {
	folder := os.Getenv("ONLYONCE_BENCH_CHARTS")
	if folder == "" {
		t.Skip("set ONLYONCE_BENCH_CHARTS to a folder for the chart, ../docs/img say")
	}
	base := &http.Transport{MaxIdleConnsPerHost: 2000}
	t.Cleanup(base.CloseIdleConnections)
	client, err := onceclient.New(onceclient.Config{Journal: memjournal.New(), Base: base})
	if err != nil {
		t.Fatal(err)
	}
	ours := suffer(t, func(ctx context.Context, url string) error {
		_, err := client.Do(ctx, onceclient.Request{Method: http.MethodPost, URL: url})
		return err
	})
	theirs := suffer(t, naive(&http.Client{Transport: base}))
	for name, o := range map[string]outage{"budget and full jitter": ours, "every second": theirs} {
		t.Logf("%s: %.2f times normal traffic while the server was down, %.1f times at the peak behind it; %d operations were waiting, the last was done %.1f s later; %d failed",
			name, o.whole, o.peak, o.waiting, o.drained.Seconds(), o.failed)
	}
	if ours.whole > 1.1 || ours.failed > 0 {
		t.Errorf("the server saw %.2f times normal traffic, and %d operations failed", ours.whole, ours.failed)
	}
	normal := make([]float64, len(ours.seen))
	for i := range normal {
		normal[i] = float64(perBin)
	}
	line := func(name, color string, points []float64) chart.Line {
		return chart.Line{Name: name, Color: color, Step: binWidth.Seconds(), Points: points}
	}
	steady := line("normal traffic", "#666", normal)
	steady.Dashed = true
	svg, err := chart.Chart{
		Title: fmt.Sprintf("What a server sees of an outage: requests in %d ms", binWidth.Milliseconds()),
		About: fmt.Sprintf("While the server is down, clients with a budget send %.2f times normal traffic and clients that ask every second %.1f times; behind it the peaks are %.1f and %.1f times.", ours.whole, theirs.whole, ours.peak, theirs.peak),
		X:     "time, s", Y: "requests in 250 ms",
		Lines: []chart.Line{line("asking again every second", "#d55e00", theirs.seen), line("onceclient: budget, full jitter", "#0072b2", ours.seen), steady},
		Bands: []chart.Band{{Name: "down", From: downAt.Seconds(), To: upAt.Seconds()}},
	}.SVG()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "retry-budget.svg"), svg, 0o644); err != nil {
		t.Fatal(err)
	}
}
