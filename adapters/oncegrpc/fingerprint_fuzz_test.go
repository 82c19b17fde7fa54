package oncegrpc_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/canon"
)

// messages makes messages of a type.
type messages struct{ *rapid.T }

func (g messages) message(desc protoreflect.MessageDescriptor, depth int) *dynamicpb.Message {
	m := dynamicpb.NewMessage(desc)
	for i := range desc.Fields().Len() {
		f := desc.Fields().Get(i)
		if f.Message() != nil && !f.IsMap() && depth > 2 || rapid.IntRange(0, 2).Draw(g.T, "absent") == 0 {
			continue
		}
		g.fill(m, f, depth)
	}
	if rapid.IntRange(0, 3).Draw(g.T, "unknown") == 0 {
		m.SetUnknown(field(protowire.Number(rapid.IntRange(60, 62).Draw(g.T, "number")), rapid.IntRange(0, 9).Draw(g.T, "n")))
	}
	return m
}

func (g messages) fill(m *dynamicpb.Message, f protoreflect.FieldDescriptor, depth int) {
	n := rapid.IntRange(1, 3).Draw(g.T, "n")
	switch {
	case f.IsMap():
		for range n {
			key := g.value(f.MapKey(), depth).MapKey()
			m.Mutable(f).Map().Set(key, g.value(f.MapValue(), depth))
		}
	case f.IsList():
		for range n {
			m.Mutable(f).List().Append(g.value(f, depth))
		}
	default:
		m.Set(f, g.value(f, depth))
	}
}

func (g messages) value(f protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(g.T, "bool"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.IntRange(-1, 3).Draw(g.T, "enum")))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(g.T, "int32"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(g.T, "int64"))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(g.T, "uint64"))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(rapid.Float32().Draw(g.T, "float"))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.Float64().Draw(g.T, "double"))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.StringN(0, 4, -1).Draw(g.T, "text"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(g.T, "bytes"))
	default:
		return protoreflect.ValueOfMessage(g.message(f.Message(), depth+1))
	}
}

// shuffle writes a message's fields in another order, in it and in the messages in it.
// Fields of one number keep theirs, but in maps.
func (g messages) shuffle(desc protoreflect.MessageDescriptor, raw []byte) []byte {
	groups := map[protowire.Number][][]byte{}
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeField(raw)
		one := raw[:n]
		raw = raw[n:]
		f := desc.Fields().ByNumber(number)
		if f != nil && f.Message() != nil && kind == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(one[protowire.SizeTag(number):])
			one = protowire.AppendBytes(protowire.AppendTag(nil, number, kind), g.shuffle(f.Message(), inner))
		}
		groups[number] = append(groups[number], one)
	}
	var out []byte
	for _, number := range rapid.Permutation(slices.Sorted(maps.Keys(groups))).Draw(g.T, "order") {
		parts := groups[number]
		if f := desc.Fields().ByNumber(number); f != nil && f.IsMap() {
			parts = rapid.Permutation(parts).Draw(g.T, "order of a map")
		}
		out = append(out, wire(parts...)...)
	}
	return out
}

// fingerprintProperty: a message that is written in another order, and read again under
// a recorded schema, is the same; one that is not equal is not.
func fingerprintProperty(desc protoreflect.MessageDescriptor) func(t *rapid.T) {
	return func(t *rapid.T) {
		g := messages{t}
		m := g.message(desc, 0)
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		sum := sumOf(t, m, false)
		again := dynamicpb.NewMessage(desc)
		if err := proto.Unmarshal(g.shuffle(desc, raw), again); err != nil {
			t.Fatal(err)
		}
		if sumOf(t, again, false) != sum || sumOf(t, again, true) != sum {
			t.Fatalf("it is not the same in another order: %v and %v", m, again)
		}
		other := proto.Clone(m).(*dynamicpb.Message)
		f := desc.Fields().Get(rapid.IntRange(0, desc.Fields().Len()-1).Draw(t, "field"))
		other.Clear(f)
		if rapid.Bool().Draw(t, "filled") {
			g.fill(other, f, 1)
		}
		otherRaw, err := proto.MarshalOptions{Deterministic: true}.Marshal(other)
		if err != nil {
			t.Fatal(err)
		}
		// NaNs are one number here, and many to proto; the generator makes none.
		if same := string(raw) == string(otherRaw); same != (sumOf(t, other, false) == sum) {
			t.Fatalf("equal: %v, but not so to the fingerprint, after a change of %s:\n%v\n%v", same, f.Name(), m, other)
		}
	}
}

// sumOf is the digest of a message; recorded: as if its policy was that of an earlier
// deploy.
func sumOf(t *rapid.T, m proto.Message, recorded bool) [32]byte {
	c, text, err := oncegrpc.Canonical(charge, m, nil, canon.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if recorded {
		text = fmt.Appendf(nil, "%s ", text) // the same in other words
	}
	form, err := c.Form(c.Version(), text)
	if err != nil {
		t.Fatal(err)
	}
	return form.Sum()
}

// F2, F7.
func TestFingerprintProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, fingerprintProperty(chargeType(t)))
}

func FuzzFingerprint(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(fingerprintProperty(chargeType(f))))
}
