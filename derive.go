package onlyonce

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Derivation is what a downstream key is made of (rule D1). It holds no secret
// and nothing that changes over restarts, so the same key comes out again even
// if our own record of it is lost, and the provider still stops a second run.
type Derivation struct {
	Key        Key
	Step       string
	Occurrence int
	Provider   string
	// Epoch starts at 0 and rises only on recorded proof that the last send
	// was not applied.
	Epoch int
}

// DerivedKey is the idempotency key to send to the provider: a UUID (version 8
// of RFC 9562), 36 characters.
func (d Derivation) DerivedKey() string {
	sum := d.digest("onlyonce derived key 1\x00")
	var u [16]byte
	copy(u[:], sum[:16])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	s := hex.EncodeToString(u[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// Reference is our own name for the effect, the same over all epochs: what the
// provider is asked by when its answer was lost.
func (d Derivation) Reference() string {
	d.Epoch = 0
	sum := d.digest("onlyonce reference 1\x00")
	return "oo_" + hex.EncodeToString(sum[:14])
}

func (d Derivation) digest(label string) []byte {
	h := sha256.New()
	h.Write([]byte(label))
	for _, s := range []string{d.Key.Scope, d.Key.Value, d.Step, d.Provider} {
		writeString(h, s)
	}
	var n [16]byte
	binary.BigEndian.PutUint64(n[:8], uint64(d.Occurrence))
	binary.BigEndian.PutUint64(n[8:], uint64(d.Epoch))
	h.Write(n[:])
	return h.Sum(nil)
}
