package inbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// VerifyFunc tells whether a request comes from who it says, by its headers and its raw
// body, before anything of it is parsed. Its error is for logs: the sender is told no
// more than that the signature is wrong.
type VerifyFunc func(header http.Header, body []byte) error

// ErrSignature is what a request's signature is refused with.
var ErrSignature = errors.New("the signature is not right")

// StripeConfig configures StripeSignature.
type StripeConfig struct {
	// Secrets are the endpoint's signing secrets; several while one is rotated. Required.
	Secrets []string
	// Tolerance is how old a signature may be. Default 5 min, as Stripe's own.
	Tolerance time.Duration
	// Now is the clock that signatures are judged by; nil: time.Now.
	Now func() time.Time
}

// StripeSignature verifies the header Stripe-Signature: an HMAC-SHA256 in hexadecimal
// over time and raw body, by any of the secrets. Events are signed anew when they are
// sent again.
func StripeSignature(cfg StripeConfig) (VerifyFunc, error) {
	if err := validSecrets("StripeConfig.Secrets", cfg.Secrets); err != nil {
		return nil, err
	}
	if cfg.Tolerance < 0 {
		return nil, configError("StripeConfig.Tolerance", "must not be negative, got %v", cfg.Tolerance)
	}
	if cfg.Tolerance == 0 {
		cfg.Tolerance = 5 * time.Minute
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return func(header http.Header, body []byte) error {
		at, sums, err := parseStripe(header.Values("Stripe-Signature"))
		if err != nil {
			return err
		}
		seconds, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return fmt.Errorf("%w: its time is no number", ErrSignature)
		}
		if !matches(cfg.Secrets, sums, []byte(at), []byte("."), body) {
			return ErrSignature
		}
		// Signed, so the sender's own word: only an old one may have been overheard.
		if age := cfg.Now().Sub(time.Unix(seconds, 0)); age > cfg.Tolerance {
			return fmt.Errorf("%w: it is %v old, at most %v are allowed", ErrSignature, age.Truncate(time.Second), cfg.Tolerance)
		}
		return nil
	}, nil
}

// parseStripe reads "t=TIME,v1=HEX,v1=HEX"; other schemes are ignored.
func parseStripe(values []string) (at string, sums [][]byte, err error) {
	if len(values) != 1 {
		return "", nil, fmt.Errorf("%w: there are %d headers Stripe-Signature, one is needed", ErrSignature, len(values))
	}
	for item := range strings.SplitSeq(values[0], ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		switch name {
		case "t":
			if at != "" {
				return "", nil, fmt.Errorf("%w: it has two times", ErrSignature)
			}
			at = value
		case "v1":
			if sum, err := hex.DecodeString(value); err == nil {
				sums = append(sums, sum)
			}
		}
	}
	if at == "" || len(sums) == 0 {
		return "", nil, fmt.Errorf("%w: the header has no time, or no signature of scheme v1", ErrSignature)
	}
	return at, sums, nil
}

// Encoding is how a signature is written in a header.
type Encoding uint8

// The encodings.
const (
	// Hex is hexadecimal, in either case.
	Hex Encoding = iota
	// Base64 is the standard alphabet, padded.
	Base64
)

// HMACConfig configures HMACSignature.
type HMACConfig struct {
	// Header has the signature. Required.
	Header string
	// Secrets are those that sign; several while one is rotated. Required.
	Secrets []string
	// Encoding of the signature; default Hex.
	Encoding Encoding
	// Prefix stands before it: "sha256=" with some senders. Default none.
	Prefix string
}

// HMACSignature verifies an HMAC-SHA256 over the raw body. It has no time in it, so that
// only the event's id tells a replayed request.
func HMACSignature(cfg HMACConfig) (VerifyFunc, error) {
	if cfg.Header == "" {
		return nil, configError("HMACConfig.Header", "must name the header that has the signature")
	}
	if err := validSecrets("HMACConfig.Secrets", cfg.Secrets); err != nil {
		return nil, err
	}
	var decode func(string) ([]byte, error)
	switch cfg.Encoding {
	case Hex:
		decode = hex.DecodeString
	case Base64:
		decode = base64.StdEncoding.DecodeString
	default:
		return nil, configError("HMACConfig.Encoding", "must be Hex or Base64, got %d", cfg.Encoding)
	}
	return func(header http.Header, body []byte) error {
		values := header.Values(cfg.Header)
		if len(values) != 1 {
			return fmt.Errorf("%w: there are %d headers %s, one is needed", ErrSignature, len(values), cfg.Header)
		}
		text, ok := strings.CutPrefix(values[0], cfg.Prefix)
		if !ok {
			return fmt.Errorf("%w: the header %s does not begin with %q", ErrSignature, cfg.Header, cfg.Prefix)
		}
		sum, err := decode(text)
		if err != nil || !matches(cfg.Secrets, [][]byte{sum}, body) {
			return ErrSignature
		}
		return nil
	}, nil
}

// matches tells whether any of the signatures is by any of the secrets. How long it takes
// says nothing of how near a wrong one came.
func matches(secrets []string, sums [][]byte, signed ...[]byte) bool {
	found := false
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		for _, part := range signed {
			mac.Write(part)
		}
		want := mac.Sum(nil)
		for _, sum := range sums {
			found = hmac.Equal(want, sum) || found
		}
	}
	return found
}

// validSecrets refuses what anybody could sign with.
func validSecrets(field string, secrets []string) error {
	if len(secrets) == 0 {
		return configError(field, "must have at least one secret: without one anybody could send events")
	}
	for i, secret := range secrets {
		if secret == "" {
			return configError(field, "must not have empty secrets, but number %d is", i+1)
		}
	}
	return nil
}
