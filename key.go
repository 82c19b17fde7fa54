package onlyonce

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"unicode/utf8"
)

// MaxKeyLength is the longest idempotency key, in bytes (rule K3).
const MaxKeyLength = 255

// MaxScopeLength is the longest scope, in bytes.
const MaxScopeLength = 255

// Key is the identity of an operation: who asked, and the value they chose.
// Two keys are the same only if both are equal byte for byte (rules S1, K3).
type Key struct {
	// Scope is the account that asked, never its credential, so that a
	// rotated credential still finds its answers (rules S2, S3).
	Scope string
	// Value is the idempotency key as decoded from the wire.
	Value string
}

// Digest is a short binary form of a Key: what stores index.
type Digest [16]byte

// Digest joins scope and value unambiguously and hashes them. It holds no
// secret; it is an index, not a proof.
func (k Key) Digest() Digest {
	h := sha256.New()
	h.Write([]byte("onlyonce key 1\x00"))
	writeString(h, k.Scope)
	writeString(h, k.Value)
	return Digest(h.Sum(nil)[:16])
}

// ResourceDigest is the short name under which a store keeps who holds a scope's
// resource.
func ResourceDigest(scope, resource string) Digest {
	h := sha256.New()
	h.Write([]byte("onlyonce resource 1\x00"))
	writeString(h, scope)
	writeString(h, resource)
	return Digest(h.Sum(nil)[:16])
}

// Operation is a reference to the key that is safe to log and to show to the
// caller: it tells keys apart and gives neither scope nor value away.
func (k Key) Operation() string {
	d := k.Digest()
	return "op_" + hex.EncodeToString(d[:])
}

// Validate checks the limits that every store relies on. It returns an *Error
// with CodeKeyInvalid, or CodeUnauthenticated for an empty scope: a missing
// principal must never become a bucket that callers share.
func (k Key) Validate() error {
	if k.Scope == "" {
		return &Error{Code: CodeUnauthenticated, Op: "check key", Hint: "the scope is empty: authenticate the caller first"}
	}
	if len(k.Scope) > MaxScopeLength || !utf8.ValidString(k.Scope) || hasControl(k.Scope) {
		return &Error{Code: CodeUnauthenticated, Op: "check key", Hint: fmt.Sprintf("the scope must be at most %d bytes of printable UTF-8", MaxScopeLength)}
	}
	return ValidateKeyValue(k.Value)
}

// ValidateKeyValue checks a decoded idempotency key: 1 to MaxKeyLength
// characters of printable ASCII (rule K3).
func ValidateKeyValue(value string) error {
	if value == "" {
		return &Error{Code: CodeKeyInvalid, Op: "check key", Hint: "the idempotency key is empty"}
	}
	if len(value) > MaxKeyLength {
		return &Error{Code: CodeKeyInvalid, Op: "check key", Hint: fmt.Sprintf("the idempotency key has %d characters, at most %d are allowed", len(value), MaxKeyLength)}
	}
	for i := range len(value) {
		if value[i] < 0x20 || value[i] > 0x7e {
			return &Error{Code: CodeKeyInvalid, Op: "check key", Hint: "the idempotency key may hold printable ASCII only"}
		}
	}
	return nil
}

func hasControl(s string) bool {
	for _, r := range s {
		if r < 0x20 || r == 0x7f {
			return true
		}
	}
	return false
}

// Token is the random mark of one attempt. Fence and token together say that a
// write comes from the attempt that owns the key.
type Token [16]byte

// NewToken makes a token from crypto/rand.
func NewToken() Token {
	var t Token
	rand.Read(t[:])
	return t
}

// String is the token in hexadecimal.
func (t Token) String() string { return hex.EncodeToString(t[:]) }

type byteWriter interface{ Write(p []byte) (int, error) }

// writeString writes s behind its length, so that no two lists of strings
// give the same bytes. Hashes never return an error.
func writeString(w byteWriter, s string) {
	var n [binary.MaxVarintLen64]byte
	w.Write(n[:binary.PutUvarint(n[:], uint64(len(s)))]) //nolint:errcheck // a hash
	w.Write([]byte(s))                                   //nolint:errcheck // a hash
}
