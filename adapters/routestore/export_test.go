package routestore

import "github.com/onlyonce-go/onlyonce"

// HomeByMap is the home that the map gives the key.
func HomeByMap(m Map, key onlyonce.Key) string { return m.home(key) }

// HomesOf is the store's homes.
func HomesOf(s *Store) []Home { return s.cfg.Homes }

// IsMarker tells whether a record is a marker.
func IsMarker(rec onlyonce.Record) bool {
	_, is := markerOf(rec)
	return is
}

// MarkerFingerprint is that of all markers.
func MarkerFingerprint() onlyonce.Fingerprint { return markerFingerprint() }

// ResourceKey is where a resource's marker stands.
func ResourceKey(scope, resource string) onlyonce.Key { return resourceKey(scope, resource) }
