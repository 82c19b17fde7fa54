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

// authorize asks the route's hook, if it has one. The record is read anew: it
// is the one behind the result, or what the result says where it is gone.
func (c *call) authorize(key onlyonce.Key, res onlyonce.Result) error {
	ask := c.door.route.Authorize
	if ask == nil {
		return nil
	}
	ctx := context.WithoutCancel(c.r.Context())
	record, found, err := c.door.guard.engine.Store().Get(ctx, key)
	if err != nil {
		return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "authorize replay", Operation: key.Operation(), Err: err}
	}
	if !found {
		record = onlyonce.Record{
			Key: key, Operation: c.op.Name, State: res.State, Fence: res.Fence,
			Attempt: res.Attempt, Answer: &res.Answer, ExpiresAt: res.ExpiresAt,
		}
	}
	err = ask(c.request(c.r.Context()), record)
	if _, ok := errors.AsType[*Problem](err); ok || err == nil {
		return err
	}
	return &onlyonce.Error{
		Code: CodeForbidden, Op: "authorize replay", Operation: key.Operation(), Err: err,
		Hint: "The caller may not see the stored answer of this key.",
	}
}
