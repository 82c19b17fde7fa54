package local_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/local"
)

func digest(value string) onlyonce.Digest {
	return onlyonce.Key{Scope: "acct", Value: value}.Digest()
}

// C2: of any number that enter a key at once one does, until it leaves.
func TestOpen(t *testing.T) {
	t.Parallel()
	open := local.NewOpen()
	for round := range 3 {
		var entered atomic.Int32
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if open.Enter(digest("k")) {
					entered.Add(1)
				}
			})
		}
		wg.Wait()
		if n := entered.Load(); n != 1 || !open.Has(digest("k")) || open.Has(digest("other")) {
			t.Fatalf("round %d: %d entered; there: %v, another: %v", round, n, open.Has(digest("k")), open.Has(digest("other")))
		}
		open.Leave(digest("k"))
		if open.Has(digest("k")) {
			t.Fatal("a key that was left is still there")
		}
	}
}

// C10: an attempt whose commit was not answered is known once.
func TestLost(t *testing.T) {
	t.Parallel()
	open := local.NewOpen()
	attempt := onlyonce.NewToken()
	if open.WasLost(attempt) {
		t.Error("lost before anything happened")
	}
	open.Lose(attempt)
	if !open.WasLost(attempt) || open.WasLost(attempt) {
		t.Error("an attempt that was lost is to be known once")
	}
	for range 5000 { // bounded: what is forgotten may be told that its key is busy
		open.Lose(onlyonce.NewToken())
	}
	open.Lose(attempt)
	if !open.WasLost(attempt) {
		t.Error("the last attempt is forgotten")
	}
}

func TestSeen(t *testing.T) {
	t.Parallel()
	seen := local.NewSeen()
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				d := digest(fmt.Sprint(worker, i))
				if seen.Has(d) {
					t.Errorf("a key that nobody has met is known")
				}
				seen.Add(d)
			}
		})
	}
	wg.Wait()
	if last := digest("last"); seen.Has(last) {
		t.Error("known before it was met")
	} else if seen.Add(last); !seen.Has(last) {
		t.Error("the key met last is forgotten")
	}
}
