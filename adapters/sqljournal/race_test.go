package sqljournal_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

// B82: many that begin, end and prune neighbouring entries meet deadlocks and conflicts,
// and hear nothing of them.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for name, fresh := range dialects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const callers, intents = 12, 8
			p := fresh(t)
			db := p.pool(t)
			db.SetMaxOpenConns(callers)
			j := newJournal(t, db, p.config())
			var made, pruned atomic.Int32
			var group sync.WaitGroup
			for n := range callers {
				group.Go(func() {
					for i := range intents {
						e := entryOf(fmt.Sprint("intent ", (i+n)%intents))
						e.Key = fmt.Sprint("key of ", n)
						stands, first, err := j.Begin(t.Context(), e)
						if err != nil || (first && stands.Key != e.Key) {
							t.Errorf("begin: %v, %v", first, err)
							return
						}
						if !first {
							continue
						}
						made.Add(1)
						l, e, err := j.Lock(t.Context(), e.Intent)
						if err != nil {
							t.Errorf("lock: %v", err)
							return
						}
						e.State, e.EndedAt = onceclient.NotSent, moment()
						if err := l.Save(t.Context(), e); err != nil {
							t.Errorf("save: %v", err)
						}
						if err := l.Unlock(); err != nil {
							t.Errorf("unlock: %v", err)
						}
						gone, err := j.Prune(t.Context(), moment().Add(time.Second), 3)
						if err != nil {
							t.Errorf("prune: %v", err)
						}
						pruned.Add(int32(gone))
					}
				})
			}
			group.Wait()
			if left := one[int32](t, db, `SELECT count(*) FROM onlyonce_journal`); made.Load()-pruned.Load() != left || made.Load() < intents {
				t.Errorf("made %d, pruned %d, left %d", made.Load(), pruned.Load(), left)
			}
		})
	}
}
