package routestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// Settings stand at every home, so that no home's loss takes one away. The arbiter
// decides once about one that stands nowhere; what it has decided is copied to all
// homes that answer. A value that is named by its own digest, as fingerprint policies
// are, cannot be contradicted and needs no arbiter.

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

// everywhere runs fn for all local homes beside each other and joins what fails.
func (s *Store) everywhere(fn func(*place) error) error {
	errs := make([]error, len(s.local))
	var all sync.WaitGroup
	for i, p := range s.local {
		all.Go(func() { errs[i] = p.at(fn(p)) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// AddSetting inserts the value unless one stands at any home, and copies what stands
// to all homes that answer. While the arbiter is down it fails for a value that stands
// at no other home, and is not named by its own digest. Two homes with different
// values are CodeConfig: they have had lives of their own, or different arbiters, and
// the records of one of them could not be judged.
func (s *Store) AddSetting(ctx context.Context, kind, id string, value []byte) ([]byte, error) {
	if !s.features.Settings {
		return nil, lacking("settings")
	}
	standing, found, _ := s.Setting(ctx, kind, id) // a home that fails here may be another than the arbiter
	switch {
	case found:
	case id == onlyonce.PolicyID(value):
		standing = value
	default:
		var err error
		if standing, err = s.arbiter.settings.AddSetting(ctx, kind, id, value); err != nil {
			return nil, s.arbiter.at(err)
		}
		found = true
	}
	copied, err := s.copySetting(ctx, kind, id, standing)
	if onlyonce.CodeOf(err) == onlyonce.CodeConfig || (copied == 0 && !found) {
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
