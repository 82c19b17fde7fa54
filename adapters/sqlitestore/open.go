package sqlitestore

import (
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// openClaims are the keys whose claim is inside a transaction of this process
// that is not committed yet. SQLite shows them to nobody, and a duplicate that
// asked for the write lock would wait for the whole transaction.
type openClaims struct {
	mu   sync.Mutex
	keys map[onlyonce.Key]onlyonce.Record
}

// find answers a claim on an open key.
func (o *openClaims) find(req onlyonce.ClaimRequest, now time.Time) (onlyonce.Claim, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.findLocked(req, now)
}

func (o *openClaims) findLocked(req onlyonce.ClaimRequest, now time.Time) (onlyonce.Claim, bool) {
	rec, ok := o.keys[req.Key]
	if !ok {
		return onlyonce.Claim{}, false
	}
	c := onlyonce.Claim{Verdict: onlyonce.Busy, Record: rec, Remaining: rec.LeaseEnd.Sub(now)}
	if !rec.Fingerprint.Equal(req.Fingerprint) {
		c.Verdict = onlyonce.Mismatch
	}
	return c, true
}

// enter notes the key as open, or answers the claim when it is already. The
// record is what the claim would write now; its fence is only decided when the
// lock is held, and is left out.
func (o *openClaims) enter(req onlyonce.ClaimRequest, now time.Time) (onlyonce.Claim, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c, busy := o.findLocked(req, now); busy {
		return c, true
	}
	if o.keys == nil {
		o.keys = map[onlyonce.Key]onlyonce.Record{}
	}
	rec := claimed(req, 0, now)
	rec.Fence, rec.Origin = 0, 0
	o.keys[req.Key] = rec
	return onlyonce.Claim{}, false
}

func (o *openClaims) leave(key onlyonce.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.keys, key)
}
