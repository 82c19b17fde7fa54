package inbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// X3: a parked message runs again when a person asks for it, and not before; a success
// is the end of it.
func TestRetry(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		p.park(t, message("m1", "5 EUR"))
		pass(time.Hour)
		if sum := p.look(t); sum != (onlyonce.RecoverySum{Pending: 1}) {
			t.Errorf("before anybody asked: %+v", sum)
		}
		p.wantRuns(t, 3)
		p.want(t)
		entry, err := inbox.Retry(t.Context(), p.w.mem, p.act("m1"))
		if err != nil || !entry.RetryAsked || entry.Record.State != onlyonce.InDoubt {
			t.Fatalf("%+v, %v", entry, err)
		}
		p.wantVerdict(t, message("m1", "5 EUR"), inbox.Parked) // a redelivery does not take it
		if sum := p.look(t); sum != (onlyonce.RecoverySum{Completed: 1}) {
			t.Errorf("%+v", sum)
		}
		p.want(t, "5 EUR")
		p.wantVerdict(t, message("m1", "5 EUR"), inbox.Duplicate)
		entry = p.show(t, "m1")
		if entry.Kept || entry.RetryAsked || entry.Dropped || entry.Record.State != onlyonce.Completed {
			t.Errorf("%+v", entry)
		}
		audit := []onlyonce.AuditEntry{{Key: inbox.KeyOf("balances", "m1"), Action: inbox.ActionRetry, Actor: "ana", Reason: "the account is open again"}}
		got := entry.Audit
		for i := range got {
			got[i].Fence, got[i].At = 0, time.Time{}
		}
		if diff := cmp.Diff(audit, got); diff != "" {
			t.Errorf("audit (-want +got):\n%s", diff)
		}
		_, err = inbox.Retry(t.Context(), p.w.mem, p.act("m1"))
		wantCode(t, err, onlyonce.CodeNotInDoubt)
	})
}

// X3: a retry that fails parks the message again, with what it takes and the new error;
// what was asked for is used up.
func TestFailedRetry(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		first := p.park(t, message("m1", "5 EUR"))
		p.before = func(inbox.Message) error { return textError("no such account") }
		if sum := p.retry(t, "m1"); sum != (onlyonce.RecoverySum{Pending: 1}) {
			t.Errorf("%+v", sum)
		}
		p.wantRuns(t, 4)
		entry := p.show(t, "m1")
		if entry.Record.Reason != "held: parked again: no such account" || entry.Error != errBroken.Error() {
			t.Errorf("reason %q, first %q", entry.Record.Reason, entry.Error)
		}
		if diff := cmp.Diff(first.Message, entry.Message); diff != "" || entry.RetryAsked || !entry.Kept {
			t.Errorf("%+v\n%s", entry, diff)
		}
		p.wantVerdict(t, message("m1", "5 EUR"), inbox.Parked)
		pass(24 * time.Hour)
		p.look(t)
		p.wantRuns(t, 4)
		p.before = nil
		p.retry(t, "m1")
		p.want(t, "5 EUR")
	})
}

// D6: a crash in a retry leaves the message parked with what it takes; a crash while it
// is parked leaves it to its redelivery, or parked. Sweeps between lose nothing.
func TestCrashWhileParked(t *testing.T) {
	t.Parallel()
	for name, make := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := &effects{}
				p := make(newWorld(t), t, e)
				p.park(t, message("m1", "5 EUR"))
				dying := make(worldOn(t, p.w.mem), t, e)
				e.before = func(inbox.Message) error { dying.w.down(); return errBroken }
				if _, err := inbox.Retry(t.Context(), p.w.mem, p.act("m1")); err != nil {
					t.Fatal(err)
				}
				if _, err := dying.recoverer.Once(t.Context()); err == nil {
					t.Error("the dying process has looked twice")
				}
				dying.w.end(t, 0)
				e.before = nil
				for range 3 {
					pass(time.Minute)
					sweep(t, p.w.mem)
					p.look(t)
				}
				p.wantRuns(t, 4)
				p.wantVerdict(t, message("m1", "5 EUR"), inbox.Parked)
				if entry := p.show(t, "m1"); !entry.Kept || entry.RetryAsked || entry.Record.State != onlyonce.InDoubt {
					t.Errorf("%+v", entry)
				}
				p.retry(t, "m1")
				p.want(t, "5 EUR")
			})
		})
	}
}

// D6: whichever write of parking is the last before a crash, the message is not lost: it
// is parked with its payload, or still with its source, which was told Again.
func TestCrashInParking(t *testing.T) {
	t.Parallel()
	for name, make := range kinds() {
		for _, lost := range []storefault.Method{storefault.Claim, storefault.Park, storefault.Get} {
			t.Run(name+" "+string(lost), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					e := &effects{before: func(inbox.Message) error { return errBroken }}
					p := make(newWorld(t), t, e)
					for range 2 {
						p.wantVerdict(t, message("m1", "5 EUR"), inbox.Again)
					}
					dying := make(dyingAt(t, p.w, lost), t, e)
					dying.wantVerdict(t, message("m1", "5 EUR"), inbox.Again)
					dying.w.end(t, 0)
					pass(time.Minute)
					sweep(t, p.w.mem)
					p.look(t)
					p.wantVerdict(t, redelivered("m1", "5 EUR", 4), inbox.Parked)
					if entry := p.show(t, "m1"); !entry.Kept || string(entry.Message.Payload) != "5 EUR" {
						t.Errorf("%+v", entry)
					}
				})
			})
		}
	}
}

// dyingAt is a process that dies when its handler has failed and this is to be called.
func dyingAt(t *testing.T, w *world, at storefault.Method) *world {
	t.Helper()
	dying := worldOn(t, w.mem)
	failed := false
	dying.decide = func(m storefault.Method) {
		failed = failed || m == storefault.Release
		if failed && m == at {
			dying.down()
		}
	}
	return dying
}

// X3: who asks for something that makes no sense is told why.
func TestActsAreRefused(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		p.wantVerdict(t, message("done", "5 EUR"), inbox.Handled)
		p.park(t, message("m1", "5 EUR"))
		for _, c := range []struct {
			act  inbox.Act
			code onlyonce.Code
		}{
			{inbox.Act{Consumer: "balances", ID: "m1", Reason: "x"}, onlyonce.CodeConfig},
			{inbox.Act{Consumer: "balances", ID: "none", Actor: "ana", Reason: "x"}, onlyonce.CodeNotFound},
			{inbox.Act{Consumer: "none", ID: "m1", Actor: "ana", Reason: "x"}, onlyonce.CodeNotFound},
			{inbox.Act{Consumer: "balances", ID: "done", Actor: "ana", Reason: "x"}, onlyonce.CodeNotInDoubt},
		} {
			_, err := inbox.Retry(t.Context(), p.w.mem, c.act)
			wantCode(t, err, c.code)
			_, err = inbox.Drop(t.Context(), p.w.engine.Engine, c.act)
			wantCode(t, err, c.code)
		}
		_, err := inbox.Drop(t.Context(), p.w.engine.Engine, inbox.Act{Consumer: "balances", ID: "m1", Actor: "ana"})
		wantCode(t, err, onlyonce.CodeConfig)
		if entry := p.show(t, "m1"); len(entry.Audit) != 0 || entry.Record.State != onlyonce.InDoubt {
			t.Errorf("%+v", entry)
		}
	})
}

// X3: a dropped message is not handled any more, however it comes; that is in the audit.
func TestDrop(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		p.park(t, message("m1", "5 EUR"))
		if _, err := inbox.Retry(t.Context(), p.w.mem, p.act("m1")); err != nil {
			t.Fatal(err)
		}
		entry, err := inbox.Drop(t.Context(), p.w.engine.Engine, p.act("m1"))
		if err != nil || !entry.Dropped || entry.Kept || entry.RetryAsked || len(entry.Audit) != 2 {
			t.Errorf("%+v, %v", entry, err)
		}
		p.look(t)
		p.wantVerdict(t, message("m1", "5 EUR"), inbox.Duplicate)
		p.want(t)
		p.wantRuns(t, 3)
	})
}

// X3: retries, drops, redeliveries and sweeps at once: a dropped message has had no
// effect, any other has had one.
func TestRetryRacesWithDrop(t *testing.T) {
	t.Parallel()
	for name, make := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dropped := 0
			for round := range 40 {
				one := newWorld(t)
				e := &effects{}
				consumers := []processor{make(one, t, e), make(worldOn(t, one.mem), t, e)}
				consumers[0].park(t, message("m1", "5 EUR"))
				if _, err := inbox.Retry(t.Context(), one.mem, consumers[0].act("m1")); err != nil {
					t.Fatal(err)
				}
				drop := func() { _, _ = inbox.Drop(t.Context(), one.engine.Engine, consumers[0].act("m1")) }
				var group sync.WaitGroup
				if round%2 == 0 {
					group.Go(drop)
				}
				for i := range 2 {
					p := consumers[i]
					group.Go(func() { _, _ = inbox.Retry(t.Context(), p.w.mem, p.act("m1")) })
					group.Go(func() { _, _ = p.recoverer.Once(t.Context()) })
					group.Go(func() { _, _ = p.process(t.Context(), redelivered("m1", "5 EUR", 9)) })
					group.Go(func() { _, _ = p.w.mem.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10}) })
				}
				if round%2 == 1 {
					group.Go(drop)
				}
				group.Wait()
				entry := consumers[0].show(t, "m1")
				if entry.Record.State == onlyonce.InDoubt {
					consumers[0].retry(t, "m1")
					entry = consumers[0].show(t, "m1")
				}
				want := 1
				if entry.Dropped {
					want = 0
					dropped++
				}
				if len(e.seen) != want || entry.Record.State != onlyonce.Completed {
					t.Fatalf("dropped %v: %d effects, %s", entry.Dropped, len(e.seen), entry.Record.State)
				}
			}
			t.Logf("%d of 40 were dropped", dropped)
		})
	}
}

// Parked messages are listed by consumer, or of all of them, in pages; what a program
// from the future has kept too.
func TestList(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		p.w.cfg.MaxTries = 1
		for _, consumer := range []string{"balances", "receipts"} {
			p.w.cfg.Consumer = consumer
			q := kinds()["transactional"](p.w, t, p.effects)
			for i := range 120 {
				q.fail(1)
				q.wantVerdict(t, message("m"+strings.Repeat("i", i), "5 EUR"), inbox.Parked)
			}
			q.wantVerdict(t, message("fine", "5 EUR"), inbox.Handled)
		}
		// A key that is in doubt and no message.
		_, err := p.w.engine.Wrap(t.Context(), onlyonce.Op{Name: "x"}, onlyonce.Request{
			Key: onlyonce.Key{Scope: "acct", Value: "k"}, Canonical: sum("x"),
		}, func(context.Context) (onlyonce.Answer, error) { return onlyonce.Answer{}, errBroken })
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		for consumer, want := range map[string]int{"balances": 120, "receipts": 120, "": 240, "none": 0} {
			var seen []inbox.Entry
			after, pages := "", 0
			for ; pages == 0 || after != ""; pages++ {
				page, err := inbox.List(t.Context(), p.w.mem, consumer, after)
				if err != nil {
					t.Fatal(err)
				}
				seen, after = append(seen, page.Entries...), page.Next
			}
			if len(seen) != want || (want > 0 && pages < 2) {
				t.Errorf("%q: %d messages in %d pages", consumer, len(seen), pages)
			}
			for _, e := range seen {
				if !e.Kept || e.Message.ID == "" || e.Error == "" || (consumer != "" && e.Consumer != consumer) {
					t.Fatalf("%+v", e)
				}
			}
		}
	})
}

// What a newer program has kept is listed and can be dropped, and is not run.
func TestKeptByANewerProgram(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		for id, kept := range map[string]string{"new": `{"version":2}`, "strange": "}"} {
			key := inbox.KeyOf("balances", id)
			_, err := p.w.engine.Wrap(t.Context(), onlyonce.Op{Name: "inbox balances"}, onlyonce.Request{
				Key: key, Canonical: sum("5 EUR"), Keep: []byte(kept), Hold: func(error) string { return "parked" },
			}, func(context.Context) (onlyonce.Answer, error) { return onlyonce.Answer{}, errBroken })
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
			e := p.show(t, id)
			if !e.Kept || !strings.Contains(e.Error, "read kept message") {
				t.Errorf("%+v", e)
			}
			p.recoverer.Recovered = func(_ context.Context, turn onlyonce.Recovery) { wantCode(t, turn.Err, onlyonce.CodeConfig) }
			if sum := p.retry(t, id); sum.Completed != 0 {
				t.Errorf("%+v", sum)
			}
			if e, err := inbox.Drop(t.Context(), p.w.engine.Engine, p.act(id)); err != nil || !e.Dropped {
				t.Errorf("%+v, %v", e, err)
			}
		}
	})
}

// A store that is down when somebody acts says so, and a mark that may not have been
// given the next turn is one all the same.
func TestActsOnAStoreThatIsDown(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		p.park(t, message("m1", "5 EUR"))
		for _, down := range []storefault.Method{storefault.Get, storefault.Kept, storefault.AddAudit, storefault.Requeue} {
			store := storefault.New(p.w.mem, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
				if m == down {
					return storefault.Fault{Before: storefault.ErrDown}
				}
				return storefault.Fault{}
			})
			_, err := inbox.Retry(t.Context(), store, p.act("m1"))
			if !errors.Is(err, onlyonce.ErrUnreachable) {
				t.Errorf("%s is down: %v", down, err)
			}
		}
		if entry := p.show(t, "m1"); !entry.RetryAsked || len(entry.Audit) != 1 {
			t.Errorf("%+v", entry)
		}
		pass(time.Hour)
		p.look(t)
		p.want(t, "5 EUR")
	})
}
