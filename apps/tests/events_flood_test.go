package tests_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/broker"
	"github.com/onlyonce-go/onlyonce/apps/payments/balances"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// floodConsumers is how many processes share the events of a flood.
const floodConsumers = 3

// Messages that come twice, in any order and again after every kill, from consumers that
// are killed with SIGKILL at random moments: each is added once, to the last unit. (I1,
// I2; B113, B114)
func TestEventsFlood(t *testing.T) {
	t.Parallel()
	n := messagesOf(t)
	eachEvents(t, eventsCells(), func(t *testing.T, e *events) {
		seed := uint64(time.Now().UnixNano())
		r := rand.New(rand.NewPCG(seed, 1))
		msgs, want := flood(t, r, n)
		begun := time.Now()
		var publishing sync.WaitGroup
		publishing.Go(func() { e.publish(t, msgs) })
		e.fill(t, floodConsumers)
		e.killAtRandom(t, r, n)
		publishing.Wait()
		e.await(t, "all events are handled", func() bool { return e.handled(t) >= n })
		e.finish(t, floodConsumers)
		e.judge(t, want, n)
		t.Logf("seed %d: %d messages of %d events, %d kills, %v", seed, len(msgs), n, e.kills, time.Since(begun).Round(time.Millisecond))
	})
}

// flood makes n events in any order, a tenth of them twice, and says what they come to.
func flood(t *testing.T, r *rand.Rand, n int) (msgs []inbox.Message, want []balances.Balance) {
	t.Helper()
	sums := map[string]*balances.Balance{}
	for i := range n {
		kind, op := event.ChargeSucceeded, fmt.Sprintf("op_%d", i)
		if r.IntN(3) == 0 {
			kind = event.RefundSucceeded
		}
		b := balances.Balance{
			Merchant: fmt.Sprintf("merchant-%02d", r.IntN(20)), Currency: []money.Currency{"EUR", "JPY"}[r.IntN(2)],
			Amount: 1 + r.Int64N(1e12),
		}
		msg, err := event.Event{
			ID: event.IDOf(kind, op), Kind: kind, Merchant: b.Merchant, Amount: b.Amount, Currency: b.Currency,
			Subject: "x", Operation: op, OccurredAt: time.Now(),
		}.Message()
		if err != nil {
			t.Fatal(err)
		}
		msgs = append(msgs, msg)
		if i%10 == 0 {
			msgs = append(msgs, msg)
		}
		sum, ok := sums[amountIn(b)]
		if !ok {
			sum = &balances.Balance{Merchant: b.Merchant, Currency: b.Currency}
			sums[amountIn(b)] = sum
		}
		sum.Amount += kind.Sign() * b.Amount
	}
	r.Shuffle(len(msgs), func(i, j int) { msgs[i], msgs[j] = msgs[j], msgs[i] })
	for _, sum := range sums {
		want = append(want, *sum)
	}
	slices.SortFunc(want, func(a, b balances.Balance) int { return cmp.Compare(amountIn(a), amountIn(b)) })
	return msgs, want
}

// publish publishes all, as the relay does: what is not confirmed again and again.
func (e *events) publish(t *testing.T, msgs []inbox.Message) {
	address, err := broker.Parse(e.broker)
	if err != nil {
		t.Error(err)
		return
	}
	p := broker.NewPublisher(address)
	defer p.Close()
	for batch := range slices.Chunk(msgs, 100) {
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			err := p.Publish(ctx, batch)
			cancel()
			if err == nil {
				break
			}
			pause(t.Context(), 100*time.Millisecond)
			if t.Context().Err() != nil {
				t.Errorf("publish: %v", err)
				return
			}
		}
	}
}

// killAtRandom kills consumers while the events come: for each kill a moment, told in
// events that are handled, and a process. There is one kill for some hundred events, as
// far as processes have time to do anything in between.
func (e *events) killAtRandom(t *testing.T, r *rand.Rand, n int) {
	t.Helper()
	moments := make([]int, min(max(n/400, 4), 60))
	for i := range moments {
		moments[i] = r.IntN(n * 9 / 10)
	}
	slices.Sort(moments)
	for _, moment := range moments {
		e.await(t, "the moment of a kill", func() bool { return e.handled(t) >= moment })
		e.restart(t, r.IntN(len(e.consumers)))
	}
}
