package tests_test

import (
	"math/rand/v2"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// The primary is killed in the middle of a storm and its synchronous standby
// promoted, which the servers find by themselves. No answer that was given is lost,
// no charge is made twice, none is missing. (C3, C10)
func TestStandbyPromoted(t *testing.T) {
	pair := testserver.NewPair(t)
	f := newFleet(t, pair.DSN(), 2, window/2)
	f.source = sources
	s := newSeen()
	f.stormWhile(t, s, func(round int, _ *rand.Rand) (more bool) {
		if round == 1 {
			if err := pair.Primary.Kill(); err != nil {
				t.Error(err)
			}
			if err := pair.Promote(t.Context()); err != nil {
				t.Error(err)
			}
		}
		return round < 3
	})
	f.settle(t.Context(), t, s)
	s.check(t, f.keys)
	f.judge(t, f.keys-f.declined())
}
