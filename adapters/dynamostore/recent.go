package dynamostore

import (
	"container/list"
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// recentLimit is how many rows a handle remembers: as many as it has operations under
// way.
const recentLimit = 2048

// recent remembers rows in progress as this handle has last written them, so that
// their owner's next write needs no read: it is conditional on the row as it is
// remembered, and reads when that fails. Nothing but a write is decided by it.
type recent struct {
	mu    sync.Mutex
	rows  map[onlyonce.Digest]*list.Element
	order list.List // of row, from the one written longest ago
}

func (r *recent) get(d onlyonce.Digest) (row, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.rows[d]
	if !ok {
		return row{}, false
	}
	return e.Value.(row), true //nolint:forcetypeassert // nothing else is in the list
}

// note takes a row that was written; one that is not in progress is forgotten.
func (r *recent) note(d onlyonce.Digest, written row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.rows[d]; ok {
		r.order.Remove(e)
		delete(r.rows, d)
	}
	if !written.found || written.State != onlyonce.InProgress {
		return
	}
	if r.rows == nil {
		r.rows = map[onlyonce.Digest]*list.Element{}
	}
	r.rows[d] = r.order.PushBack(written)
	for r.order.Len() > recentLimit {
		first := r.order.Front()
		r.order.Remove(first)
		delete(r.rows, first.Value.(row).Key.Digest()) //nolint:forcetypeassert // nothing else is in the list
	}
}
