package cachestore

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
)

var secret = []byte("a secret of more than sixteen bytes")

// record draws a completed record; anything that a store could hold.
func record(t *rapid.T) onlyonce.Record {
	text := func(label string) string { return string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, label)) }
	blob := func(label string) []byte {
		if rapid.Bool().Draw(t, label+" is nil") {
			return nil
		}
		return append([]byte{}, text(label)...)
	}
	moment := func(label string) time.Time {
		return time.UnixMicro(rapid.Int64Range(-1<<56, 1<<56).Draw(t, label)).UTC()
	}
	r := onlyonce.Record{
		Key: onlyonce.Key{Scope: text("scope"), Value: text("key")}, Operation: text("operation"), State: onlyonce.Completed,
		Fence: rapid.Int64().Draw(t, "fence"), Origin: rapid.Int64().Draw(t, "origin"), Attempts: rapid.Int().Draw(t, "attempts"),
		Abandon: onlyonce.Abandon(rapid.Byte().Draw(t, "abandon")), Reason: text("reason"), Resource: text("resource"), Holds: rapid.Bool().Draw(t, "holds"),
		Retention: time.Duration(rapid.Int64().Draw(t, "retention")), CreatedAt: moment("created"), LeaseEnd: moment("lease"),
		CompletedAt: moment("completed"), ExpiresAt: moment("expires"),
		Answer: &onlyonce.Answer{Status: rapid.Int().Draw(t, "status"), Body: blob("body"), NotRetained: rapid.Bool().Draw(t, "tombstone")},
	}
	r.Fingerprint.Version = onlyonce.FingerprintVersion{Form: rapid.Int().Draw(t, "form"), Secret: text("secret"), Policy: text("policy")}
	copy(r.Fingerprint.Sum[:], text("sum"))
	copy(r.Attempt[:], text("token"))
	r.Fingerprint.Parts = blob("parts")
	if rapid.Bool().Draw(t, "has headers") {
		r.Answer.Header = rapid.MapOfN(rapid.String(), rapid.SliceOfN(rapid.String(), 0, 3), 0, 4).Draw(t, "header")
		for name, values := range r.Answer.Header {
			if values == nil {
				r.Answer.Header[name] = []string{}
			}
		}
	}
	return r
}

// B45: every field comes back as it was; a copy shares nothing.
func TestEveryFieldSurvives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := record(t)
		value, ok := encode(secret, &r)
		if !ok {
			t.Fatal("not encoded")
		}
		got, err := decode(secret, value)
		if diff := cmp.Diff(r, got); diff != "" || err != nil {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
		for i := range value {
			value[i] ^= 0xff // what was decoded must not stand on it
		}
		copied := clone(got)
		if diff := cmp.Diff(r, copied); diff != "" {
			t.Fatalf("clone (-want +got):\n%s", diff)
		}
		for i := range copied.Answer.Body {
			copied.Answer.Body[i] ^= 0xff
		}
		for i := range copied.Fingerprint.Parts {
			copied.Fingerprint.Parts[i] ^= 0xff
		}
		for name, values := range copied.Answer.Header {
			for i := range values {
				values[i] += "!"
			}
			copied.Answer.Header[name] = append(values, "more")
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Fatalf("scribbling over a copy (-want +got):\n%s", diff)
		}
	})
}

// B89: a value of another secret, cut, lengthened or changed in one bit is none.
func TestChangedValuesAreForeign(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := record(t)
		value, _ := encode(secret, &r)
		if _, err := decode([]byte("another secret, as long"), value); err == nil {
			t.Fatal("another secret was believed")
		}
		if _, err := decode(secret, value[:rapid.IntRange(0, len(value)-1).Draw(t, "cut")]); err == nil {
			t.Fatal("a cut value was believed")
		}
		if _, err := decode(secret, append(bytes.Clone(value), 0)); err == nil {
			t.Fatal("a longer value was believed")
		}
		value[rapid.IntRange(0, len(value)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if got, err := decode(secret, value); err == nil {
			t.Fatalf("a changed value was believed: %+v", got)
		}
	})
}

// What cannot be told exactly is not told.
func TestInexactRecordsAreNotShared(t *testing.T) {
	t.Parallel()
	good := onlyonce.Record{State: onlyonce.Completed, Answer: &onlyonce.Answer{Header: map[string][]string{"A": {}}}}
	fine, hole := clone(good), clone(good)
	fine.ExpiresAt = time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC)
	hole.Answer.Header["A"] = nil
	for name, tt := range map[string]struct {
		rec  onlyonce.Record
		want bool
	}{"good": {good, true}, "nanoseconds": {fine, false}, "a header without a list": {hole, false}} {
		if _, ok := encode(secret, &tt.rec); ok != tt.want {
			t.Errorf("%s: encoded %v", name, ok)
		}
	}
}

// Whoever has the secret may still be of another version, or wrong: no value can
// do more than be refused.
func FuzzDecode(f *testing.F) {
	r := onlyonce.Record{
		Key: onlyonce.Key{Scope: "s", Value: "k"}, State: onlyonce.Completed,
		Answer: &onlyonce.Answer{Header: map[string][]string{"A": {"b", ""}}, Body: []byte("body")},
	}
	value, _ := encode(secret, &r)
	f.Add(value[:len(value)-macSize])
	f.Add([]byte{version, 0})
	f.Add([]byte{version, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Add([]byte{2, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, payload []byte) {
		got, err := decode(secret, append(bytes.Clone(payload), sum(secret, payload)...))
		if err != nil {
			return
		}
		again, ok := encode(secret, &got)
		if !ok {
			t.Skip("a time that microseconds cannot hold")
		}
		if twice, err := decode(secret, again); err != nil || cmp.Diff(got, twice) != "" {
			t.Errorf("%+v came back as %+v, %v", got, twice, err)
		}
	})
}
