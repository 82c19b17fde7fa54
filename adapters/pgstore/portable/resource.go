package portable

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// see reads a key and, where a resource is named, who holds that. The holder comes
// first: in read committed the two are of two moments.
func (t *txn) see(ctx context.Context, key onlyonce.Key, resource string) (sight, error) {
	var at sight
	var qs []question
	if resource != "" {
		qs = append(qs, at.readHolder(key.Scope, resource))
	}
	err := t.look(ctx, append(qs, at.readKey(key))...)
	if err == nil && at.torn(key) {
		err = errChanged
	}
	return at, err
}

// torn tells whether the key, as the holder of the resource, was changed between the two
// looks: it was swept, or has just let go of the resource, which somebody else may hold
// by now.
func (at sight) torn(key onlyonce.Key) bool {
	h, k := at.holder, at.key
	return h != nil && h.Key == key && (k == nil || k.version != h.version || k.Owner() != h.Owner())
}

// seeAgain is see for a resource that only the row has named. It must find the row as
// it was.
func (t *txn) seeAgain(ctx context.Context, before sight, resource string) (sight, error) {
	at, err := t.see(ctx, before.key.Key, resource)
	if err == nil && (at.key == nil || at.key.version != before.key.version || at.key.Owner() != before.key.Owner()) {
		err = errChanged
	}
	return at, err
}

// resourceBusy is the result of a claim whose resource another key holds; nil: none
// does. A record that has expired holds nothing.
func resourceBusy(at sight, now time.Time) *onlyonce.Claim {
	h := at.holder
	if h == nil || (at.key != nil && h.Key == at.key.Key) || h.Expired(now) {
		return nil
	}
	return &onlyonce.Claim{Verdict: onlyonce.ResourceBusy, Record: h.Record, Remaining: h.LeaseEnd.Sub(now)}
}

// hold makes the claimer the holder of its resource. An expired holder lets go of it
// first, by a write to its own row as well: should another node's clock think that it
// has not expired, and resume it, one of the two is rolled back.
func (t *txn) hold(ctx context.Context, c *claiming, holder *row) error {
	if !c.next.Holds {
		return nil
	}
	if holder != nil && holder.Key == c.next.Key {
		if c.Verdict == onlyonce.Resumed {
			return nil // it holds on
		}
		holder = nil // the old life let go of it
	}
	if holder != nil {
		free := *holder
		free.Holds = false
		if err := t.must(ctx, changeKey, holder.change(&free, false)...); err != nil {
			return err
		}
		if err := t.letGo(ctx, holder); err != nil {
			return err
		}
	}
	return t.must(ctx, takeResource, c.next.Key.Scope, c.next.Resource, c.next.Key.Value)
}

// letGo gives a row's resource up, if it holds one.
func (t *txn) letGo(ctx context.Context, r *row) error {
	if !r.Holds {
		return nil
	}
	return t.must(ctx, dropResource, r.Key.Scope, r.Resource, r.Key.Value)
}
