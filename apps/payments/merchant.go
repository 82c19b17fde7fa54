package payments

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// keyPrefix begins every API key, so that a leaked one is recognised.
const keyPrefix = "sk_"

// hashPrefix begins the stored form of an API key.
const hashPrefix = "sha256:"

// Merchants knows who may use the service: the hashes of API keys, and whose
// they are. A merchant may have several, so that one can be replaced without a
// gap. The zero value has none.
type Merchants struct {
	hashes [][sha256.Size]byte
	owners []string
}

// NewAPIKey makes an API key from 160 random bits, and the form in which it is
// stored. A plain hash is enough, because nobody can guess what was hashed.
func NewAPIKey() (key, stored string) {
	key = keyPrefix + strings.ToLower(rand.Text()) + strings.ToLower(rand.Text())
	return key, storedKey(key)
}

func storedKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hashPrefix + hex.EncodeToString(sum[:])
}

var merchantName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// ParseMerchants reads merchants and the stored forms of their API keys. It
// refuses names that are not plain, keys that are not hashed, and a key that
// two merchants have.
func ParseMerchants(stored map[string][]string) (Merchants, error) {
	var m Merchants
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if !merchantName.MatchString(name) {
			return Merchants{}, fmt.Errorf("read merchants: %q is not a name of 1 to 64 letters a-z, digits, _ and -", name)
		}
		for _, text := range stored[name] {
			hash, err := hex.DecodeString(strings.TrimPrefix(text, hashPrefix))
			if err != nil || len(hash) != sha256.Size || !strings.HasPrefix(text, hashPrefix) {
				return Merchants{}, fmt.Errorf("read merchants: a key of %s is not of the form sha256:HEX; make one with: onlyonce merchants key", name)
			}
			if owner, taken := m.owner([sha256.Size]byte(hash)); taken && owner != name {
				return Merchants{}, fmt.Errorf("read merchants: %s and %s have the same key", owner, name)
			}
			m.hashes = append(m.hashes, [sha256.Size]byte(hash))
			m.owners = append(m.owners, name)
		}
	}
	return m, nil
}

// Empty tells whether there are none.
func (m Merchants) Empty() bool { return len(m.owners) == 0 }

// names are the merchants, each once.
func (m Merchants) names() []string {
	if m.Empty() {
		return []string{DevMerchant}
	}
	return slices.Compact(slices.Sorted(slices.Values(m.owners)))
}

// owner finds whose a hash is. It looks at all of them in constant time.
func (m Merchants) owner(hash [sha256.Size]byte) (string, bool) {
	found := -1
	for i := range m.hashes {
		if subtle.ConstantTimeCompare(m.hashes[i][:], hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return "", false
	}
	return m.owners[found], true
}

// authenticate finds the merchant a request comes from.
func (m Merchants) authenticate(r *http.Request) (string, bool) {
	if m.Empty() {
		return DevMerchant, true
	}
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || !strings.HasPrefix(key, keyPrefix) {
		return "", false
	}
	return m.owner(sha256.Sum256([]byte(key)))
}

type merchantKey struct{}

// withMerchant runs next for an authenticated merchant only.
func (s *Service) withMerchant(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		merchant, ok := s.cfg.Merchants.authenticate(r)
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer realm="payments"`)
			refuse(w, problem(codeUnauthenticated, "Send the merchant's API key: Authorization: Bearer sk_…"))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), merchantKey{}, merchant)))
	})
}

// merchantOf is the merchant a request was authenticated for: the scope of its
// keys and of everything it sees.
func merchantOf(ctx context.Context) string {
	merchant, _ := ctx.Value(merchantKey{}).(string)
	return merchant
}
