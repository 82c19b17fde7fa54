package watch_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/watch"
)

const lease = 30 * time.Second

func sight(key string, fence, renewal int64) watch.Sight {
	return watch.Sight{Digest: onlyonce.Key{Scope: "s", Value: key}.Digest(), Fence: fence, Renewal: renewal, Lease: lease}
}

// C4: a lease is over when it was watched for all of it, unchanged.
func TestRemaining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch.New(nil, 0)
		steps := []struct {
			wait  time.Duration
			sight watch.Sight
			want  time.Duration
		}{
			{0, sight("a", 1, 0), lease},
			{lease - 1, sight("a", 1, 0), 1},
			{1, sight("a", 1, 0), 0},
			{time.Second, sight("a", 1, 0), -time.Second},
			{0, sight("b", 1, 0), lease}, // another key
			{0, sight("a", 1, 1), lease}, // renewed
			{10 * time.Second, sight("a", 1, 1), 20 * time.Second},
			{0, sight("a", 2, 1), lease},                // taken over
			{10 * time.Second, sight("a", 2, 0), lease}, // never to be taken for an earlier one
		}
		for i, s := range steps {
			<-time.After(s.wait)
			if got := w.Remaining(s.sight); got != s.want {
				t.Errorf("look %d: %v left, want %v", i, got, s.want)
			}
		}
		w.Forget(sight("a", 0, 0).Digest)
		if got := w.Remaining(sight("a", 2, 0)); got != lease || w.Len() != 2 {
			t.Errorf("after it was forgotten: %v left of %d keys", got, w.Len())
		}
	})
}

// One key too many waits for its place; those that are watched keep theirs, or none
// would ever be watched for a lease.
func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch.New(nil, 2)
		look := func(key string, want time.Duration) {
			t.Helper()
			if got := w.Remaining(sight(key, 1, 0)); got != want {
				t.Errorf("%s: %v left, want %v", key, got, want)
			}
		}
		for round := range 4 {
			left := lease - time.Duration(round)*10*time.Second
			look("a", left)
			look("b", left)
			look("c", lease)
			<-time.After(10 * time.Second)
		}
		w.Forget(sight("a", 0, 0).Digest)
		look("c", lease)
		<-time.After(10 * time.Second)
		look("c", lease-10*time.Second)
		look("d", lease)
		// What nobody looks at any more makes room in the end.
		<-time.After(time.Hour)
		look("c", lease-10*time.Second-time.Hour)
		look("d", lease)
		<-time.After(time.Second)
		look("d", lease-time.Second)
		if w.Len() != 2 {
			t.Errorf("%d are watched", w.Len())
		}
	})
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	w := watch.New(nil, 50)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 200 {
				s := sight(fmt.Sprint(n%100), int64(i), 0)
				if left := w.Remaining(s); left > lease {
					t.Errorf("%v left of %v", left, lease)
				}
				if n%3 == 0 {
					w.Forget(s.Digest)
				}
			}
		})
	}
	wg.Wait()
	if w.Len() > 50 {
		t.Errorf("%d keys are watched, more than the limit", w.Len())
	}
}
