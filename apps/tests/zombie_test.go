package tests_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
)

// A worker is stopped with SIGSTOP past its lease and wakes when another has
// finished: it changes nothing, sends nothing, and its own client gets the
// other's answer or a 409, never an answer of its own. (C6, D5; cases B15, B16)
func TestZombie(t *testing.T) {
	t.Parallel()
	points := []point{
		{"claim", true},       // before it has done anything
		{"step_tx", true},     // the stock is reserved
		{"begin_step", true},  // between intent and send: the send deadline
		{send, false},         // the same, a step further
		{send, true},          // charged, and not recorded
		{"end_step", true},    // recorded
		{"finish", false},     // about to write books and answer
		{"finish", true},      // done, and not said
		{"begin_step", false}, // about to record the intent
	}
	for store, open := range apptest.Stores() {
		for _, at := range points {
			t.Run(store+"/"+strings.ReplaceAll(at.String(), " ", "_"), func(t *testing.T) {
				t.Parallel()
				c := cell{store, kinds()[0], at}
				s := c.newShop(t, open(t))
				s.pauseAndTakeOver(t, at)
			})
		}
	}
}

// pauseAndTakeOver lets a worker sleep at the point while another finishes.
func (s *shop) pauseAndTakeOver(t *testing.T, at point) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	zombie := startWorker(t, s.config(at, syscall.SIGSTOP))
	type said struct {
		answer
		err error
	}
	first := make(chan said, 1)
	patient := newPatientClient(t)
	go func() {
		a, err := post(ctx, patient, zombie.url+"/checkout", s.key.Value, order)
		first <- said{a, err}
	}()
	zombie.stopped(ctx, t)
	other := startWorker(t, s.config(point{}, 0))
	if got := s.insist(t, other); got != charged {
		t.Fatalf("the other worker: %s", got)
	}
	sent := s.sent()
	final, err := s.buy(ctx, other)
	if err != nil {
		t.Fatal(err)
	}
	zombie.wake(t)
	a := <-first
	switch {
	case a.err != nil:
		t.Errorf("the zombie's client: %v", a.err)
	case a.status == 409:
	case a.status != 201 || a.body != final.body:
		t.Errorf("the zombie's client got %d %s, the other's answer is %s", a.status, a.body, final.body)
	}
	if s.sent() != sent {
		t.Errorf("it sent %d requests after it woke", s.sent()-sent)
	}
	s.judge(t, other, charged)
}
