package routestore

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// Settings stand at every home, so that no home's loss takes one away. When all homes
// have said that one stands nowhere, the arbiter decides about it, once; what it has
// decided is copied to all homes that answer. A value that is named by its own digest,
// as fingerprint policies are, cannot be contradicted, and waits for nobody.

// Setting reads a value from whichever home is the first to have it. Not found is said
// only when all homes have said so.
func (s *Store) Setting(ctx context.Context, kind, id string) ([]byte, bool, error) {
	if !s.features.Settings {
		return nil, false, lacking("settings")
	}
	ctx, cancel := s.patient(ctx)
	defer cancel()
	var mu sync.Mutex
	var value []byte
	found := false
	err := s.everywhere(func(p *place) error {
		v, ok, err := p.settings.Setting(ctx, kind, id)
		mu.Lock()
		defer mu.Unlock()
		if ok && err == nil && !found {
			value, found = v, true
			cancel() // nobody else needs to be waited for
		}
		return err
	})
	if found {
		return value, true, nil
	}
	return nil, false, err
}

// everywhere runs fn for all local homes beside each other and joins what fails; it is
// ErrUnreachable only if none of them could be reached.
func (s *Store) everywhere(fn func(*place) error) error {
	errs := make([]error, len(s.local))
	var all sync.WaitGroup
	for i, p := range s.local {
		all.Go(func() { errs[i] = p.at(fn(p)) })
	}
	all.Wait()
	return together(len(errs), errs...)
}

// AddSetting inserts the value unless one stands at any home, and copies what stands
// to all homes that answer. While a home is down it fails for a value that no other home
// has, and that is not named by its own digest: that home may have one, and records
// under another could not be judged. Two homes with different values are CodeConfig:
// they have had lives of their own, or different arbiters.
func (s *Store) AddSetting(ctx context.Context, kind, id string, value []byte) ([]byte, error) {
	if !s.features.Settings {
		return nil, lacking("settings")
	}
	if id == onlyonce.PolicyID(value) {
		copied, err := s.copySetting(ctx, kind, id, value)
		if onlyonce.CodeOf(err) == onlyonce.CodeConfig || copied == 0 {
			return nil, err
		}
		return value, nil
	}
	standing, found, err := s.Setting(ctx, kind, id)
	if err == nil && !found {
		standing, err = s.arbiter.settings.AddSetting(ctx, kind, id, value)
		err = s.arbiter.at(known(err)) // it has just answered
	}
	if err != nil {
		return nil, err
	}
	if _, err := s.copySetting(ctx, kind, id, standing); onlyonce.CodeOf(err) == onlyonce.CodeConfig {
		return nil, err
	}
	return standing, nil
}

// copySetting makes the value stand at all homes that answer, and counts them. The
// error is CodeConfig if another value stands at one of them.
func (s *Store) copySetting(ctx context.Context, kind, id string, value []byte) (copied int, err error) {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	var mu sync.Mutex
	var differ error
	err = s.everywhere(func(p *place) error {
		there, err := p.settings.AddSetting(ctx, kind, id, value)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		copied++
		if !bytes.Equal(there, value) {
			differ = &onlyonce.Error{
				Code: onlyonce.CodeConfig, Op: "agree on setting",
				Hint: fmt.Sprintf("home %s has another value of %s %q than the others: they were not one store before, or their processes name different arbiters; give the service its secrets by configuration, both of them", p.Name, kind, id),
			}
		}
		return nil
	})
	if differ != nil {
		return copied, differ
	}
	return copied, err
}
