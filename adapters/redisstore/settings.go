package redisstore

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// Setting reads a value from the master, never from a replica that may not have
// it yet.
func (s *Store) Setting(ctx context.Context, kind, id string) ([]byte, bool, error) {
	c := call{op: "read setting", script: s.scripts.setting, key: s.settingsName(), args: []any{join(kind, id)}, reads: true}
	r, err := s.run(ctx, c)
	if err != nil {
		return nil, false, err
	}
	d := decode(r.value)
	value, found := d.optional()
	if d.err != nil {
		return nil, false, unreadable(c.op, d.err)
	}
	if !found {
		return nil, false, nil
	}
	return []byte(value), true, nil
}

// AddSetting inserts the value unless one is there, and returns the one that
// stands. Of several processes that add at once, all get the same. Settings do
// not expire.
func (s *Store) AddSetting(ctx context.Context, kind, id string, value []byte) ([]byte, error) {
	if s.cfg.WaitReplicas == 0 { // else it counts only once replicas have confirmed it
		if stands, found, err := s.Setting(ctx, kind, id); err != nil || found {
			return stands, err
		}
	}
	c := call{
		op: "add setting", script: s.scripts.addSetting, key: s.settingsName(), confirm: true,
		args: []any{join(kind, id), value},
	}
	r, err := s.run(ctx, c)
	if err != nil {
		return nil, err
	}
	if r.unconfirmed != nil {
		return nil, unconfirmed(c.op, r.unconfirmed)
	}
	d := decoder{values: []any{r.value}}
	stands := d.text()
	if d.err != nil {
		return nil, &onlyonce.Error{Code: onlyonce.CodeUncertain, Op: c.op, Err: d.err}
	}
	return []byte(stands), nil
}
