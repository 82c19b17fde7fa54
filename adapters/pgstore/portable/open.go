package portable

import (
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// openKeys are the keys that transactions of this process own and have not yet
// committed, so that their duplicates here neither wait nor take a connection.
type openKeys struct {
	mu   sync.Mutex
	keys map[onlyonce.Key]struct{}
}

func newOpenKeys() *openKeys { return &openKeys{keys: map[onlyonce.Key]struct{}{}} }

// enter adds a key; false: it is there already.
func (o *openKeys) enter(key onlyonce.Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.keys[key]; ok {
		return false
	}
	o.keys[key] = struct{}{}
	return true
}

func (o *openKeys) leave(key onlyonce.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.keys, key)
}

func (o *openKeys) has(key onlyonce.Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.keys[key]
	return ok
}
