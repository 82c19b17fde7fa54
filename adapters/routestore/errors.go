package routestore

import (
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// at names the home in its store's error; nil for none.
func (p *place) at(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("home %s: %w", p.Name, err)
}

// elsewhere refuses what another region decides about.
func (p *place) elsewhere(key onlyonce.Key) *onlyonce.Error {
	return &onlyonce.Error{
		Code: onlyonce.CodeMisdirected, Op: "find the key's home", Operation: key.Operation(), Home: p.Name, Address: p.Address,
		Hint: "the key lives in another region; nothing was run: send the same request there, with the same key",
	}
}

// outOfDate refuses a key that has moved by a map which this process does not have.
func (s *Store) outOfDate(key onlyonce.Key, m marker) *onlyonce.Error {
	e := &onlyonce.Error{
		Code: onlyonce.CodeMisdirected, Op: "find the key's home", Operation: key.Operation(), Home: m.to, RetryAfter: time.Second,
		Hint: "the key has moved, and this process does not know yet; nothing was run: send the same request again, with the same key",
		Err:  fmt.Errorf("the key has moved to home %q by version %d of the map; this process has version %d", m.to, m.version, s.cfg.Map.Version),
	}
	if p := s.byName[m.to]; p != nil && p.Store == nil {
		e.Address = p.Address
	}
	if m.version <= s.cfg.Map.Version {
		e.Err = fmt.Errorf("%w: maps of one version differ between processes", e.Err)
	}
	return e
}

// moving is what a claim gets that met a key on its way: nothing was done.
func moving(key onlyonce.Key) *onlyonce.Error {
	return &onlyonce.Error{
		Code: onlyonce.CodeConflict, Op: "find the key's home", Operation: key.Operation(),
		Hint: "the key was moving from one home to another; nothing was done, repeat it",
	}
}

// known keeps what other homes have said of a key, or may yet say, from being taken for
// nothing: while one home answers, or is not asked, another that cannot be reached does
// not let anybody run unprotected, whatever an operation allows where its store is out
// of reach.
func known(err error) error {
	if !errors.Is(err, onlyonce.ErrUnreachable) {
		return err
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeStoreUnavailable, Op: "ask homes", RetryAfter: time.Second,
		Hint: "a home cannot be reached, and may know what the others do not: repeat it later, with the same key",
		Err:  errors.New(err.Error()), // without what it wraps
	}
}

// together joins what homes have said. It is ErrUnreachable only if none of those that
// were to be asked could be reached.
func together(homes int, errs ...error) error {
	out := 0
	for _, err := range errs {
		if errors.Is(err, onlyonce.ErrUnreachable) {
			out++
		}
	}
	if out < homes {
		for i := range errs {
			errs[i] = known(errs[i])
		}
	}
	return errors.Join(errs...)
}
