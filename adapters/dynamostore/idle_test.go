package dynamostore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

// oneStep is the only step of a key as a handle tells it.
func oneStep(t *testing.T, s *dynamostore.Store, key onlyonce.Key) onlyonce.StepRecord {
	t.Helper()
	steps, err := s.Steps(t.Context(), key)
	if err != nil || len(steps) != 1 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	return steps[0]
}

// D4: how long a send lies behind is told by the handle's own clock, since it has
// known of it; the first send is at least as old as clocks say, and by what they may
// differ older.
func TestAgesWhereClocksDiffer(t *testing.T) {
	t.Parallel()
	const skew = 3 * time.Minute
	for name, ahead := range map[string]time.Duration{"behind": -2 * time.Minute, "ahead": 2 * time.Minute} {
		here, there := newClock(), newClock()
		there.advance(ahead)
		s, tb := migrated(t, dynamostore.Config{Now: here.Now, MaxClockSkew: skew})
		other := tb.open(t, dynamostore.Config{Now: there.Now, MaxClockSkew: skew})
		o := owner(t, s, stepsOf("k"))
		begin := func(s *dynamostore.Store) {
			t.Helper()
			held, err := s.BeginStep(t.Context(), o, intent("charge"))
			hold(t, held, err)
		}
		check := func(s *dynamostore.Store, age, idle time.Duration) {
			t.Helper()
			if st := oneStep(t, s, o.Key); st.Age != age || st.Idle != idle {
				t.Errorf("%s: age %v, idle %v; want %v and %v", name, st.Age, st.Idle, age, idle)
			}
		}
		pass := func(d time.Duration) { here.advance(d); there.advance(d) }
		begin(s)
		pass(10 * time.Second)
		check(s, skew+10*time.Second, 10*time.Second)
		check(other, skew+ahead+10*time.Second, 0) // met for the first time
		pass(10 * time.Second)
		check(other, skew+ahead+20*time.Second, 10*time.Second)
		begin(s) // another send
		check(s, skew+20*time.Second, 0)
		check(other, skew+ahead+20*time.Second, 0)
		pass(time.Hour)
		check(s, skew+time.Hour+20*time.Second, time.Hour)
		check(other, skew+ahead+time.Hour+20*time.Second, time.Hour)
	}
}

// D4: of a completed key clocks tell, and never too much.
func TestIdlenessOfACompletedKey(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, tb := migrated(t, dynamostore.Config{Now: c.Now, MaxClockSkew: time.Minute})
	other := tb.open(t, dynamostore.Config{Now: c.Now, MaxClockSkew: time.Minute})
	o := owner(t, s, stepsOf("k"))
	held, err := s.BeginStep(t.Context(), o, intent("charge"))
	hold(t, held, err)
	complete(t, s, o, "done")
	for _, want := range []time.Duration{0, time.Minute} {
		if st := oneStep(t, other, o.Key); st.Idle != want {
			t.Errorf("idle %v, want %v", st.Idle, want)
		}
		c.advance(2 * time.Minute)
	}
}

// D4: whatever the clocks say, a send is no younger than this handle has known of it,
// and never from the future.
func TestAgeIsNeverLessThanKnown(t *testing.T) {
	t.Parallel()
	here, there := newClock(), newClock()
	here.advance(time.Hour)
	s, tb := migrated(t, dynamostore.Config{Now: here.Now})
	behind := tb.open(t, dynamostore.Config{Now: there.Now})
	o := owner(t, s, stepsOf("k"))
	held, err := s.BeginStep(t.Context(), o, intent("charge"))
	hold(t, held, err)
	for _, want := range []time.Duration{0, time.Minute} {
		if st := oneStep(t, behind, o.Key); st.Age != want || st.Idle != want {
			t.Errorf("age %v, idle %v; want %v", st.Age, st.Idle, want)
		}
		there.advance(time.Minute)
	}
}

// D4: until when an earlier send may still leave is not shortened by a clock that is
// ahead.
func TestEarlierSendWhereClocksDiffer(t *testing.T) {
	t.Parallel()
	here, there := newClock(), newClock()
	there.advance(time.Hour)
	s, tb := migrated(t, dynamostore.Config{Now: here.Now})
	ahead := tb.open(t, dynamostore.Config{Now: there.Now})
	o := owner(t, s, stepsOf("k"))
	long, short := intent("charge"), intent("charge")
	long.SendWithin, short.SendWithin = time.Minute, time.Second
	held, err := s.BeginStep(t.Context(), o, long)
	hold(t, held, err)
	held, err = ahead.BeginStep(t.Context(), o, short)
	hold(t, held, err)
	if st := oneStep(t, ahead, o.Key); st.SendWithin != time.Minute {
		t.Errorf("something may leave within %v, want 1m", st.SendWithin)
	}
}

// form is a request without parts.
type form struct{}

func (form) Version() int                                        { return 1 }
func (form) Form(int, []byte) (onlyonce.Form, error)             { return form{}, nil }
func (form) Sum() [32]byte                                       { return [32]byte{1} }
func (form) Parts() []onlyonce.Part                              { return []onlyonce.Part{{Name: "body", Sum: [32]byte{1}}} }
func (form) Differs([]string, func(int, [32]byte) bool) []string { return nil }

// charges is a provider that shows a charge only after a while, and loses the reply to
// the first.
type charges map[string]bool

func (c charges) run(t *testing.T, s onlyonce.Store) {
	t.Helper()
	e, err := onlyonce.New(s, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	effect := onlyonce.Effect{
		Name: "charge", Provider: "acme", Request: []byte("100"), Visible: 20 * time.Second,
		Send: func(_ context.Context, s onlyonce.Sending) ([]byte, error) {
			c[s.Key] = true
			if len(c) == 1 {
				return nil, errors.New("no reply")
			}
			return []byte("charged"), nil
		},
		Check: func(context.Context, onlyonce.Sending) ([]byte, bool, error) { return nil, false, nil },
	}
	req := onlyonce.Request{Key: keyOf("k"), Canonical: form{}}
	_, _ = e.Steps(t.Context(), onlyonce.Op{Name: "POST /charges"}, req, func(ctx context.Context) (onlyonce.Answer, error) {
		id, err := onlyonce.Call(ctx, effect)
		return onlyonce.Answer{Status: 201, Body: id}, err
	})
}

// D1: a process whose clock is ahead takes no "not found" for proof, so that it does
// not charge a second time under a new key.
func TestNoSecondChargeByAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	s, tb := migrated(t, dynamostore.Config{})
	ahead := tb.open(t, dynamostore.Config{Now: func() time.Time { return time.Now().Add(2 * time.Minute) }})
	made := charges{}
	for _, s := range []onlyonce.Store{s, s, ahead, ahead} {
		made.run(t, s)
	}
	if len(made) != 1 {
		t.Errorf("%d charges, want 1", len(made))
	}
}
