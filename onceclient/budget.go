package onceclient

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"sync"
	"time"
)

// BudgetConfig configures a Budget. Its zero value is the default.
type BudgetConfig struct {
	// Window is the time over which requests are counted. Default 10 s.
	Window time.Duration
	// Share is how many retries there may be for each first request in a window.
	// Default 0.1.
	Share float64
	// Least is how many retries there may be in a window, however few first requests
	// there are. Default 10.
	Least int
	// Now is the clock. nil: time.Now.
	Now func() time.Time
}

// Budget bounds the retries of many operations together, so that a server that is down
// sees little more than what it would see anyway: in a window as many as the larger of
// Least and Share of the first requests, and not all of those in its first moment: in a
// twentieth of a window at most a tenth of them, or two. A retry that the server answered
// does not count, so that what has waited is done soon after the server is back. Each
// origin of URLs, and all targets that are none together, has a window of its own. It is
// safe for concurrent use, by several clients too.
type Budget struct {
	share float64
	least int
	slot  time.Duration
	now   func() time.Time
	start time.Time

	mu      sync.Mutex
	windows map[string]*window // by server
	sweepAt int                // windows, among which there may be idle ones
}

// window counts the requests to a server.
type window struct {
	slots  [slotsInWindow + 1]slot
	latest int64 // the last slot that was counted in
}

// slotsInWindow is how finely a window slides.
const slotsInWindow = 20

// slot counts requests in a part of a window.
type slot struct {
	number         int64
	first, retries int
}

// NewBudget makes a budget. The error is an *onlyonce.Error with CodeConfig.
func NewBudget(cfg BudgetConfig) (*Budget, error) {
	if cfg.Window < 0 || cfg.Share < 0 || cfg.Least < 0 {
		return nil, configError("check onceclient.BudgetConfig", "Window, Share and Least cannot be negative; leave them 0 for the default")
	}
	b := &Budget{
		share: cmp.Or(cfg.Share, 0.1),
		least: cmp.Or(cfg.Least, 10),
		slot:  cmp.Or(cfg.Window, 10*time.Second) / slotsInWindow,
		now:   cfg.Now,

		windows: map[string]*window{},
	}
	if b.now == nil {
		b.now = time.Now
	}
	if b.slot <= 0 {
		return nil, configError("check onceclient.BudgetConfig", "Window is too short; use some seconds")
	}
	b.start = b.now()
	return b, nil
}

var errNoBudget = errors.New("too many retries of all operations")

// ticket is the right to one retry: of which server, and when it was given.
type ticket struct {
	server string
	slot   int64
}

// first counts an operation's first request, which is always allowed.
func (b *Budget) first(server string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current(b.window(server)).first++
}

// take asks for one retry.
func (b *Budget) take(server string) (ticket, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.window(server)
	s := b.current(w)
	// Slots are whole, so retries are counted over a little more than a window, and
	// first requests over a little less.
	var first, retries int
	for _, o := range w.slots {
		if age := s.number - o.number; age >= 0 && age <= slotsInWindow {
			retries += o.retries
			if age < slotsInWindow {
				first += o.first
			}
		}
	}
	allowed := max(b.least, int(min(b.share*float64(first), math.MaxInt32)))
	if retries >= allowed || s.retries >= max(allowed/(slotsInWindow/2), 2) {
		return ticket{}, false
	}
	s.retries++
	return ticket{server, s.number}, true
}

// giveBack returns the ticket of a retry that the server answered.
func (b *Budget) giveBack(t ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.window(t.server).at(t.slot); s.number == t.slot && s.retries > 0 {
		s.retries--
	}
}

// current is the slot of this moment. What was counted in the future of a clock that was
// set back is forgotten: else there would be no retries until that has come.
func (b *Budget) current(w *window) *slot {
	number := b.number()
	s := w.at(number)
	w.latest = number
	if s.number != number {
		*s = slot{number: number}
	}
	return s
}

// number is that of this moment's slot, negative before the start.
func (b *Budget) number() int64 {
	return int64(math.Floor(float64(b.now().Sub(b.start)) / float64(b.slot)))
}

// window is a server's. Those in which nothing counts any more are forgotten when there
// are twice as many as did.
func (b *Budget) window(server string) *window {
	if w, ok := b.windows[server]; ok {
		return w
	}
	if len(b.windows) >= b.sweepAt {
		now := b.number()
		maps.DeleteFunc(b.windows, func(_ string, w *window) bool {
			return now-w.latest > slotsInWindow || w.latest > now
		})
		b.sweepAt = 2*len(b.windows) + 64
	}
	w := &window{latest: b.number()}
	b.windows[server] = w
	return w
}

// at is where a slot of this number is kept.
func (w *window) at(number int64) *slot {
	n := int64(len(w.slots))
	return &w.slots[(number%n+n)%n]
}
