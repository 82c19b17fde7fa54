package inbox_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/inbox"
)

func mac(secret, text string) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(text))
	return m.Sum(nil)
}

// Only what the sender signed lately, by any secret that holds, is accepted.
func TestStripeSignature(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	verify, err := inbox.StripeSignature(inbox.StripeConfig{Secrets: []string{"whsec_new", "whsec_old"}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"id":"evt_1"}`
	v1 := func(secret string, at time.Time) string {
		return hex.EncodeToString(mac(secret, fmt.Sprintf("%d.%s", at.Unix(), body)))
	}
	at := fmt.Sprintf("t=%d", now.Unix())
	edge, old, ahead := now.Add(-5*time.Minute), now.Add(-5*time.Minute-time.Second), now.Add(time.Hour)
	wrong := strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		header []string
		want   bool
	}{
		"new secret":            {[]string{at + ",v1=" + v1("whsec_new", now)}, true},
		"old secret":            {[]string{at + ",v1=" + v1("whsec_old", now)}, true},
		"one of several":        {[]string{at + ",v1=" + wrong + ",v1=" + v1("whsec_new", now) + ",v0=x"}, true},
		"spaces":                {[]string{at + ", v1=" + v1("whsec_new", now)}, true},
		"just in time":          {[]string{fmt.Sprintf("t=%d,v1=%s", edge.Unix(), v1("whsec_new", edge))}, true},
		"our clock is behind":   {[]string{fmt.Sprintf("t=%d,v1=%s", ahead.Unix(), v1("whsec_new", ahead))}, true},
		"too old":               {[]string{fmt.Sprintf("t=%d,v1=%s", old.Unix(), v1("whsec_new", old))}, false},
		"another secret":        {[]string{at + ",v1=" + v1("whsec_evil", now)}, false},
		"another time":          {[]string{fmt.Sprintf("t=%d,v1=%s", now.Unix()-1, v1("whsec_new", now))}, false},
		"another scheme":        {[]string{at + ",v0=" + v1("whsec_new", now)}, false},
		"half a signature":      {[]string{at + ",v1=" + v1("whsec_new", now)[:32]}, false},
		"an empty signature":    {[]string{at + ",v1="}, false},
		"no hexadecimal":        {[]string{at + ",v1=zz"}, false},
		"no signature":          {[]string{at}, false},
		"no time":               {[]string{"v1=" + v1("whsec_new", now)}, false},
		"two times":             {[]string{at + "," + at + ",v1=" + v1("whsec_new", now)}, false},
		"a time in words":       {[]string{"t=now,v1=" + v1("whsec_new", now)}, false},
		"no header":             {nil, false},
		"two headers":           {[]string{at + ",v1=" + v1("whsec_new", now), at + ",v1=" + v1("whsec_new", now)}, false},
		"a time of ninety-nine": {[]string{"t=" + strings.Repeat("9", 99) + ",v1=" + wrong}, false},
	} {
		err := verify(http.Header{"Stripe-Signature": c.header}, []byte(body))
		if (err == nil) != c.want || (err != nil && !errors.Is(err, inbox.ErrSignature)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	header := http.Header{"Stripe-Signature": {at + ",v1=" + v1("whsec_new", now)}}
	if err := verify(header, []byte(body+" ")); err == nil {
		t.Error("another body is accepted")
	}
}

// The plain scheme, as senders write it.
func TestHMACSignature(t *testing.T) {
	t.Parallel()
	const body = `{"id":"evt_1"}`
	hexed, based := hex.EncodeToString(mac("new", body)), base64.StdEncoding.EncodeToString(mac("old", body))
	for name, c := range map[string]struct {
		cfg    inbox.HMACConfig
		header []string
		want   bool
	}{
		"hexadecimal":     {inbox.HMACConfig{Prefix: "sha256="}, []string{"sha256=" + hexed}, true},
		"in capitals":     {inbox.HMACConfig{}, []string{strings.ToUpper(hexed)}, true},
		"base64":          {inbox.HMACConfig{Encoding: inbox.Base64}, []string{based}, true},
		"no prefix":       {inbox.HMACConfig{Prefix: "sha256="}, []string{hexed}, false},
		"other encoding":  {inbox.HMACConfig{Encoding: inbox.Base64}, []string{hexed}, false},
		"not encoded":     {inbox.HMACConfig{}, []string{"?"}, false},
		"empty":           {inbox.HMACConfig{}, []string{""}, false},
		"none":            {inbox.HMACConfig{}, nil, false},
		"two":             {inbox.HMACConfig{}, []string{hexed, hexed}, false},
		"by another":      {inbox.HMACConfig{}, []string{hex.EncodeToString(mac("evil", body))}, false},
		"of another body": {inbox.HMACConfig{}, []string{hex.EncodeToString(mac("new", "{}"))}, false},
	} {
		c.cfg.Header, c.cfg.Secrets = "X-Signature", []string{"new", "old"}
		verify, err := inbox.HMACSignature(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = verify(http.Header{"X-Signature": c.header}, []byte(body))
		if (err == nil) != c.want || (err != nil && !errors.Is(err, inbox.ErrSignature)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What anybody could sign is refused.
func TestSignatureConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []inbox.StripeConfig{{}, {Secrets: []string{"x", ""}}, {Secrets: []string{"x"}, Tolerance: -1}} {
		_, err := inbox.StripeSignature(cfg)
		wantRefusal(t, err, "StripeConfig.")
	}
	for _, cfg := range []inbox.HMACConfig{{Secrets: []string{"x"}}, {Header: "X"}, {Header: "X", Secrets: []string{""}}, {Header: "X", Secrets: []string{"x"}, Encoding: 9}} {
		_, err := inbox.HMACSignature(cfg)
		wantRefusal(t, err, "HMACConfig.")
	}
}
