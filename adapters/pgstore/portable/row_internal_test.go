package portable

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
)

// X1: when a recoverer looks at a row again, by state and by what has left the store.
func TestDueOfRow(t *testing.T) {
	t.Parallel()
	const turn, leaseEnd = 1_000, 5_000
	for name, tt := range map[string]struct {
		state      onlyonce.State
		kept, call bool
		want       int64 // 0: never
	}{
		"nothing kept":      {state: onlyonce.InProgress},
		"in progress":       {state: onlyonce.InProgress, kept: true, want: leaseEnd},
		"in doubt":          {state: onlyonce.InDoubt, kept: true, want: turn},
		"freed behind one":  {state: onlyonce.FailedRetryable, kept: true, call: true, want: turn},
		"freed, none left":  {state: onlyonce.FailedRetryable, kept: true},
		"completed":         {state: onlyonce.Completed, kept: true, call: true},
		"doubt, none kept":  {state: onlyonce.InDoubt},
		"freed, not kept":   {state: onlyonce.FailedRetryable, call: true},
		"progress and call": {state: onlyonce.InProgress, kept: true, call: true, want: leaseEnd},
	} {
		r := row{kept: tt.kept, turnAt: turn, Record: onlyonce.Record{State: tt.state, LeaseEnd: time.UnixMicro(leaseEnd)}}
		got := r.due(tt.call)
		if (got == nil) != (tt.want == 0) || (got != nil && *got != tt.want) {
			t.Errorf("%s: %v, want %d", name, got, tt.want)
		}
	}
	late := row{kept: true, turnAt: 9_000, Record: onlyonce.Record{State: onlyonce.InProgress, LeaseEnd: time.UnixMicro(leaseEnd)}}
	if got := late.due(false); *got != 9_000 {
		t.Errorf("a turn that was put off comes at %d", *got)
	}
}

// Every state has a number and comes back; no other number is one.
func TestStatesHaveNumbers(t *testing.T) {
	t.Parallel()
	for _, state := range []onlyonce.State{onlyonce.InProgress, onlyonce.Completed, onlyonce.FailedRetryable, onlyonce.InDoubt} {
		n := numberOf(state)
		if back, err := stateOf(n); n < 1 || back != state || err != nil {
			t.Errorf("%s is %d, which is %q, %v", state, n, back, err)
		}
	}
	if numberOf(onlyonce.InProgress) != 1 || numberOf(onlyonce.Completed) != 2 || numberOf(onlyonce.FailedRetryable) != 3 || numberOf(onlyonce.InDoubt) != 4 {
		t.Error("the numbers are not those of the statements")
	}
	if stepNumber(onlyonce.StepBegun) != 1 || stepNumber(onlyonce.StepDone) != 2 || stepNumber(onlyonce.StepNotApplied) != 3 {
		t.Error("the numbers of steps are not those of the statements")
	}
	for _, n := range []int64{-1, 5, 1 << 40} {
		if state, err := stateOf(n); err == nil {
			t.Errorf("%d is %q", n, state)
		}
	}
}

// A cursor leads back to the key it was made of, whatever is in it; anything else is
// refused, not taken for a beginning.
func TestCursors(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		key := onlyonce.Key{Scope: rapid.StringN(1, 40, 255).Draw(rt, "scope"), Value: rapid.StringMatching(`[ -~]{1,255}`).Draw(rt, "value")}
		if key.Validate() != nil {
			rt.Skip("not a key")
		}
		if got, err := keyOf(cursor(key)); err != nil || got != key {
			rt.Fatalf("%q came back as %q, %v", key, got, err)
		}
	})
	if got, err := keyOf(""); err != nil || got != (onlyonce.Key{}) {
		t.Errorf("the beginning: %+v, %v", got, err)
	}
	for _, bad := range []string{"x", "00", "61", "6100", "0061", cursor(onlyonce.Key{Scope: "a", Value: "b"}) + "0"} {
		if got, err := keyOf(bad); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("cursor %q: %+v, %v", bad, got, err)
		}
	}
}

// DDL is taken apart at semicolons, without its comments, and put into a schema.
func TestStatementsOfDDL(t *testing.T) {
	t.Parallel()
	got := statements("-- one; of none\n\nCREATE TABLE IF NOT EXISTS onlyonce_x ( -- a; b\n    n bigint\n);\n-- end\nCREATE INDEX IF NOT EXISTS onlyonce_i ON onlyonce_x (n);\n")
	want := []string{"CREATE TABLE IF NOT EXISTS onlyonce_x (\n    n bigint\n)", "CREATE INDEX IF NOT EXISTS onlyonce_i ON onlyonce_x (n)"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("statements %q, want %q", got, want)
	}
	s := &Store{cfg: Config{Schema: `a"b`}}
	if ddl := s.qualified(got[0]); !strings.HasPrefix(ddl, `CREATE TABLE IF NOT EXISTS "a""b".onlyonce_x (`) {
		t.Errorf("the table: %s", ddl)
	}
	if ddl := s.qualified(got[1]); ddl != `CREATE INDEX IF NOT EXISTS onlyonce_i ON "a""b".onlyonce_x (n)` {
		t.Errorf("the index: %s", ddl)
	}
}

// A clock that was read goes on by the process's monotonic clock, in microseconds.
func TestClockGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		read := time.Date(2031, 5, 6, 7, 8, 9, 123_456_789, time.FixedZone("x", 3600))
		c := (&Store{}).clock(read)
		for _, gone := range []time.Duration{0, 1500 * time.Nanosecond, time.Hour} {
			<-time.After(gone)
			read = read.Add(gone)
			if got, want := c.now(), read.Truncate(time.Microsecond).UTC(); got != want {
				t.Errorf("it shows %v, want %v", got, want)
			}
		}
	})
	fixed := time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC)
	c := (&Store{cfg: Config{Now: func() time.Time { return fixed }}}).clock(time.Time{})
	if got := c.now(); !got.Equal(fixed.Truncate(time.Microsecond)) {
		t.Errorf("a clock of tests shows %v", got)
	}
}

// Reasons come from errors, which may hold anything.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"plain": "plain", "a\x00b": "a\uFFFDb", "\xff": "\uFFFD", "日本": "日本", "": ""} {
		if got := printable(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// C12: what is seen of a key at two moments is one sight only if nothing was changed in
// between: a key that was the holder may have lost its resource to another.
func TestTornSight(t *testing.T) {
	t.Parallel()
	key := onlyonce.Key{Scope: "s", Value: "k"}
	of := func(key onlyonce.Key, fence, version int64) *row {
		return &row{version: version, Record: onlyonce.Record{Key: key, Fence: fence}}
	}
	another := onlyonce.Key{Scope: "s", Value: "another"}
	for name, tt := range map[string]struct {
		at   sight
		want bool
	}{
		"nothing there":        {sight{}, false},
		"nobody holds":         {sight{key: of(key, 1, 1)}, false},
		"it holds":             {sight{holder: of(key, 1, 3), key: of(key, 1, 3)}, false},
		"another holds":        {sight{holder: of(another, 1, 3), key: of(key, 1, 4)}, false},
		"another, and no key":  {sight{holder: of(another, 1, 3)}, false},
		"swept in between":     {sight{holder: of(key, 1, 3)}, true},
		"has just let go":      {sight{holder: of(key, 1, 3), key: of(key, 1, 4)}, true},
		"another life already": {sight{holder: of(key, 1, 3), key: of(key, 2, 3)}, true},
	} {
		if got := tt.at.torn(key); got != tt.want {
			t.Errorf("%s: torn %v", name, got)
		}
	}
}
