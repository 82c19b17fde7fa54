package oncehttp

import (
	"context"
	"errors"

	"github.com/onlyonce-go/onlyonce"
)

// vet holds back what today's caller may not see: a stored answer, or in what
// the request differs from the recorded one (rules S5, F6).
func (c *call) vet(req onlyonce.Request, res onlyonce.Result, err error) (onlyonce.Result, error) {
	e, failed := errors.AsType[*onlyonce.Error](err)
	reused := failed && e.Code == onlyonce.CodeKeyReused
	if !reused && (err != nil || res.Status != onlyonce.Replayed) {
		return res, err
	}
	denied := c.authorize(req.Key, res)
	if !reused {
		if denied != nil {
			return onlyonce.Result{}, denied
		}
		return res, nil
	}
	if denied != nil {
		hidden := *e
		hidden.Differs = nil
		return res, &hidden
	}
	return res, err
}

// authorize asks the route's hook, if it has one. The record is read anew. That
// of another run is not the one behind a replay, for the key may have expired and
// begun a new life meanwhile: then what the result says stands for it. A mismatch
// names no run; where there is no record any more, nobody may see it.
func (c *call) authorize(key onlyonce.Key, res onlyonce.Result) error {
	ask := c.door.route.Authorize
	if ask == nil {
		return nil
	}
	ctx := context.WithoutCancel(c.r.Context())
	record, found, err := c.door.guard.engine.Store().Get(ctx, key)
	replayed := res.Status == onlyonce.Replayed
	switch {
	case err != nil:
		return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "authorize replay", Operation: key.Operation(), Err: err}
	case replayed && (!found || record.Fence != res.Fence || record.Attempt != res.Attempt):
		record = onlyonce.Record{
			Key: key, Operation: c.op.Name, State: res.State, Fence: res.Fence,
			Attempt: res.Attempt, Answer: &res.Answer, ExpiresAt: res.ExpiresAt,
		}
	case !found:
		return forbidden(key, nil)
	}
	return refusedBy(key, ask(c.request(c.r.Context()), record))
}

// refusedBy is what a hook's refusal is answered with; nil if it did not refuse.
func refusedBy(key onlyonce.Key, err error) error {
	if _, ok := errors.AsType[*Problem](err); ok || err == nil {
		return err
	}
	return forbidden(key, err)
}

func forbidden(key onlyonce.Key, err error) error {
	return &onlyonce.Error{
		Code: CodeForbidden, Op: "authorize replay", Operation: key.Operation(), Err: err,
		Hint: "The caller may not see the stored answer of this key.",
	}
}
