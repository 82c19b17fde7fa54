package inbox_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// each runs a test for both kinds of inbox.
func each(t *testing.T, fn func(p processor)) {
	t.Helper()
	for name, make := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := make(newWorld(t), t, &effects{})
				p.t = t
				fn(p)
			})
		})
	}
}

// I1: a message is handled once; what comes again is a duplicate, also where the source
// never heard the ack.
func TestHandledOnce(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		msg := message("m1", "5 EUR")
		p.wantVerdict(t, msg, inbox.Handled)
		p.wantVerdict(t, msg, inbox.Duplicate)
		p.wantVerdict(t, redelivered("m1", "5 EUR", 7), inbox.Duplicate)
		msg.Attributes = map[string]string{"redelivered": "true"} // they do not count
		p.wantVerdict(t, msg, inbox.Duplicate)
		p.want(t, "5 EUR")
		p.wantRuns(t, 1)
		if _, kept, err := p.w.mem.Kept(t.Context(), inbox.KeyOf("balances", "m1")); err != nil || kept {
			t.Errorf("kept of a handled message: %v, %v", kept, err)
		}
	})
}

// B114, I1: two relays deliver the same event at once, to two processes: one effect.
func TestDeliveredTwiceAtOnce(t *testing.T) {
	t.Parallel()
	for name, make := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := newWorld(t)
			e := &effects{}
			consumers := []processor{make(one, t, e), make(worldOn(t, one.mem), t, e)}
			var group sync.WaitGroup
			for i := range 16 {
				group.Go(func() {
					msg := message("m1", "5 EUR")
					for {
						verdict, _ := consumers[i%2].process(t.Context(), msg)
						if verdict == inbox.Handled || verdict == inbox.Duplicate {
							return
						}
						if verdict == inbox.Parked {
							t.Error("parked")
							return
						}
						msg.Deliveries = 2
					}
				})
			}
			group.Wait()
			e.want(t, "5 EUR")
		})
	}
}

// I2, B113: a failed handler leaves no mark and no effect; the redelivery runs, later
// each time.
func TestFailedHandlerLeavesNoMark(t *testing.T) {
	t.Parallel()
	for name, failing := range map[string]func(inbox.Message) error{
		"error": func(inbox.Message) error { return errBroken },
		"panic": func(inbox.Message) error { panic(errBroken) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(p processor) {
				t := p.t

				p.before = failing
				for i, pause := range []time.Duration{time.Second, 2 * time.Second} {
					err := p.wantVerdict(t, redelivered("m1", "5 EUR", i+1), inbox.Again)
					wantCode(t, err, onlyonce.CodeHandlerFailed)
					if err.RetryAfter != pause || !strings.Contains(err.Error(), errBroken.Error()) {
						t.Errorf("try %d: after %v, %v", i+1, err.RetryAfter, err)
					}
				}
				p.want(t)
				p.before = nil
				p.wantVerdict(t, redelivered("m1", "5 EUR", 3), inbox.Handled)
				p.want(t, "5 EUR")
			})
		})
	}
}

// I2: what a handler wrote before it failed is rolled back with it.
func TestFailureUndoesTheEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newWorld(t).transactional(t, &effects{})
		p.after = func(inbox.Message) error { return errBroken }
		p.wantVerdict(t, message("m1", "5 EUR"), inbox.Again)
		p.wantVerdict(t, redelivered("m1", "5 EUR", 2), inbox.Again)
		p.want(t)
		p.after = nil
		p.wantVerdict(t, redelivered("m1", "5 EUR", 3), inbox.Handled)
		p.want(t, "5 EUR")
	})
}

// I2: a store that is down costs a delivery, not a try, and nothing is run; the lost
// reply to a commit is no second effect.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		p.w.down()
		for i := range 9 {
			wantCode(t, p.wantVerdict(t, redelivered("m1", "5 EUR", i), inbox.Again), onlyonce.CodeStoreUnavailable)
		}
		p.wantRuns(t, 0)
		p.w.up()
		p.wantVerdict(t, redelivered("m1", "5 EUR", 10), inbox.Handled)
		p.w.fault.Store(&storefault.Fault{After: onlyonce.ErrUncertain})
		p.wantVerdict(t, message("m2", "7 EUR"), inbox.Again)
		p.w.up()
		pass(time.Minute)
		for {
			verdict, err := p.process(t.Context(), redelivered("m2", "7 EUR", 2))
			if verdict.Ack() {
				break
			}
			pass(time.Second)
			if verdict == inbox.Parked {
				t.Fatal(err)
			}
		}
		p.want(t, "5 EUR", "7 EUR")
	})
}

// I2: a consumer that is killed between receive and commit has done nothing that lasts,
// and the redelivery runs; between commit and ack, the redelivery is skipped.
func TestKilledConsumer(t *testing.T) {
	t.Parallel()
	for name, make := range kinds() {
		for _, deliveries := range []int{0, 1, 2} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					e := &effects{}
					dying := make(newWorld(t), t, e)
					e.before = func(inbox.Message) error { dying.w.down(); return errBroken }
					dying.wantVerdict(t, redelivered("m1", "5 EUR", deliveries), inbox.Again)
					dying.w.end(t, 0)
					e.before = nil

					next := make(worldOn(t, dying.w.mem), t, e)
					for {
						verdict, err := next.process(t.Context(), redelivered("m1", "5 EUR", deliveries+1))
						if verdict.Ack() {
							break
						}
						wantCode(t, err, onlyonce.CodeInProgress) // until the lease is over
						pass(5 * time.Second)
					}
					next.want(t, "5 EUR")
					last := make(worldOn(t, dying.w.mem), t, e)
					last.wantVerdict(t, redelivered("m1", "5 EUR", deliveries+2), inbox.Duplicate)
					last.want(t, "5 EUR")
				})
			})
		}
	}
}

// I2: a message that ends its consumer each time is parked, where the source says that it
// delivers again: its tries count although none of them ends.
func TestDeadlyMessageIsParked(t *testing.T) {
	t.Parallel()
	for name, make := range kinds() {
		for _, sweeps := range []string{"with sweeps", "without sweeps"} {
			t.Run(name+" "+sweeps, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					e := &effects{}
					mem := newWorld(t).mem
					verdict := inbox.Again
					for try := 1; verdict != inbox.Parked && try < 9; try++ {
						p := make(worldOn(t, mem), t, e)
						e.before = func(inbox.Message) error { p.w.down(); return errBroken }
						verdict, _ = p.process(t.Context(), redelivered("m1", "5 EUR", try))
						p.w.end(t, 0)
						pass(time.Minute)
						if sweeps == "with sweeps" {
							sweep(t, mem)
						}
					}
					p := make(worldOn(t, mem), t, e)
					p.wantVerdict(t, redelivered("m1", "5 EUR", 9), inbox.Parked)
					if entry := p.show(t, "m1"); !entry.Kept || string(entry.Message.Payload) != "5 EUR" ||
						!strings.Contains(entry.Record.Reason, "did not come to an end") {
						t.Errorf("%+v", entry)
					}
					if e.runs > 4 { // the first one of a transaction leaves no trace
						t.Errorf("it ran %d times", e.runs)
					}
				})
			})
		}
	}
}

// I2: after its tries a message is parked with its payload, what came beside it and its
// error; nothing of the payload is in the reason, and redeliveries run nothing.
func TestPoisonIsParked(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		entry := p.park(t, message("m1", "secret 5 EUR"))
		want := inbox.Message{ID: "m1", Payload: []byte("secret 5 EUR"), Attributes: map[string]string{"topic": "charges"}}
		if diff := cmp.Diff(want, entry.Message); diff != "" {
			t.Errorf("kept (-want +got):\n%s", diff)
		}
		if entry.Record.Reason != "held: parked after 3 tries: the account is closed" || entry.Error != errBroken.Error() {
			t.Errorf("reason %q, error %q", entry.Record.Reason, entry.Error)
		}
		for n := range 6 {
			if err := p.wantVerdict(t, redelivered("m1", "secret 5 EUR", n), inbox.Parked); err != nil {
				t.Errorf("parked again: %v", err)
			}
		}
		if again := p.show(t, "m1"); again.Record.Fence != entry.Record.Fence || again.Record.Attempts != entry.Record.Attempts {
			t.Errorf("a redelivery has changed the record: %+v", again.Record)
		}
		p.wantRuns(t, 3)
		p.want(t)
		// Nothing but a person ends it.
		pass(10 * 365 * 24 * time.Hour)
		sweep(t, p.w.mem)
		p.wantVerdict(t, message("m1", "secret 5 EUR"), inbox.Parked)
	})
}

// A long error is cut where it is a reason, and is one line.
func TestReasonIsShort(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		p.before = func(inbox.Message) error { return textError(strings.Repeat("ä\n", 9999)) }
		for range 3 {
			_, _ = p.process(t.Context(), message("m1", "5 EUR"))
		}
		e := p.show(t, "m1")
		if len(e.Record.Reason) > 255 || strings.Contains(e.Record.Reason, "\n") || !strings.HasSuffix(e.Record.Reason, "…") || len(e.Error) > 4096 {
			t.Errorf("reason of %d bytes, error of %d: %q", len(e.Record.Reason), len(e.Error), e.Record.Reason)
		}
	})
}

type textError string

func (e textError) Error() string { return string(e) }

// I3: the same id with another payload is parked under a key of its own and reported,
// whatever became of the first, and is never run.
func TestOtherPayload(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(t *testing.T, p processor){
		"handled": func(t *testing.T, p processor) { t.Helper(); p.wantVerdict(t, message("m1", "5 EUR"), inbox.Handled) },
		"parked":  func(t *testing.T, p processor) { t.Helper(); p.park(t, message("m1", "5 EUR")) },
		"failed": func(t *testing.T, p processor) {
			t.Helper()
			p.fail(1)
			p.wantVerdict(t, message("m1", "5 EUR"), inbox.Again)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(p processor) {
				t := p.t

				first(t, p)
				runs := p.runs
				for _, deliveries := range []int{0, 1, 5} {
					for _, payload := range []string{"500 EUR", "6 EUR"} {
						err := p.wantVerdict(t, redelivered("m1", payload, deliveries), inbox.Parked)
						if (err != nil) != (deliveries == 0) {
							t.Errorf("delivery %d of %s is reported by %v", deliveries, payload, err)
						}
						if err != nil {
							wantCode(t, err, onlyonce.CodeKeyReused)
						}
					}
				}
				p.wantRuns(t, runs)
				page, err := inbox.List(t.Context(), p.w.mem, "balances", "")
				if err != nil {
					t.Fatal(err)
				}
				var others []string
				for _, e := range page.Entries {
					if !e.OtherPayload {
						continue
					}
					others = append(others, string(e.Message.Payload))
					if e.Message.ID != "m1" || !strings.HasPrefix(e.Record.Key.Value, "m1#") || e.Record.Attempts != 1 {
						t.Errorf("%+v", e)
					}
					_, err := inbox.Retry(t.Context(), p.w.mem, p.act(e.Record.Key.Value))
					wantCode(t, err, onlyonce.CodeConfig)
					// Not even a mark that is there all the same has it run.
					err = p.w.mem.AddAudit(t.Context(), onlyonce.AuditEntry{Key: e.Record.Key, Action: inbox.ActionRetry, Actor: "ana", Fence: e.Record.Fence})
					if err != nil {
						t.Fatal(err)
					}
					pass(time.Hour)
					p.look(t)
					if _, err := inbox.Drop(t.Context(), p.w.engine.Engine, p.act(e.Record.Key.Value)); err != nil {
						t.Error(err)
					}
					p.wantVerdict(t, message("m1", string(e.Message.Payload)), inbox.Duplicate)
				}
				if len(others) != 2 {
					t.Errorf("parked %q", others)
				}
				p.wantRuns(t, runs)
			})
		})
	}
}

// I3, B85: two consumers of one message do not disturb each other, and neither do two
// messages that are alike (B119).
func TestConsumersAndMessagesAreApart(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		p.wantVerdict(t, message("m1", "5 EUR"), inbox.Handled)
		p.wantVerdict(t, message("m2", "5 EUR"), inbox.Handled)
		p.want(t, "5 EUR", "5 EUR")
		other := worldOn(t, p.w.mem)
		other.cfg.Consumer = "receipts"
		for name, make := range kinds() {
			other.cfg.Consumer = name
			make(other, t, p.effects).wantVerdict(t, message("m1", "another payload"), inbox.Handled)
		}
		p.want(t, "5 EUR", "5 EUR", "another payload", "another payload")
	})
}

// I4: a handled message is remembered for its retention, from when it was handled, and is
// then swept as a key is; what comes later is handled again.
func TestRetention(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		msg := message("m1", "5 EUR")
		p.wantVerdict(t, msg, inbox.Handled)
		pass(inbox.DefaultRetention - time.Second)
		deleted := func() int {
			res, err := p.w.mem.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return res.Deleted
		}
		if n := deleted(); n != 0 {
			t.Errorf("%d swept too early", n)
		}
		p.wantVerdict(t, msg, inbox.Duplicate)
		pass(time.Second)
		if n := deleted(); n != 1 {
			t.Errorf("%d swept", n)
		}
		p.wantVerdict(t, msg, inbox.Handled)
	})
}

// A message without an id cannot be told from its redelivery: it is refused, loudly.
func TestNoID(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		wantCode(t, p.wantVerdict(t, message("", "5 EUR"), inbox.Again), onlyonce.CodeKeyRequired)
		p.wantRuns(t, 0)
	})
}

// A handler whose caller goes away is not cut short, and its tries count.
func TestHandlerOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		leaving := func(id string, failure error) (inbox.Verdict, error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p.before = func(inbox.Message) error { cancel(); return failure }
			return p.process(ctx, message(id, "5 EUR"))
		}
		if verdict, err := leaving("m1", nil); verdict != inbox.Handled {
			t.Errorf("%v, %v", verdict, err)
		}
		for n, want := range []inbox.Verdict{inbox.Again, inbox.Again, inbox.Parked} {
			if verdict, err := leaving("m2", errBroken); verdict != want {
				t.Errorf("try %d: %v, %v", n+1, verdict, err)
			}
		}
	})
}

// A transaction calls nobody outside: it would call again with the next try (B117).
func TestTransactionCallsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in, err := inbox.NewTx(w.engine, w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		verdict, err := in.Process(t.Context(), redelivered("m1", "5 EUR", n), func(ctx context.Context, _ *memstore.Tx, _ inbox.Message) error {
			_, err := onlyonce.Call(ctx, onlyonce.Effect{Name: "notify", Provider: "mailer", Send: func(context.Context, onlyonce.Sending) ([]byte, error) {
				t.Error("it was called")
				return nil, nil
			}})
			return err
		})
		if verdict == inbox.Handled || err == nil {
			t.Errorf("delivery %d: %v, %v", n, verdict, err)
		}
	}
}

// S1: a message's key is told from all others.
func TestOwns(t *testing.T) {
	t.Parallel()
	if !inbox.Owns(inbox.KeyOf("mail", "m1")) || inbox.Owns(onlyonce.Key{Scope: "acct", Value: "inbox:m1"}) {
		t.Error("keys of messages are not told from others")
	}
}

// I3: a handler may change what it is given; the next run, and what is parked, have what came.
func TestHandlerChangesItsMessage(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		p.before = func(msg inbox.Message) error {
			copy(msg.Payload, "????")
			msg.Attributes["topic"] = "????"
			return errBroken
		}
		msg := message("m1", "5 EUR")
		for range 3 {
			if verdict, err := p.process(t.Context(), msg); onlyonce.CodeOf(err) == onlyonce.CodeKeyReused {
				t.Fatalf("%v, %v", verdict, err)
			}
		}
		got := p.show(t, "m1")
		if got.OtherPayload || string(got.Message.Payload) != "5 EUR" || got.Message.Attributes["topic"] != "charges" {
			t.Errorf("kept is %+v", got)
		}
	})
}

// C11: an outage of the store takes no tries from a message, however it is handled.
func TestOutageTakesNoTries(t *testing.T) {
	t.Parallel()
	for _, deliveries := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			p := w.transactional(t, &effects{})
			p.t = t
			msg := message("m1", "5 EUR")
			msg.Deliveries = deliveries
			down := true
			w.decide = func(m storefault.Method) {
				w.up()
				if down && (m == storefault.Finish || m == storefault.Atomic) {
					w.down()
				}
			}
			for range 4 {
				if verdict, err := p.process(t.Context(), msg); verdict != inbox.Again || onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
					t.Fatalf("deliveries %d: %v, %v", deliveries, verdict, err)
				}
			}
			down = false
			p.wantVerdict(t, msg, inbox.Handled)
			p.want(t, "5 EUR")
		})
	}
}
