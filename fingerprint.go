package onlyonce

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
)

// Part is one named piece of a request: a leaf of its body, its path, a query
// parameter. The digest holds no secret.
type Part struct {
	Name string
	Sum  [32]byte
}

// Form is a request in canonical form, as package canon makes it.
type Form interface {
	// Sum is the digest of everything that counts.
	Sum() [32]byte
	// Parts is what counts, by name: at most 64 parts whose names and 8 bytes
	// each stay within 2 KiB; above that, their parents.
	Parts() []Part
	// Differs names what differs between this form and a recorded one, of
	// which only the part names survive and same(i, sum), which tells whether
	// the i-th recorded part had the digest sum.
	Differs(recorded []string, same func(i int, sum [32]byte) bool) []string
}

// Canonicalizer makes the canonical form of one request, under any policy and
// in any version that a record may have been written with.
type Canonicalizer interface {
	// Version is the present version of the canonical form.
	Version() int
	// Form canonicalises the request under a policy's text. It fails for a
	// version or a policy that this process does not understand.
	Form(version int, policy []byte) (Form, error)
}

// FingerprintVersion says how a fingerprint was made: under which version of
// the canonical form, secret and policy. A record is checked under its own.
type FingerprintVersion struct {
	Form   int
	Secret string
	Policy string
}

// Fingerprint is what a record keeps of a request: a keyed hash of what
// counts, and short keyed hashes of its parts, to name what differs.
type Fingerprint struct {
	Version FingerprintVersion
	Sum     [32]byte
	// Parts is opaque: names and truncated hashes, keyed per record.
	Parts []byte
}

// Equal tells whether two fingerprints are of the same request made the same
// way.
func (f Fingerprint) Equal(g Fingerprint) bool {
	return f.Version == g.Version && hmac.Equal(f.Sum[:], g.Sum[:])
}

// Secret is a server-side key for fingerprints.
type Secret struct {
	// ID is recorded with every fingerprint: at most 32 characters.
	ID  string
	Key []byte
}

// String names the secret and keeps its key out of logs, as do the others.
func (s Secret) String() string { return "secret " + s.ID }

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String: a secret is configuration that is never written.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Keyring is the secret that new records are written with, and older ones that
// must outlive the records written with them (rule F7).
type Keyring struct {
	Current Secret
	Old     []Secret
}

// validate accepts no secrets at all, or a current one and old ones, each whole
// and with an ID of its own.
func (k Keyring) validate() error {
	if k.Current.ID == "" && len(k.Current.Key) == 0 && len(k.Old) == 0 {
		return nil
	}
	seen := map[string]bool{}
	for _, s := range append([]Secret{k.Current}, k.Old...) {
		switch {
		case s.ID == "" || len(s.ID) > 32 || len(s.Key) < 16:
			return configError("Secrets", "each secret needs an ID of 1 to 32 characters and a key of at least 16 bytes")
		case seen[s.ID]:
			return configError("Secrets", "two secrets have the ID %s", s.ID)
		}
		seen[s.ID] = true
	}
	return nil
}

func (k Keyring) find(id string) (Secret, bool) {
	if k.Current.ID == id {
		return k.Current, true
	}
	i := slices.IndexFunc(k.Old, func(s Secret) bool { return s.ID == id })
	if i < 0 {
		return Secret{}, false
	}
	return k.Old[i], true
}

// newSecret makes a secret for a store that has none yet.
func newSecret() []byte {
	key := make([]byte, 32)
	rand.Read(key)
	return key
}

// PolicyID is the version of a policy: a digest of its text.
func PolicyID(policy []byte) string {
	sum := sha256.Sum256(policy)
	return hex.EncodeToString(sum[:8])
}

const partMAC = 8 // bytes kept of a part's hash

// seal makes the fingerprint of a form for one key and operation.
func seal(s Secret, v FingerprintVersion, id identity, form Form) Fingerprint {
	f := Fingerprint{Version: v}
	sum := form.Sum()
	mac := hmac.New(sha256.New, s.Key)
	mac.Write([]byte("onlyonce fingerprint 1\x00"))
	writeString(mac, id.operation)
	mac.Write(sum[:])
	mac.Sum(f.Sum[:0])

	key := partKey(s, id)
	for _, p := range form.Parts() {
		f.Parts = binary.AppendUvarint(f.Parts, uint64(len(p.Name)))
		f.Parts = append(f.Parts, p.Name...)
		m := partSum(key, p.Sum)
		f.Parts = append(f.Parts, m[:]...)
	}
	return f
}

// identity is what a fingerprint is bound to besides the request.
type identity struct {
	key       Key
	operation string
}

// partKey is a key of one record, so that equal values in two records cannot
// be told to be equal.
func partKey(s Secret, id identity) []byte {
	mac := hmac.New(sha256.New, s.Key)
	mac.Write([]byte("onlyonce parts 1\x00"))
	writeString(mac, id.key.Scope)
	writeString(mac, id.key.Value)
	return mac.Sum(nil)
}

func partSum(key []byte, sum [32]byte) [partMAC]byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(sum[:])
	return [partMAC]byte(mac.Sum(nil)[:partMAC])
}

// differs names what differs between a recorded fingerprint and a form.
func differs(s Secret, id identity, recorded []byte, form Form) ([]string, error) {
	names, macs, err := decodeParts(recorded)
	if err != nil {
		return nil, err
	}
	key := partKey(s, id)
	return form.Differs(names, func(i int, sum [32]byte) bool {
		m := partSum(key, sum)
		return hmac.Equal(macs[i], m[:])
	}), nil
}

func decodeParts(b []byte) (names []string, macs [][]byte, err error) {
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)) || len(b) < used+int(n)+partMAC {
			return nil, nil, fmt.Errorf("decode fingerprint parts: %d bytes left over", len(b))
		}
		b = b[used:]
		names = append(names, string(b[:n]))
		macs = append(macs, b[n:int(n)+partMAC])
		b = b[int(n)+partMAC:]
	}
	return names, macs, nil
}
