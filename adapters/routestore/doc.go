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
// ErrUnreachable, which lets some operations run unprotected, is said only where none of
// the homes that matter could be reached; else the store is unavailable.
//
// # Changing the map
//
// Between reading where a key lives and claiming it there, another process could
// claim it elsewhere. So a key moves by a claim of its own, a marker, which the old
// home decides as it decides all claims. While the marker stands there, the old
// home lets nobody run the key: a process that has the old map is told that its map
// is out of date. Where a record stands already, whatever its state, the marker
// cannot be set, and the key stays where its record is until that expires: in doubt
// for as long as the doubt lasts, freed for as long as what is freed is kept. No new
// life begins there: one that has is given back before anything runs. Resources move in
// the same way. A key that was freed at its old home without an effect, and whose
// resource has moved since with another key, is told that the resource is busy until it
// is forgotten; its caller may use a new key.
//
// The claims of a key that moves cost one round trip more, two where they name a
// resource, and need both homes. So do reads and transactions; what was freed and stays
// is claimed before its transaction begins. Single writes of an attempt go to the new
// home and, if it does not know the attempt or hangs, to the old one.
//
// To change the map: give all processes a Map with a higher Version and the one
// before as Previous, with the stores of the homes of both. When none is left that
// has the old map alone, and Left finds nothing, take Previous out.
// Going back is a change like any other: the old map under a new, higher Version.
// One change at a time; and markers are kept for 90 days, before which the last
// process with the old map must have ended.
//
// Until takes Previous out at a set time, whatever is left. From then on claims and reads
// ask the new home alone. What stands at the old one is forgotten for them: a caller who
// retries runs it again, even where it is in doubt, so first settle what Left shows. The
// recoverer is not given it, since nobody may have asked for that. An attempt that is
// under way there goes on to its end, with its own steps.
//
// # Settings
//
// The fingerprint secret and policies stand at every home that answers when they are
// made, and are read from the first that has them, so that a process can start while
// any one home is down. A new secret is made only when all homes have said that they have
// none, since records under another could not be judged: the first start of a service
// needs all its homes. A new policy waits for nobody.
//
// # Other regions
//
// A home without a store is another region's. What lives there is refused with
// onlyonce.ErrMisdirected, which names the home and its address; nothing is run. HomeOf
// tells this beforehand.
//
// A key moves to another region through a process that has a store for its old home, and
// lives in the new region once a process there sees that it has moved. So the new
// region's processes need a store for the old home, across regions, for as long as the
// change lasts. Without one they send requests back to the old region, which sends those
// of keys that have moved to the new one: for that they must have Until, which ends it.
package routestore
