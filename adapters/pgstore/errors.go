package pgstore

import "github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"

// What makes digests of keys, held resources and steps unique.
const (
	keysIndex  = "onlyonce_keys_pkey"
	holdsIndex = "onlyonce_keys_holds"
	stepsIndex = "onlyonce_steps_pkey"
)

// What an error may have left behind.
const (
	undone     = pgerr.Undone
	committing = pgerr.Committing
)

// classify makes a driver's error one of the store contract's. That a key's row is
// taken is a conflict: somebody made it without its lock.
func classify(op string, err error, f pgerr.Fate) error {
	return pgerr.Classify(op, err, f, keysIndex)
}

// conflict tells whether a concurrent transaction stood in the way.
func conflict(err error) bool { return pgerr.Conflict(err, keysIndex) }

// lostResource tells whether another key was faster to take hold of a resource.
func lostResource(err error) bool { return pgerr.NotUnique(err, holdsIndex) }
