package routestore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Store is an onlyonce.Store that keeps each key at its home. It is safe for
// concurrent use, and keeps nothing itself: a crash leaves what it leaves in the
// homes.
type Store struct {
	cfg      Config
	features onlyonce.Features
	byName   map[string]*place
	local    []*place // those with a store, by name
	arbiter  *place
	turn     atomic.Uint32 // of which home is first in what is bounded over all
}

// place is a home and the powers of its store; those it lacks are nil.
type place struct {
	Home
	steps     onlyonce.StepStore
	settings  onlyonce.SettingStore
	operators onlyonce.OperatorStore
	recovery  onlyonce.RecoveryStore
}

var (
	_ onlyonce.StepStore     = (*Store)(nil)
	_ onlyonce.SettingStore  = (*Store)(nil)
	_ onlyonce.OperatorStore = (*Store)(nil)
	_ onlyonce.RecoveryStore = (*Store)(nil)
)

// New makes a Store without transactions; see NewTx. It asks no home for anything,
// so that a process can start while one is down. What is wrong with the
// configuration comes back as CodeConfig.
func New(cfg Config) (*Store, error) {
	s, err := open(cfg)
	if err != nil {
		return nil, err
	}
	s.features.Transactions = false
	return s, nil
}

func open(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg.WithDefaults(), byName: map[string]*place{}}
	var kinds []string
	for _, h := range s.cfg.Homes {
		p := &place{Home: h}
		s.byName[h.Name] = p
		if h.Store == nil {
			continue
		}
		p.steps, _ = onlyonce.StepsOf(h.Store)
		p.settings, _ = onlyonce.SettingsOf(h.Store)
		p.operators, _ = onlyonce.OperatorsOf(h.Store)
		p.recovery, _ = onlyonce.RecoveryOf(h.Store)
		s.features = h.Store.Features()
		kinds = append(kinds, s.features.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		if p := s.byName[name]; p.Store != nil {
			s.local = append(s.local, p)
		}
	}
	s.arbiter = s.byName[s.cfg.Arbiter]
	slices.Sort(kinds)
	s.features.Name = "routed " + strings.Join(slices.Compact(kinds), "+")
	if s.splits() {
		s.features.Resources = false
	}
	return s, nil
}

// splits tells whether the keys of one scope have several homes by one of the maps.
// While a scope moves as a whole, its resources move with it.
func (s *Store) splits() bool {
	return s.cfg.Map.splits() || (s.cfg.Previous != nil && s.cfg.Previous.splits())
}

// Features says what the homes promise, less resources where a map spreads the keys
// of a scope.
func (s *Store) Features() onlyonce.Features { return s.features }

// HomeOf is the home that decides about the key, and whether this process can reach
// it. Where it is not local, a request for the key is to be sent to its Address:
// here it would be refused with ErrMisdirected. During a change of the map a key may
// yet be found to live elsewhere, which the error then says.
func (s *Store) HomeOf(key onlyonce.Key) (home Home, local bool) {
	r := s.route(key, false)
	if r.old != nil && (r.old.Store == nil || r.home.Store == nil) {
		return r.old.Home, r.old.Store != nil
	}
	return r.home.Home, r.home.Store != nil
}

// Where is the home that has the key's record, or would get it, for those who begin
// a transaction of their own for CompleteTx. It asks the key's old home while the
// map is being changed; when Previous has ceased to count, the new one, and the old one
// only if that knows nothing of the key. What lives in another region is refused with
// ErrMisdirected.
func (s *Store) Where(ctx context.Context, key onlyonce.Key) (Home, error) {
	p, err := s.lives(ctx, key)
	if err != nil {
		return Home{}, err
	}
	return p.Home, nil
}

// route is where a key lives by the maps.
type route struct {
	home *place
	// old is its home by the previous map, if that still counts and is another one.
	old *place
}

// homes is both, the new one first.
func (r route) homes() []*place {
	if r.old == nil {
		return []*place{r.home}
	}
	return []*place{r.home, r.old}
}

// route finds the homes of a key. For an attempt under way the previous map counts
// for as long as it is there.
func (s *Store) route(key onlyonce.Key, underWay bool) route {
	r := route{home: s.byName[s.cfg.Map.home(key)]}
	if s.cfg.Previous == nil || !(underWay || s.counts()) {
		return r
	}
	if old := s.byName[s.cfg.Previous.home(key)]; old != r.home {
		r.old = old
	}
	return r
}

// counts tells whether the previous map, if any, still counts for claims.
func (s *Store) counts() bool {
	return s.cfg.Previous != nil && (s.cfg.Until.IsZero() || s.cfg.Now().Before(s.cfg.Until))
}

// locate finds the home of a key that is to be read: the old one if a record stands
// there, which keeps a marker out, else the new one.
func (s *Store) locate(ctx context.Context, key onlyonce.Key) (*place, error) {
	r := s.route(key, false)
	if r.old != nil {
		if r.old.Store == nil {
			return nil, r.old.elsewhere(key)
		}
		_, found, err := s.read(ctx, r.old, key)
		if err != nil {
			return nil, known(err)
		}
		if found {
			return r.old, nil
		}
	}
	if r.home.Store == nil {
		return nil, r.home.elsewhere(key)
	}
	return r.home, nil
}

// lives finds the home of a key as locate does, and that of an attempt which was under
// way when the previous map ceased to count, unless a new life has begun since.
func (s *Store) lives(ctx context.Context, key onlyonce.Key) (*place, error) {
	p, err := s.locate(ctx, key)
	old := s.route(key, true).old
	if err != nil || s.counts() || old == nil || old.Store == nil {
		return p, err
	}
	if _, found, err := s.read(ctx, p, key); found || err != nil {
		return p, err
	}
	_, found, err := s.read(ctx, old, key)
	if found {
		return old, nil
	}
	return p, known(err)
}

// placeOf finds the home of an attempt under way: the one whose record has its fence
// and token, whichever map counts. The old home is asked, and the new one only if that
// fails: else it finds out by itself.
func (s *Store) placeOf(ctx context.Context, owner onlyonce.Owner) (*place, error) {
	r := s.route(owner.Key, true)
	if r.old != nil {
		theirs, err := s.ask(ctx, true, func(ctx context.Context) (bool, error) { return s.owned(ctx, r.old, owner) })
		if theirs {
			return r.old, nil
		}
		if err != nil {
			if theirs, _ := s.owned(ctx, r.home, owner); !theirs {
				return nil, known(err)
			}
		}
	}
	if r.home.Store == nil {
		return nil, r.home.elsewhere(owner.Key)
	}
	return r.home, nil
}

// owned tells whether the key's record at one home is the owner's.
func (s *Store) owned(ctx context.Context, p *place, owner onlyonce.Owner) (bool, error) {
	if p.Store == nil {
		return false, p.elsewhere(owner.Key)
	}
	rec, found, err := s.read(ctx, p, owner.Key)
	return found && rec.Owner() == owner, err
}

// read is Get at one home. A marker is no record; one of a map that this process
// does not have says that the record is elsewhere.
func (s *Store) read(ctx context.Context, p *place, key onlyonce.Key) (onlyonce.Record, bool, error) {
	rec, found, err := p.Store.Get(ctx, key)
	if err != nil || !found {
		return onlyonce.Record{}, false, p.at(err)
	}
	m, is := markerOf(rec)
	switch {
	case !is:
		return rec, true, nil
	case m.version > s.cfg.Map.Version:
		return onlyonce.Record{}, false, s.outOfDate(key, m)
	default:
		return onlyonce.Record{}, false, nil
	}
}

// Get reads a record where it is.
func (s *Store) Get(ctx context.Context, key onlyonce.Key) (onlyonce.Record, bool, error) {
	p, err := s.locate(ctx, key)
	if err != nil {
		return onlyonce.Record{}, false, err
	}
	return s.read(ctx, p, key)
}

// patient bounds what one home may take of a call that goes over all.
func (s *Store) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.cfg.Patience)
}

// inTurn is all local homes, each call beginning with the next, so that a bound on
// all of them starves none.
func (s *Store) inTurn() []*place {
	first := int(s.turn.Add(1)) % len(s.local)
	return slices.Concat(s.local[first:], s.local[:first])
}

// markerLife is how long a marker stands: longer than any process may go on with the
// map before, and than the previous map counts.
func (s *Store) markerLife() time.Duration {
	const least, beyond = 90 * 24 * time.Hour, 24 * time.Hour
	if s.cfg.Until.IsZero() {
		return least
	}
	return max(least, s.cfg.Until.Sub(s.cfg.Now())+beyond)
}
