// Package routestore gives each key one home among several authoritative stores:
// regions, or shards of one region. It is a store itself, and promises what its
// homes promise, all of them the same.
//
// A Map says where a key lives: scopes that are named in its table have a home of
// their own, all others are spread by rendezvous hashing, by scope or by key. What
// is spread by key has no resources: nobody would see who holds one (rule C12).
//
// It costs nothing beside its home's own round trips. Losing one home stops the
// keys of that home, and of those that are moving from or to it, and no others.
// What goes over all homes says which one failed, and goes on with the others.
//
// # Changing the map
//
// Between reading where a key lives and claiming it there, another process could
// claim it elsewhere. So a key moves by a claim of its own, a marker, which the old
// home decides as it decides all claims. While the marker stands there, the old
// home lets nobody run the key: a process that has the old map is told that its map
// is out of date. Where a record stands already, whatever its state, the marker
// cannot be set, and the key stays where its record is until that expires: in doubt
// for as long as the doubt lasts, freed for as long as what is freed is kept. Resources
// move in the same way. The claims of a key that moves cost one round trip more, two
// where they name a resource, and need both homes. So do reads and transactions;
// single writes of an attempt go to the new home and, if it does not know the
// attempt, to the old one.
//
// To change the map: give all processes a Map with a higher Version and the one
// before as Previous, with the stores of the homes of both. When none is left that
// has the old map alone, and Left finds nothing, take Previous out, or set Until.
// Going back is a change like any other: the old map under a new, higher Version.
// One change at a time; and markers are kept for 90 days, before which the last
// process with the old map must have ended.
//
// # Settings
//
// The fingerprint secret and policies stand at every home that answers when they are
// made, and are read from the first that has them, so that a process can start while
// any one home is down. A new secret waits for the arbiter; a new policy waits for
// nobody.
//
// # Other regions
//
// A home without a store is another region's. What lives there is refused with
// onlyonce.ErrMisdirected, which names the home and its address; nothing is run. HomeOf
// tells this beforehand.
package routestore
