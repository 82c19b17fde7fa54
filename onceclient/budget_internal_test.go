package onceclient

import (
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func budgetOf(t *testing.T, cfg BudgetConfig) *Budget {
	t.Helper()
	b, err := NewBudget(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// drain takes what there is.
func drain(b *Budget) (taken []ticket) {
	for {
		t, ok := b.take("")
		if !ok {
			return taken
		}
		taken = append(taken, t)
	}
}

func wantTaken(t *testing.T, what string, got []ticket, want int) {
	t.Helper()
	if len(got) != want {
		t.Errorf("%s: %d retries, want %d", what, len(got), want)
	}
}

// drainFor takes what there is in some slots, one after the other.
func drainFor(b *Budget, slots int) (taken []ticket) {
	for range slots {
		taken = append(taken, drain(b)...)
		time.Sleep(b.slot) // in synctest
	}
	return taken
}

// L3: a tenth of the first requests, but always a few, and a few at a time.
func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budgetOf(t, BudgetConfig{})
		wantTaken(t, "of nothing, at once", drain(b), 2)
		wantTaken(t, "of nothing, soon", drainFor(b, slotsInWindow/2), 8)
		for range 150 {
			b.first("")
		}
		wantTaken(t, "of 150, 10 being taken", drainFor(b, 4), 5)
		time.Sleep(10500 * time.Millisecond)
		wantTaken(t, "after a window", drainFor(b, 10), 10)
		time.Sleep(10500 * time.Millisecond)
		for range 1000 {
			b.first("")
		}
		wantTaken(t, "of 1000, at once", drain(b), 10)
		wantTaken(t, "of 1000, soon", drainFor(b, 10), 90)
		time.Sleep(24 * time.Hour)
		wantTaken(t, "after a day", drainFor(b, slotsInWindow), 10)
	})
}

// A retry that was answered does not count; one of long ago cannot be given back.
func TestBudgetIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budgetOf(t, BudgetConfig{Least: 2, Share: 0.5, Window: 2 * time.Second})
		taken := drain(b)
		wantTaken(t, "at first", taken, 2)
		b.giveBack(taken[0])
		wantTaken(t, "after one was given back", drain(b), 1)
		time.Sleep(2100 * time.Millisecond)
		fresh := drain(b)
		wantTaken(t, "after a window", fresh, 2)
		b.giveBack(taken[1])
		wantTaken(t, "after an old one was given back", drain(b), 0)
	})
}

// However requests come, in no window are there more retries than the larger of the
// least and the share of the first requests that had come.
func TestBudgetInEveryWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type moment struct {
			at             time.Duration
			first, retries int
		}
		var all []moment
		b, start := budgetOf(t, BudgetConfig{}), time.Now()
		for range 3000 {
			m := moment{at: time.Since(start)}
			for range rand.IntN(20) {
				b.first("")
				m.first++
			}
			for range rand.IntN(5) {
				if _, ok := b.take(""); ok {
					m.retries++
				}
			}
			all = append(all, m)
			var first, retries int
			for _, o := range all {
				if m.at-o.at < 10*time.Second {
					first, retries = first+o.first, retries+o.retries
				}
			}
			if m.retries > 0 && retries > max(10, first/10) {
				t.Fatalf("in the window before %v: %d retries of %d first requests", m.at, retries, first)
			}
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		}
	})
}

// It is shared.
func TestBudgetOfMany(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := budgetOf(t, BudgetConfig{Now: func() time.Time { return now }})
	var mu sync.Mutex
	var taken int
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for range 10 {
				b.first("")
			}
			got := len(drain(b))
			mu.Lock()
			defer mu.Unlock()
			taken += got
		})
	}
	all.Wait()
	if taken += len(drain(b)); taken != 10 {
		t.Errorf("%d retries of 1000 at once, want 10", taken)
	}
}

// L3: a clock that was set back, or forth and back, neither ends retries until it is
// where it was, nor lets more than a window's be made in one.
func TestBudgetOfAClockSetBack(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, back := range map[string]time.Duration{"an hour": time.Hour, "a window": 10 * time.Second, "a moment": time.Millisecond} {
		for _, before := range []time.Duration{0, 3 * time.Second, 2 * time.Hour} {
			now := start
			b := budgetOf(t, BudgetConfig{Now: func() time.Time { return now }})
			step := func(slots int) (taken []ticket) {
				for range slots {
					taken = append(taken, drain(b)...)
					now = now.Add(b.slot)
				}
				return taken
			}
			now = now.Add(before)
			taken := step(slotsInWindow)
			wantTaken(t, name+": before", taken, 10)
			now = now.Add(-back)
			for _, old := range taken {
				b.giveBack(old) // those answers came late
			}
			if got := len(step(3 * slotsInWindow)); got < 20 || got > 40 {
				t.Errorf("%s after %v: %d retries in 3 windows", name, before, got)
			}
		}
	}
}

// "No limit" is none.
func TestBudgetWithoutLimit(t *testing.T) {
	t.Parallel()
	for _, cfg := range []BudgetConfig{{Least: math.MaxInt}, {Share: math.Inf(1)}} {
		b := budgetOf(t, cfg)
		b.first("")
		for range 1000 {
			if _, ok := b.take(""); !ok {
				t.Fatalf("%+v: there is a limit", cfg)
			}
		}
	}
}

func TestBudgetConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []BudgetConfig{{Window: -1}, {Share: -1}, {Least: -1}, {Window: 1}} {
		if _, err := NewBudget(cfg); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// Servers that nobody asks any more are forgotten, and the others are not.
func TestBudgetOfManyServers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := budgetOf(t, BudgetConfig{Now: func() time.Time { return now }})
	if drain(b); len(b.windows) != 1 {
		t.Errorf("%d windows", len(b.windows))
	}
	for i := range 10000 {
		now = now.Add(b.slot)
		b.first(Origin("https://" + strconv.Itoa(i) + ".example/charges"))
		if i%3 == 0 {
			if _, ok := b.take("busy"); !ok {
				t.Fatalf("after %d the busy one has no retry", i)
			}
		}
		if len(b.windows) > 200 {
			t.Fatalf("%d windows are kept", len(b.windows))
		}
	}
	old, _ := b.take("old")
	for i := range 1000 {
		now = now.Add(b.slot)
		b.first(strconv.Itoa(i))
	}
	b.giveBack(old) // to nobody
	if got := len(drain(b)); got != 2 {
		t.Errorf("%d retries", got)
	}
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"https://acme.example/charges?a=b": "https://acme.example:443",
		"http://acme.example:80":           "http://acme.example:80",
		"HTTPS://ACME.Example":             "https://acme.example:443",
		"http://[::1]:8080/":               "http://::1:8080",
		"/acme.Payments/Charge":            "",
		"somewhere":                        "",
		"http://[::1":                      "",
	} {
		if got := Origin(target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}
