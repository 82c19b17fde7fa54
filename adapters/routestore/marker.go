package routestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A marker says that a key, or a resource, has moved away. It is a claim like any
// other at the old home, which therefore lets in either it or a record, in one
// atomic step. It stays in progress for the whole of its life, so that it can be
// taken back by its fence and token: a map that leads back finds the old marker in
// its way.
//
// What makes it a marker is its fingerprint: no keyed hash of a request is ever
// equal to it. Claims that bear it are refused, and records that do are never shown.

const (
	markerOperation = "onlyonce:moved"
	// resourcePrefix begins the key under which a resource's marker stands, in the
	// resource's own scope.
	resourcePrefix = "onlyonce:resource:"
	// markerRetention is how long a marker that was taken back is in the way: as
	// short as can be.
	markerRetention = time.Microsecond
	// reasonNotHere is why a claim was given back that began a life at a key's old home,
	// where its record had just been: what is so free is no record, and moves.
	reasonNotHere = "the claim was given back: the key lives here no more"
)

// markerFingerprint is the fingerprint of all markers.
func markerFingerprint() onlyonce.Fingerprint {
	return onlyonce.Fingerprint{
		Version: onlyonce.FingerprintVersion{Form: 1, Secret: markerOperation, Policy: "0000000000000000"},
		Sum:     sha256.Sum256([]byte("onlyonce: this key has moved\x00")),
	}
}

// marker is what a marker says.
type marker struct {
	// version is that of the map by which the key has moved, to its home.
	version int
	to      string
}

func (m marker) operation() string {
	return fmt.Sprintf("%s %d %s", markerOperation, m.version, m.to)
}

// markerOf reads a marker; false for everything else. One that cannot be read is of
// a version yet to come.
func markerOf(rec onlyonce.Record) (marker, bool) {
	if !rec.Fingerprint.Equal(markerFingerprint()) {
		return marker{}, false
	}
	const yetToCome = int(^uint(0) >> 1)
	words := strings.Split(rec.Operation, " ")
	if len(words) != 3 || words[0] != markerOperation {
		return marker{version: yetToCome}, true
	}
	version, err := strconv.Atoi(words[1])
	if err != nil {
		version = yetToCome
	}
	return marker{version: version, to: words[2]}, true
}

// vet refuses claims that could be taken for ours. A caller's key may be that of a
// resource's marker: this does no harm, since a marker counts for a resource only if it
// holds it.
func vet(req onlyonce.ClaimRequest) error {
	if err := req.Validate(); err != nil {
		return err
	}
	if strings.HasPrefix(req.Operation, markerOperation) || req.Fingerprint.Equal(markerFingerprint()) {
		return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "claim key", Hint: "operations that begin with " + markerOperation + " are reserved: give this one another name"}
	}
	return nil
}

// resourceKey is the key under which a resource's marker stands.
func resourceKey(scope, resource string) onlyonce.Key {
	d := onlyonce.ResourceDigest(scope, resource)
	return onlyonce.Key{Scope: scope, Value: resourcePrefix + hex.EncodeToString(d[:])}
}

// standing is what the old home says of a key or a resource.
type standing uint8

const (
	// moved: a marker of this map stands there.
	moved standing = iota + 1
	// stays: a record stands there, and no marker can.
	stays
	// underWay: somebody is claiming it, and has not committed; or the resource is held.
	underWay
)

// move sets a marker at the key's old home, unless one is there or something is in
// its way, in which case the claim says what.
func (s *Store) move(ctx context.Context, r route, key onlyonce.Key, resource string) (standing, onlyonce.Claim, error) {
	mine := marker{version: s.cfg.Map.Version, to: r.home.Name}
	claim, err := r.old.Store.Claim(ctx, onlyonce.ClaimRequest{
		// A token of its own: a real claim with the same one would find itself here.
		Key: key, Operation: mine.operation(), Fingerprint: markerFingerprint(), Attempt: onlyonce.NewToken(),
		Lease: s.markerLife(), Retention: markerRetention, Abandon: onlyonce.AbandonRerun, Resource: resource,
	})
	if err != nil {
		return 0, claim, r.old.at(err)
	}
	rec := claim.Record
	there, is := markerOf(rec)
	switch {
	case !is && claim.Verdict == onlyonce.Mismatch && rec.State == onlyonce.FailedRetryable && rec.Reason == reasonNotHere:
		return 0, claim, s.clear(ctx, r.old, rec)
	case !is && claim.Verdict == onlyonce.Mismatch:
		return stays, claim, nil
	case !is:
		return underWay, claim, nil
	case there == mine && resource != "" && rec.Resource != resource:
		return stays, claim, nil // a key of this name has moved, which is not the resource
	case there == mine:
		return moved, claim, nil
	case there.version >= mine.version:
		return 0, claim, s.outOfDate(key, there)
	default:
		// Left by an earlier change, and says so still if it was just taken over. Who
		// relies on it must own it by this map: a sleeper of the earlier one could
		// still take the old one back, and others would not find it in their way.
		return 0, claim, s.takeBack(ctx, r.old, rec)
	}
}

// takeBack frees the place of a marker that a later map has no use for, and has the
// claim repeated.
func (s *Store) takeBack(ctx context.Context, p *place, rec onlyonce.Record) error {
	if _, err := p.Store.Release(ctx, rec.Owner(), "a later map has no use for it"); err != nil {
		return p.at(known(err))
	}
	return moving(rec.Key)
}

// giveBack undoes a claim under which nothing ran, at a home where the key lives no
// more. A crash before that leaves an attempt whose lease runs out.
func (s *Store) giveBack(ctx context.Context, p *place, rec onlyonce.Record) error {
	ctx, cancel := s.patient(context.WithoutCancel(ctx))
	defer cancel()
	_, err := p.Store.Release(ctx, rec.Owner(), reasonNotHere)
	return p.at(known(err))
}

// clear frees the place of what giveBack has left, by a claim of the same request that is
// forgotten at once, and has the claim repeated.
func (s *Store) clear(ctx context.Context, p *place, rec onlyonce.Record) error {
	claim, err := p.Store.Claim(ctx, onlyonce.ClaimRequest{
		Key: rec.Key, Operation: rec.Operation, Fingerprint: rec.Fingerprint, Attempt: onlyonce.NewToken(),
		Lease: time.Minute, Retention: markerRetention, Abandon: rec.Abandon,
	})
	if err == nil && claim.Verdict.Owns() {
		err = s.giveBack(ctx, p, claim.Record)
	}
	if err != nil {
		return p.at(known(err))
	}
	return moving(rec.Key)
}
