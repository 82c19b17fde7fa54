package onlyonce_test

import (
	"context"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
)

// K3: 1 to 255 characters of printable ASCII.
func TestValidateKeyValue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value string
		hint  string // part of the refusal; empty: valid
	}{
		"empty":            {"", "is empty"},
		"one":              {"k", ""},
		"UUID":             {"8e03978e-40d5-43e8-bc93-6894a57f9324", ""},
		"every character":  {" !\"#$%&'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~", ""},
		"longest":          {strings.Repeat("k", 255), ""},
		"too long":         {strings.Repeat("k", 256), "has 256 characters, at most 255"},
		"far too long":     {strings.Repeat("k", 100_000), "at most 255"},
		"NUL":              {"a\x00b", "printable ASCII"},
		"line break":       {"a\nb", "printable ASCII"},
		"unit separator":   {"\x1f", "printable ASCII"},
		"DEL":              {"a\x7f", "printable ASCII"},
		"accent":           {"clé", "printable ASCII"},
		"Latin-1 byte":     {"cl\xe9", "printable ASCII"},
		"zero width space": {"k\u200b", "printable ASCII"},
	} {
		err := onlyonce.ValidateKeyValue(c.value)
		if c.hint == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if e := wantCode(t, err, onlyonce.CodeKeyInvalid); !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s: hint %q", name, e.Hint)
		}
		if onlyonce.SafeToRetry(err) {
			t.Errorf("%s: a malformed key stays malformed", name)
		}
	}
}

// S1, S2: a scope is never empty, and no longer than a store can hold.
func TestKeyValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scope string
		code  onlyonce.Code
	}{
		"plain":              {"acct_1", ""},
		"UTF-8":              {"Müller & Söhne/live", ""},
		"longest":            {strings.Repeat("s", 255), ""},
		"longest, in UTF-8":  {"s" + strings.Repeat("é", 127), ""},
		"empty":              {"", onlyonce.CodeUnauthenticated},
		"too long":           {strings.Repeat("s", 256), onlyonce.CodeUnauthenticated},
		"too long, in UTF-8": {strings.Repeat("é", 128), onlyonce.CodeUnauthenticated},
		"invalid UTF-8":      {"acct\xff", onlyonce.CodeUnauthenticated},
		"NUL":                {"acct\x00", onlyonce.CodeUnauthenticated},
		"line break":         {"acct\n", onlyonce.CodeUnauthenticated},
		"DEL":                {"acct\x7f", onlyonce.CodeUnauthenticated},
	} {
		err := onlyonce.Key{Scope: c.scope, Value: "k"}.Validate()
		if c.code == "" && err != nil || onlyonce.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %q", name, err, c.code)
		}
	}
	wantCode(t, onlyonce.Key{Scope: "acct"}.Validate(), onlyonce.CodeKeyInvalid)
	// The scope is checked first: who is not known is not told about keys.
	wantCode(t, onlyonce.Key{}.Validate(), onlyonce.CodeUnauthenticated)
}

// S1: two keys have one digest only if they are the same key.
func TestDigestIsUnambiguous(t *testing.T) {
	t.Parallel()
	part := rapid.OneOf(rapid.StringMatching(`[ab:\x00\x01\x02]{0,4}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		a := onlyonce.Key{Scope: part.Draw(t, "scope"), Value: part.Draw(t, "value")}
		b := onlyonce.Key{Scope: part.Draw(t, "other scope"), Value: part.Draw(t, "other value")}
		if rapid.Bool().Draw(t, "moved border") {
			whole := a.Scope + a.Value
			n := rapid.IntRange(0, len(whole)).Draw(t, "border")
			b = onlyonce.Key{Scope: whole[:n], Value: whole[n:]}
		}
		if same := a.Digest() == b.Digest(); same != (a == b) {
			t.Fatalf("%q and %q: same digest %v", a, b, same)
		}
		if same := a.Operation() == b.Operation(); same != (a == b) {
			t.Fatalf("%q and %q: same reference %v", a, b, same)
		}
	})
}

// The digest is an index in stored rows, and the reference is in logs: neither
// may change. A key's name is not in them.
func TestDigestIsStable(t *testing.T) {
	t.Parallel()
	for want, k := range map[string]onlyonce.Key{
		"op_3fefbcd1c28e02fc778523b615ad20df": {Scope: "acct", Value: "key"},
		"op_1216a7411f54ce8d36bede26eb68214c": {Scope: "acct", Value: "k1"},
		"op_01acdcdbb8de0fd95ce841f436bc108b": {Scope: "acct_1", Value: "k1"},
	} {
		if got := k.Operation(); got != want {
			t.Errorf("%v: %s, want %s", k, got, want)
		}
	}
}

// C6: tokens do not repeat.
func TestNewToken(t *testing.T) {
	t.Parallel()
	seen := map[onlyonce.Token]bool{{}: true}
	for range 1000 {
		tok := onlyonce.NewToken()
		if seen[tok] || len(tok.String()) != 32 {
			t.Fatalf("token %s", tok)
		}
		seen[tok] = true
	}
}

// What a setting holds is named when it is wrong, and all that is wrong at once.
func TestOpValidate(t *testing.T) {
	t.Parallel()
	valid := charge()
	for field, breaks := range map[string][]func(*onlyonce.Op){
		"Op.Name": {
			func(o *onlyonce.Op) { o.Name = "" },
			func(o *onlyonce.Op) { o.Name = strings.Repeat("n", 256) },
			func(o *onlyonce.Op) { o.Name = "POST\n/charges" },
			func(o *onlyonce.Op) { o.Name = "POST /ch\xffrges" }, // no database could hold it
		},
		"Op.Lease": {
			func(o *onlyonce.Op) { o.Lease = -1 },
			func(o *onlyonce.Op) { o.Lease = 99_999_999 },
			func(o *onlyonce.Op) { o.Lease = 86_400_000_000_001 },
		},
		"Op.Deadline":  {func(o *onlyonce.Op) { o.Deadline = -1 }},
		"Op.Retention": {func(o *onlyonce.Op) { o.Retention = -1 }, func(o *onlyonce.Op) { o.Retention = 1 << 62 }},
		"Op.Recover": {func(o *onlyonce.Op) {
			o.Recover, o.AfterCrash = recoverNothing, onlyonce.Rerun
		}},
	} {
		for i, breaking := range breaks {
			op := valid
			breaking(&op)
			err := op.Validate()
			if e := wantCode(t, err, onlyonce.CodeConfig); !strings.HasPrefix(e.Hint, field+" ") {
				t.Errorf("%s, %d: %v", field, i, err)
			}
		}
	}
	for _, op := range []onlyonce.Op{
		valid,
		valid.WithDefaults(),
		{Name: strings.Repeat("n", 255), Lease: 100_000_000, Retention: 10 * 365 * 24 * 3_600_000_000_000},
		{Name: "n", Lease: 86_400_000_000_000, Recover: recoverNothing},
	} {
		if err := op.Validate(); err != nil {
			t.Errorf("%+v: %v", op, err)
		}
	}
	if all := (onlyonce.Op{Lease: -1, Deadline: -1, Retention: -1}).Validate(); strings.Count(all.Error(), "Op.") != 4 {
		t.Errorf("faults: %v", all)
	}
}

func recoverNothing(context.Context, onlyonce.Record) (onlyonce.Answer, error) {
	return onlyonce.Answer{Outcome: onlyonce.Unknown}, nil
}
