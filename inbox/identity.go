package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

const (
	scopePrefix     = "inbox:"
	operationPrefix = "inbox "
	// hashPrefix begins the key of a message whose id is told by its hash.
	hashPrefix = "sha256:"
)

// otherSuffix ends the key of a message that came with another payload than was
// handled under its id. No other key ends so.
var otherSuffix = regexp.MustCompile(`#[0-9a-f]{32}$`)

func scopeOf(consumer string) string { return scopePrefix + consumer }

// Owns tells whether a key is that of a message of some consumer.
func Owns(key onlyonce.Key) bool { return strings.HasPrefix(key.Scope, scopePrefix) }

func operationName(consumer string) string { return operationPrefix + consumer }

// KeyOf is the key under which a consumer's message is recorded: its id, or for an id
// that is no idempotency key, or looks like one that is made here, the id's SHA-256.
func KeyOf(consumer, id string) onlyonce.Key {
	value := id
	if onlyonce.ValidateKeyValue(id) != nil || strings.HasPrefix(id, hashPrefix) || otherSuffix.MatchString(id) {
		value = hashed(id)
	}
	return onlyonce.Key{Scope: scopeOf(consumer), Value: value}
}

func hashed(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// otherKey is the key of a message whose id was used for another payload: one for each
// payload, so that its redelivery finds it again.
func otherKey(consumer string, msg Message) onlyonce.Key {
	key := KeyOf(consumer, msg.ID)
	sum := sha256.Sum256(msg.Payload)
	suffix := "#" + hex.EncodeToString(sum[:16])
	if len(key.Value)+len(suffix) > onlyonce.MaxKeyLength {
		key.Value = hashed(msg.ID)
	}
	key.Value += suffix
	return key
}

// payload makes the canonical form of a message: the SHA-256 of its payload. What came
// beside it may differ between deliveries.
type payload []byte

const payloadForm = 1

// Version is the present version of the form.
func (payload) Version() int { return payloadForm }

// Form hashes the payload.
func (p payload) Form(version int, policy []byte) (onlyonce.Form, error) {
	if version != payloadForm || len(policy) > 0 {
		return nil, fmt.Errorf("hash payload: version %d with a policy of %d bytes is not known, only %d without one is", version, len(policy), payloadForm)
	}
	return form(sha256.Sum256(p)), nil
}

// form is the digest of a payload.
type form [sha256.Size]byte

// Sum is the digest.
func (f form) Sum() [32]byte { return f }

// Parts are none: all of a payload counts.
func (form) Parts() []onlyonce.Part { return nil }

// Differs names the payload: nothing else counts.
func (form) Differs([]string, func(int, [32]byte) bool) []string { return []string{"payload"} }
