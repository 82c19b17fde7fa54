package portable_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

var errBusiness = errors.New("business failure")

// bundle is two handles on one database with a table of business data.
type bundle struct {
	s, other *portable.Store
	pool     *pgxpool.Pool
}

func setup(t *testing.T, cfg portable.Config) bundle {
	t.Helper()
	dsn := testserver.Postgres(t)
	b := bundle{s: migrated(t, dsn, cfg), other: migrated(t, dsn, cfg), pool: admin(t, dsn)}
	exec(t, b.pool, `CREATE TABLE charges (name text)`)
	return b
}

func (b bundle) charges(t *testing.T, want int) {
	t.Helper()
	if n := one[int](t, b.pool, `SELECT count(*) FROM charges`); n != want {
		t.Errorf("%d charges, want %d", n, want)
	}
}

// eachLevel runs a test in every isolation level.
func eachLevel(t *testing.T, test func(t *testing.T, b bundle)) {
	t.Helper()
	for name, cfg := range levels() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, setup(t, cfg))
		})
	}
}

// C10: a handler fails because an earlier commit of its own, whose reply was lost, has
// landed meanwhile: that is no failure.
func TestFailureBehindItsOwnCommit(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, b bundle) {
		t.Helper()
		owner := want(t, b.s, request("finish"), onlyonce.Won).Record.Owner()
		settled, err := b.s.Finish(t.Context(), owner, func(context.Context, pgx.Tx) (*onlyonce.Answer, error) {
			complete(t, b.other, owner)
			return nil, errBusiness
		})
		if err != nil || !settled.Held || settled.ExpiresAt.IsZero() {
			t.Errorf("finish: %+v, %v", settled, err)
		}
		owner = want(t, b.s, request("step"), onlyonce.Won).Record.Owner()
		result, held, err := b.s.StepTx(t.Context(), owner, reserve, func(context.Context, pgx.Tx) ([]byte, error) {
			if _, held, err := b.other.StepTx(t.Context(), owner, reserve, reserves); !held || err != nil {
				t.Errorf("the earlier one: held %v, %v", held, err)
			}
			return nil, errBusiness
		})
		if err != nil || !held || string(result) != "result" {
			t.Errorf("step: %q, held %v, %v", result, held, err)
		}
		b.charges(t, 1)
		owner = want(t, b.s, request("failed"), onlyonce.Won).Record.Owner()
		if _, held, err := b.s.StepTx(t.Context(), owner, reserve, func(context.Context, pgx.Tx) ([]byte, error) { return nil, errBusiness }); !held || !errors.Is(err, errBusiness) {
			t.Errorf("a step that fails by itself: held %v, %v", held, err)
		}
	})
}

// C6: what the same attempt, or a successor, has done meanwhile rolls the transaction
// back, at the latest when all of it is repeated.
func TestOvertakenTransactionsRollBack(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, b bundle) {
		t.Helper()
		overtake := func(fn func()) func() {
			done := false
			return func() {
				if !done {
					done = true
					fn()
				}
			}
		}
		resolving := func(owner onlyonce.Owner, value string) func() {
			return overtake(func() {
				if ok, err := b.other.Park(t.Context(), onlyonce.ParkRequest{Owner: owner}); !ok || err != nil {
					t.Error(ok, err)
				}
				next := again(request(value))
				next.Resolve = true
				want(t, b.other, next, onlyonce.Resumed)
			})
		}
		lost := want(t, b.s, request("lost"), onlyonce.Won).Record.Owner()
		act := resolving(lost, "lost")
		insist(t, func() (bool, error) {
			settled, err := b.s.Finish(t.Context(), lost, func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
				act()
				return charges(ctx, tx)
			})
			if settled.Held {
				t.Error("a fenced attempt finished")
			}
			return true, err
		})
		step := want(t, b.s, request("step"), onlyonce.Won).Record.Owner()
		act = resolving(step, "step")
		insist(t, func() (bool, error) {
			_, held, err := b.s.StepTx(t.Context(), step, reserve, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
				act()
				return reserves(ctx, tx)
			})
			if held && err == nil {
				t.Error("a fenced attempt did a step")
			}
			return true, err
		})
		b.charges(t, 0)
		// The same step twice at once: one of the two stands.
		twice := want(t, b.s, request("twice"), onlyonce.Won).Record.Owner()
		act = overtake(func() {
			if _, held, err := b.other.StepTx(t.Context(), twice, reserve, reserves); !held || err != nil {
				t.Errorf("the other one: held %v, %v", held, err)
			}
		})
		insist(t, func() (bool, error) {
			result, held, err := b.s.StepTx(t.Context(), twice, reserve, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
				act()
				_, err := charges(ctx, tx)
				return []byte("late"), err
			})
			return err == nil && held && string(result) == "result", err
		})
		b.charges(t, 1)
	})
}

// O8, O10: what Atomic gives back is what was stored, and stands byte for byte: big,
// empty, absent, not retained.
func TestAnswersStand(t *testing.T) {
	t.Parallel()
	b := setup(t, portable.Config{})
	for name, answer := range map[string]onlyonce.Answer{
		"usual":        created(),
		"big":          {Status: 200, Body: bytes.Repeat([]byte{0, 0xff, '\'', '\\'}, 1<<18)},
		"empty":        {Status: 204, Body: []byte{}},
		"absent":       {Status: 204},
		"not retained": {Status: 200, NotRetained: true, Header: map[string][]string{"Location": {"/charges/1"}}},
	} {
		req := request(name)
		c, settled, err := b.s.Atomic(t.Context(), req, func(context.Context, pgx.Tx) (*onlyonce.Answer, error) { return &answer, nil })
		if err != nil || !settled.Held {
			t.Fatalf("%s: %+v, %v", name, settled, err)
		}
		replay := want(t, b.other, again(req), onlyonce.Replay).Record
		if diff := cmp.Diff(c.Record, replay); diff != "" {
			t.Errorf("%s (-given +stored):\n%.2000s", name, diff)
		}
		if !bytes.Equal(replay.Answer.Body, answer.Body) || (replay.Answer.Body == nil) != answer.NotRetained {
			t.Errorf("%s: %d bytes were stored, want %d", name, len(replay.Answer.Body), len(answer.Body))
		}
	}
}

// Every way out of a handler gives the connection back, and leaves nothing.
func TestHandlerThatNeverReturns(t *testing.T) {
	t.Parallel()
	s := migrated(t, with(t, testserver.Postgres(t), "pool_max_conns", "1"), portable.Config{})
	for name, end := range map[string]func(){"panic": func() { panic("p") }, "goexit": runtime.Goexit} {
		req, done := request(name), make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_, _, _ = s.Atomic(t.Context(), req, func(context.Context, pgx.Tx) (*onlyonce.Answer, error) {
				end()
				return nil, nil
			})
		}()
		<-done
		want(t, s, req, onlyonce.Won)
	}
}

// A transaction whose context has ended commits nothing, and is not uncertain.
func TestContextThatEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, portable.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	_, settled, err := b.s.Atomic(ctx, request("k"), func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
		answer, err := charges(ctx, tx)
		cancel()
		return answer, err
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, onlyonce.ErrUncertain) || settled.Held {
		t.Errorf("atomic: %+v, %v", settled, err)
	}
	b.charges(t, 0)
	if _, err := b.s.Renew(t.Context(), onlyonce.Owner{Key: request("k").Key}, 0); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("a lease of nothing: %v", err)
	}
}

// C5, C9: with a pool of one, nothing of ours holds the connection while a leased
// handler thinks.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	s := migrated(t, with(t, testserver.Postgres(t), "pool_max_conns", "1"), portable.Config{})
	req := request("k")
	req.Abandon, req.Keep, req.Resource = onlyonce.AbandonResume, []byte("kept"), "order"
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	if ok, err := s.BeginStep(t.Context(), owner, intent); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := s.Renew(t.Context(), owner, time.Minute); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, held, err := s.StepTx(t.Context(), owner, reserve, func(context.Context, pgx.Tx) ([]byte, error) { return nil, nil }); !held || err != nil {
		t.Fatal(held, err)
	}
	settled, err := s.Finish(t.Context(), owner, func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
		answer := created()
		if settled, err := s.CompleteTx(ctx, tx, owner, answer); err != nil || !settled.Held {
			t.Errorf("complete in its own transaction: %+v, %v", settled, err)
		}
		return nil, nil // rolled back with it
	})
	if err != nil || settled.Held {
		t.Errorf("finish without an answer: %+v, %v", settled, err)
	}
	if _, err := s.Finish(t.Context(), owner, answers); err != nil {
		t.Error(err)
	}
	want(t, s, again(req), onlyonce.Replay)
}
