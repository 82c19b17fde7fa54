package routestore

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/onlyonce-go/onlyonce"
)

// Home is one of the places where keys live.
type Home struct {
	// Name is the home's name in maps: 1 to 64 of a-z, A-Z, 0-9, dot, dash and
	// underscore. Keys are spread by it: a home that gets another name is another home.
	Name string
	// Store keeps the home's records; nil: it is out of this process's reach, in
	// another region. It is not closed here.
	Store onlyonce.Store
	// Address is where requests for a home in another region are to be sent: an
	// absolute URL. Callers are told, so it must hold no user or password. Empty: they
	// are told the name alone.
	Address string
}

// Spread says what decides about the home of a key.
type Spread uint8

// The ways to spread keys.
const (
	// ByScope keeps all keys of a scope together, and so its resources.
	ByScope Spread = iota
	// ByKey spreads the keys of one scope, too: for a few large scopes. Resources
	// cannot be promised then.
	ByKey
)

// Map says which home each key has. It must be the same in all processes that
// have a map of this version.
type Map struct {
	// Version rises with every change; positive.
	Version int
	// Homes are the names of the homes over which keys are spread: each key has the
	// one that ranks highest for it, so that a home more or less moves its own share
	// of the keys and no others. One name: the home of all that Table does not name.
	Homes []string
	// By is what keys are spread by. Default: by scope.
	By Spread
	// Table gives scopes a home of their own.
	Table map[string]string
}

// home is the name of the key's home.
func (m *Map) home(key onlyonce.Key) string {
	if name, ok := m.Table[key.Scope]; ok {
		return name
	}
	what := []byte(key.Scope)
	if m.By == ByKey {
		d := key.Digest()
		what = d[:]
	}
	best, highest := "", uint64(0)
	for _, name := range m.Homes {
		rank := rank(name, what)
		if best == "" || rank > highest || (rank == highest && name < best) {
			best, highest = name, rank
		}
	}
	return best
}

// rank is the weight of a home for a key or scope: the first bytes of a hash of
// both. It must never change, or all keys move.
func rank(name string, what []byte) uint64 {
	b := append([]byte("onlyonce home 1\x00"), name...)
	b = append(append(b, 0), what...) // no name holds a zero byte
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:8])
}

// homesOf is where keys of the scope can live.
func (m *Map) homesOf(scope string) []string {
	if _, ok := m.Table[scope]; !ok && m.By == ByKey {
		return m.Homes
	}
	return []string{m.home(onlyonce.Key{Scope: scope})}
}

// move is the name of a home that keys leave by a change of the map, and of one that
// gets some of them.
type move struct{ from, to string }

// moves gives all that may happen when the map is changed.
func (m *Map) moves(next *Map) map[move]bool {
	all := map[move]bool{}
	for _, table := range []map[string]string{m.Table, next.Table} {
		for scope := range table {
			for _, from := range m.homesOf(scope) {
				for _, to := range next.homesOf(scope) {
					all[move{from, to}] = from != to
				}
			}
		}
	}
	for _, from := range m.Homes {
		for _, to := range next.Homes {
			if m.By != next.By || !slices.Contains(next.Homes, from) || !slices.Contains(m.Homes, to) {
				all[move{from, to}] = from != to
			}
		}
	}
	maps.DeleteFunc(all, func(_ move, moves bool) bool { return !moves })
	return all
}

// splits tells whether the keys of one scope have several homes.
func (m *Map) splits() bool { return m.By == ByKey && len(m.Homes) > 1 }
