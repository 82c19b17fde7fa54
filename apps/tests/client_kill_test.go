package tests_test

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// killPoint is a moment at which a client is killed.
type killPoint struct {
	name string
	// reach starts a client and returns when it has got to the moment.
	reach func(t *testing.T, c *caller, args []string) *child
	sent  int // how many requests have arrived by then
}

func killPoints() []killPoint {
	return []killPoint{
		{"between journal and send", untilConnected, 0},
		{"between send and effect", untilHeld(heldBefore), 1},
		{"between effect and answer", untilHeld(heldAfter), 1},
		{"while waiting", untilWaiting, 1},
	}
}

// untilConnected goes on until the client has a connection and has sent nothing: a
// TLS handshake that nobody answers.
func untilConnected(t *testing.T, c *caller, args []string) *child {
	t.Helper()
	c.till.gate.shut.Store(true)
	p := c.start(t, args...)
	select {
	case conn := <-c.till.gate.came:
		t.Cleanup(func() { _ = conn.Close() })
	case <-p.done:
		t.Fatalf("it ended with %d and sent nothing", p.wait())
	}
	c.till.gate.shut.Store(false)
	return p
}

// untilHeld goes on until the server has the request and the client waits for it.
func untilHeld(f fate) func(*testing.T, *caller, []string) *child {
	return func(t *testing.T, c *caller, args []string) *child {
		t.Helper()
		c.till.become(always(f))
		p := c.start(t, args...)
		select {
		case <-c.till.held:
		case <-p.done:
			t.Fatalf("it ended with %d and was not held", p.wait())
		}
		return p
	}
}

// untilWaiting goes on until the client sleeps before its next attempt.
func untilWaiting(t *testing.T, c *caller, args []string) *child {
	t.Helper()
	c.till.become(always(turnedAway))
	p := c.start(t, args...)
	p.says(t, "follows in")
	return p
}

// A client is killed at each moment of a call, and the one that goes on at the same or
// another moment; the third has the server's answer, and there was one effect. Going on
// needs the intent alone, or the same command. The answer stays when the server is
// gone. (L1, B100)
func TestClientKilled(t *testing.T) {
	t.Parallel()
	all := os.Getenv("ONLYONCE_SOAK") != ""
	for i, first := range killPoints() {
		for j, second := range killPoints() {
			for kind, journal := range journals(t) {
				// Each moment first and second, each kind of journal; all together in a soak.
				if !all && ((j-i+4)%4 > 1 || kind != []string{"default", "folder", "sqlite"}[(i+j)%3]) {
					continue
				}
				t.Run(fmt.Sprintf("%s, then %s, %s", first.name, second.name, kind), func(t *testing.T) {
					t.Parallel()
					killTwice(t, first, second, journal)
				})
			}
		}
	}
}

func killTwice(t *testing.T, first, second killPoint, journal string) {
	t.Helper()
	const order = "order-42"
	c := newCaller(t, newTill(t, always(delivered)), journal)
	whole, intent := c.charge(order), []string{"--intent", order + "/charge"}
	resume := intent
	if !strings.HasPrefix(journal, "sqlite:") { // which leaves alone what was just killed
		resume = []string{"--resume"}
	}

	first.reach(t, c, whole).kill()
	if n := c.till.requests(order); n != first.sent {
		t.Errorf("%d requests have arrived %s, want %d", n, first.name, first.sent)
	}
	c.wantOpen(t, order+"/charge")
	second.reach(t, c, resume).kill()
	c.wantOpen(t, order+"/charge")

	c.till.become(always(delivered))
	c.wantAnswer(t, order, whole...)
	c.till.judge(t, order)
	c.wantOpen(t)
	n := c.till.requests(order)
	c.till.server.Close()
	if log := c.wantAnswer(t, order, intent...); !strings.Contains(log, "nothing was sent") {
		t.Errorf("the recorded answer: %s", log)
	}
	if c.till.requests(order) != n {
		t.Error("the recorded answer was asked for")
	}
}

// Clients are killed at random moments, each run by whoever needs its answer until it
// ends by itself, through a network that loses every third answer. (L1, L2)
func TestClientKilledAtRandom(t *testing.T) {
	t.Parallel()
	orders, until := 6, time.Time{}
	if soak := os.Getenv("ONLYONCE_SOAK"); soak != "" {
		d, err := time.ParseDuration(soak)
		if err != nil {
			t.Fatalf("ONLYONCE_SOAK: %v", err)
		}
		orders, until = 1<<30, time.Now().Add(d/4)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := newCaller(t, newTill(t, loseEveryThird), "journal")
	next := make(chan string)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for order := range next {
				c.insist(t, order, rand.New(rand.NewPCG(seed, uint64(crc32.ChecksumIEEE([]byte(order))))))
			}
		})
	}
	for i := 0; i < orders && (until.IsZero() || time.Now().Before(until)) && !t.Failed(); i++ {
		next <- fmt.Sprintf("order-%d", i)
	}
	close(next)
	wg.Wait()
	c.wantOpen(t)
}

// insist runs a call again and again, and kills it thrice.
func (c *caller) insist(t *testing.T, order string, random *rand.Rand) {
	for kills := 0; ; kills++ {
		p := c.start(t, c.charge(order)...)
		if kills < 3 {
			select {
			case <-p.done:
			case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond):
				p.kill()
			}
		}
		switch code := p.wait(); {
		case code == -1: // killed
			continue
		case code != 0 || p.out.String() != c.till.answer(order):
			t.Errorf("%s: exit code %d, printed %q, want %q\n%s", order, code, p.out.String(), c.till.answer(order), p.log.String())
		}
		c.till.judge(t, order)
		return
	}
}

// Ctrl-C ends a call at once. It stays open, and the exit code and the message say so
// and how to go on. (L3, L4)
func TestClientInterrupted(t *testing.T) {
	t.Parallel()
	const order = "order-42"
	c := newCaller(t, newTill(t, always(delivered)), "")
	for _, point := range killPoints()[1:] {
		p := point.reach(t, c, c.charge(order))
		p.interrupt(t)
		if code := p.wait(); code != 3 {
			t.Errorf("%s: exit code %d", point.name, code)
		}
		for _, want := range []string{"its key is ", "onlyonce call --intent order-42/charge", "--cacert " + c.till.cacert} {
			if !strings.Contains(p.log.String(), want) {
				t.Errorf("%s: it does not say %q:\n%s", point.name, want, p.log.String())
			}
		}
		c.wantOpen(t, order+"/charge")
	}
	c.till.become(always(delivered))
	c.wantAnswer(t, order, "--intent", order+"/charge")
	c.till.judge(t, order)
}
