package onlyonce

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// partsForm is a form made of named values.
type partsForm []string // "name=value"

func (f partsForm) Sum() [32]byte { return sha256.Sum256(fmt.Append(nil, []string(f))) }

func (f partsForm) Parts() []Part {
	var parts []Part
	for _, s := range f {
		name, _, _ := bytes.Cut([]byte(s), []byte("="))
		parts = append(parts, Part{Name: string(name), Sum: sha256.Sum256([]byte(s))})
	}
	return parts
}

// Differs names the recorded parts whose digest is no longer the same.
func (f partsForm) Differs(recorded []string, same func(int, [32]byte) bool) []string {
	var out []string
	for i, p := range f.Parts() {
		if i >= len(recorded) || recorded[i] != p.Name || !same(i, p.Sum) {
			out = append(out, p.Name)
		}
	}
	return out
}

// sealing is all that goes into a fingerprint.
type sealing struct {
	secret Secret
	form   partsForm
	id     identity
	v      FingerprintVersion
}

func (s sealing) seal() Fingerprint { return seal(s.secret, s.v, s.id, s.form) }

func newSealing() sealing {
	return sealing{
		secret: Secret{ID: "s1", Key: []byte("0123456789abcdef")},
		form:   partsForm{"/amount=100", "/currency=EUR"},
		id:     identity{key: Key{Scope: "acct", Value: "k"}, operation: "POST /charges"},
		v:      FingerprintVersion{Form: 1, Secret: "s1", Policy: "p1"},
	}
}

// F6, F7: what a fingerprint depends on: the request, the secret and the
// operation change its sum; the key changes what is kept of the parts; a
// version is never equal to another one.
func TestSeal(t *testing.T) {
	t.Parallel()
	base := newSealing().seal()
	if again := newSealing().seal(); !base.Equal(again) || !bytes.Equal(base.Parts, again.Parts) {
		t.Fatal("a fingerprint must come out the same again")
	}
	for name, c := range map[string]struct {
		change            func(*sealing)
		equal, sum, parts bool // what stays
	}{
		"another value":     {func(s *sealing) { s.form = partsForm{"/amount=200", "/currency=EUR"} }, false, false, false},
		"another secret":    {func(s *sealing) { s.secret.Key = []byte("fedcba9876543210") }, false, false, false},
		"another operation": {func(s *sealing) { s.id.operation = "POST /refunds" }, false, false, true},
		"another key":       {func(s *sealing) { s.id.key.Value = "l" }, true, true, false},
		"another scope":     {func(s *sealing) { s.id.key.Scope = "acct2" }, true, true, false},
		"scope and key":     {func(s *sealing) { s.id.key = Key{Scope: "acc", Value: "tk"} }, true, true, false},
		"version of form":   {func(s *sealing) { s.v.Form = 2 }, false, true, true},
		"version of secret": {func(s *sealing) { s.v.Secret = "s2" }, false, true, true},
		"version of policy": {func(s *sealing) { s.v.Policy = "p2" }, false, true, true},
	} {
		s := newSealing()
		c.change(&s)
		fp := s.seal()
		if got := fp.Equal(base); got != c.equal {
			t.Errorf("%s: equal %v", name, got)
		}
		if got := fp.Sum == base.Sum; got != c.sum {
			t.Errorf("%s: same sum %v", name, got)
		}
		if got := bytes.Equal(fp.Parts, base.Parts); got != c.parts {
			t.Errorf("%s: same parts %v", name, got)
		}
	}
}

// F6: what differs is named from what the record keeps.
func TestDiffers(t *testing.T) {
	t.Parallel()
	s := newSealing()
	fp := s.seal()
	for _, c := range []struct {
		form partsForm
		want []string
	}{
		{partsForm{"/amount=100", "/currency=EUR"}, nil},
		{partsForm{"/amount=200", "/currency=EUR"}, []string{"/amount"}},
		{partsForm{"/amount=200", "/currency=USD"}, []string{"/amount", "/currency"}},
		{partsForm{"/amount=100", "/currency=EUR", "/note=x"}, []string{"/note"}},
	} {
		got, err := differs(s.secret, s.id, fp.Parts, c.form)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: differs in %v, %v; want %v", c.form, got, err, c.want)
		}
	}
	// Under another record's key nothing is recognised.
	got, err := differs(s.secret, identity{key: Key{Scope: "acct", Value: "l"}}, fp.Parts, s.form)
	if err != nil || len(got) != 2 {
		t.Errorf("another record's parts: %v, %v", got, err)
	}
}

// F6: equal values in two records leave different hashes, so that a table that
// is read by somebody does not tell who sent the same amount.
func TestEqualValuesInTwoRecords(t *testing.T) {
	t.Parallel()
	seen := map[string]Key{}
	for _, k := range []Key{{"acct", "k"}, {"acct", "l"}, {"acct2", "k"}, {"acc", "tk"}} {
		s := newSealing()
		s.id.key = k
		_, macs, err := decodeParts(s.seal().Parts)
		if err != nil {
			t.Fatal(err)
		}
		for _, mac := range macs {
			if other, dup := seen[string(mac)]; dup {
				t.Errorf("%v and %v hold one hash", k, other)
			}
			seen[string(mac)] = k
		}
	}
}

// What was sealed is read back, whatever the names.
func TestDecodeParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSealing()
		s.form = nil
		var want []string
		for _, name := range rapid.SliceOfN(rapid.StringMatching(`[^=]{0,200}`), 0, 64).Draw(t, "names") {
			s.form = append(s.form, name+"=v")
			want = append(want, name)
		}
		names, macs, err := decodeParts(s.seal().Parts)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Fatalf("names (-want +got):\n%s", diff)
		}
		key := partKey(s.secret, s.id)
		for i, p := range s.form.Parts() {
			if m := partSum(key, p.Sum); !bytes.Equal(m[:], macs[i]) {
				t.Fatalf("part %d: hash %x, want %x", i, macs[i], m)
			}
		}
	})
}

// A damaged row is an error: it neither panics nor explains anything.
func TestDamagedParts(t *testing.T) {
	t.Parallel()
	s := newSealing()
	whole := s.seal().Parts
	first := 1 + len("/amount") + partMAC
	for n := range whole {
		if n == 0 || n == first {
			continue // cut between parts
		}
		if _, err := differs(s.secret, s.id, whole[:n], s.form); err == nil {
			t.Errorf("parts cut at %d of %d were read", n, len(whole))
		}
	}
	for _, damaged := range [][]byte{
		binary.AppendUvarint(nil, 1<<63),
		binary.AppendUvarint(nil, 1<<64-1),
		bytes.Repeat([]byte{0xff}, 11),
		append([]byte{200}, whole...),
	} {
		if _, _, err := decodeParts(damaged); err == nil {
			t.Errorf("%x was read", damaged)
		}
	}
}

func FuzzDecodeParts(f *testing.F) {
	f.Add([]byte{})
	f.Add(newSealing().seal().Parts)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3})
	f.Add(append([]byte{0}, make([]byte, partMAC)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		names, macs, err := decodeParts(b)
		if err != nil {
			return
		}
		if len(names) != len(macs) {
			t.Fatalf("%d names, %d hashes", len(names), len(macs))
		}
		var held int
		for i, m := range macs {
			if len(m) != partMAC {
				t.Fatalf("a hash of %d bytes", len(m))
			}
			held += len(names[i]) + len(m)
		}
		if held > len(b) {
			t.Fatalf("%d bytes out of %d", held, len(b))
		}
	})
}
