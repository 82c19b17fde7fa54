package routestore_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// stepped is a home as one process sees it: every call waits for the process's turn.
type stepped struct {
	*memstore.Store
	p *process
}

func (s stepped) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	s.p.wait()
	return s.Store.Claim(ctx, req)
}

func (s stepped) Get(ctx context.Context, key onlyonce.Key) (onlyonce.Record, bool, error) {
	s.p.wait()
	return s.Store.Get(ctx, key)
}

func (s stepped) Complete(ctx context.Context, o onlyonce.Owner, a onlyonce.Answer) (onlyonce.Settled, error) {
	s.p.wait()
	return s.Store.Complete(ctx, o, a)
}

func (s stepped) Release(ctx context.Context, o onlyonce.Owner, reason string) (bool, error) {
	s.p.wait()
	return s.Store.Release(ctx, o, reason)
}

// process is a request under way in a process that has some map.
type process struct {
	name  string
	store onlyonce.Store
	req   onlyonce.ClaimRequest
	// ready: it waits for its turn; go on, or die.
	ready chan struct{}
	turn  chan bool
	over  bool
}

func (p *process) wait() {
	p.ready <- struct{}{}
	if !<-p.turn {
		runtime.Goexit() // killed between two calls
	}
}

// scene is homes with something in them, and processes that are about to claim one key.
type scene struct {
	t       *testing.T
	clock   *storetest.Clock
	a, b    *memstore.Store
	procs   []*process
	effects int
	// resource: the processes claim keys of their own for one resource, and keep it.
	resource string
	// faults are what must not be.
	faults []string
	// soon: what is there expires with the next tick.
	soon bool
	log  []string
}

// cast says which processes there are, by the number of their map: 1 is everything at
// a, 2 everything at b, after 1; 3 everything back at a, after 2; 4 at b again.
type cast []int

// before brings the key into a state; effects that it stands for are counted.
type before struct {
	name string
	make func(s *scene)
}

// long tells whether there are too many orders to play them all: what is there expires
// meanwhile, and two processes that know both maps have to sort it out.
func (pl play) long() bool {
	return strings.HasSuffix(pl.start.name, "expires now") && (len(pl.cast) > 2 || pl.cast[0] > 1)
}

// router makes a process's store; nil: that which is tested.
type router func(version int, a, b onlyonce.Store) onlyonce.Store

func newScene(t *testing.T, versions cast, router router) *scene {
	t.Helper()
	s := &scene{t: t, clock: storetest.NewClock()}
	s.a, s.b = memory(t, s.clock.Now), memory(t, s.clock.Now)
	for i, v := range versions {
		p := &process{name: fmt.Sprintf("%c(map %d)", 'P'+i, v), req: s.request(), ready: make(chan struct{}), turn: make(chan bool)}
		wrap := func(m *memstore.Store) onlyonce.Store { return stepped{m, p} }
		if router != nil {
			p.store = router(v, wrap(s.a), wrap(s.b))
		} else {
			p.store = s.open(v, wrap)
		}
		s.procs = append(s.procs, p)
	}
	return s
}

func (s *scene) open(version int, wrap func(*memstore.Store) onlyonce.Store) onlyonce.Store {
	s.t.Helper()
	at := []string{"", "a", "b", "a", "b"}
	cfg := routestore.Config{
		Homes: []routestore.Home{{Name: "a", Store: wrap(s.a)}, {Name: "b", Store: wrap(s.b)}},
		Map:   all(version, at[version]), Now: s.clock.Now,
	}
	if version > 1 {
		previous := all(version-1, at[version-1])
		cfg.Previous = &previous
	}
	store, err := routestore.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return store
}

// request is of an operation that must not run again after a crash.
func (s *scene) request() onlyonce.ClaimRequest {
	req := request("k")
	req.Abandon = onlyonce.AbandonHold
	return req
}

// holding is the request of the i-th process for the resource.
func (s *scene) holding(i int) onlyonce.ClaimRequest {
	req := request(fmt.Sprint("k", i))
	req.Resource = s.resource
	return req
}

// run is the request: claim, effect, answer.
func (s *scene) run(p *process) {
	ctx := s.t.Context()
	for range 4 {
		claim, err := p.store.Claim(ctx, p.req)
		switch {
		case onlyonce.CodeOf(err) == onlyonce.CodeConflict:
			s.clock.Advance(time.Millisecond)
			continue
		case onlyonce.CodeOf(err) == onlyonce.CodeMisdirected:
		case err != nil:
			s.fault("%s: %v", p.name, err)
		case claim.Verdict.Owns():
			s.effects++
			s.note("%s: effect", p.name)
			if s.resource != "" {
				return
			}
			if settled, err := p.store.Complete(ctx, claim.Record.Owner(), onlyonce.Answer{Status: 201}); err != nil || !settled.Held {
				s.fault("%s: complete: %+v, %v", p.name, settled, err)
			}
		case claim.Verdict == onlyonce.ResourceBusy && s.resource == "", claim.Verdict == onlyonce.Mismatch, routestore.IsMarker(claim.Record):
			s.fault("%s was told of a marker: %v", p.name, claim.Verdict)
		}
		return
	}
}

func (s *scene) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

func (s *scene) note(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }

// start has every process run up to its first call.
func (s *scene) start() {
	for _, p := range s.procs {
		go func() {
			defer close(p.ready)
			s.run(p)
		}()
		_, waits := <-p.ready
		p.over = !waits
	}
}

// act does one of the things that can happen next, by number; it returns how many
// there are. Deaths are at most as many as may happen.
func (s *scene) act(choice, deaths int) (options, died int) {
	type option struct {
		do    func()
		death int
	}
	var can []option
	for _, p := range s.procs {
		if !p.over {
			can = append(can, option{do: func() { s.step(p, true) }})
		}
	}
	for _, p := range s.procs {
		if !p.over && deaths > 0 {
			can = append(can, option{do: func() { s.step(p, false) }, death: 1})
		}
	}
	if s.soon && len(can) > 0 {
		can = append(can, option{do: func() {
			s.note("the old record expires")
			s.soon = false
			s.clock.Advance(time.Second)
		}})
	}
	if choice < 0 || choice >= len(can) {
		return len(can), 0
	}
	can[choice].do()
	return len(can), can[choice].death
}

func (s *scene) step(p *process, lives bool) {
	s.note("%s: goes on %v", p.name, lives)
	p.turn <- lives
	_, waits := <-p.ready
	p.over = !waits
}

// afterwards lets clients retry, with processes of each map, long after every lease;
// then at most one effect may have happened, and nothing is stuck.
func (s *scene) afterwards(versions cast) {
	if s.resource != "" {
		if s.effects > 1 {
			s.fault("%d keys hold the resource", s.effects)
		}
		return
	}
	s.clock.Advance(10 * lease)
	plain := func(m *memstore.Store) onlyonce.Store { return m }
	for range 2 {
		for _, v := range slices.Backward(slices.Sorted(slices.Values(versions))) {
			p := &process{name: fmt.Sprintf("retry(map %d)", v), store: s.open(v, plain), req: s.request()}
			s.run(p)
		}
	}
	if s.effects > 1 {
		s.fault("%d effects", s.effects)
	}
	real := 0
	for _, m := range []*memstore.Store{s.a, s.b} {
		if rec, found, _ := m.Get(s.t.Context(), s.request().Key); found && !routestore.IsMarker(rec) {
			real++
		}
	}
	if real > 1 {
		s.fault("both homes have a record of the key")
	}
}

// play is what may happen: who claims, how many of them die, what was there before.
type play struct {
	cast   cast
	deaths int
	start  before
	router router
	// resource: see scene.
	resource string
}

// begin sets the scene.
func (pl play) begin(t *testing.T) *scene {
	t.Helper()
	s := newScene(t, pl.cast, pl.router)
	if s.resource = pl.resource; s.resource != "" {
		for i, p := range s.procs {
			p.req = s.holding(i)
		}
	}
	pl.start.make(s)
	s.start()
	return s
}

// end tells what was wrong.
func (pl play) end(s *scene) string {
	s.afterwards(pl.cast)
	if len(s.faults) == 0 {
		return ""
	}
	return fmt.Sprintf("%v, %s: %q\n%s", pl.cast, pl.start.name, s.faults, strings.Join(s.log, "\n"))
}

// explore plays all orders in which the processes' calls to the homes, deaths between
// two of them, and the expiry of what was there, can happen; up to the first in which
// something is wrong, which it tells.
func (pl play) explore(t *testing.T) (plays int, fault string) {
	t.Helper()
	var path, options []int
	for {
		s := pl.begin(t)
		left := pl.deaths
		for depth := 0; ; depth++ {
			if depth == len(path) {
				path, options = append(path, 0), append(options, 0)
			}
			n, died := s.act(path[depth], left)
			if n == 0 {
				path, options = path[:depth], options[:depth]
				break
			}
			options[depth] = n
			left -= died
		}
		plays++
		if fault := pl.end(s); fault != "" {
			return plays, fault
		}
		for len(path) > 0 && path[len(path)-1]+1 >= options[len(path)-1] {
			path, options = path[:len(path)-1], options[:len(options)-1]
		}
		if len(path) == 0 {
			return plays, ""
		}
		path[len(path)-1]++
	}
}
