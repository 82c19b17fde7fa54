package oncegrpc

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// unknownName is the member for the fields that a message has and its type has not. No
// field can have the name.
const unknownName = "$unknown"

// appendMessage appends a message as a JSON text for package canon to compare. It is
// made by reflection, so that it does not depend on how the message was written, and no
// two messages that differ have the same:
//
//	fields    members, by their names; absent where the message does not have them,
//	          which a field without presence at its default is
//	lists     arrays, in their order
//	maps      objects; a key that is no text, or begins with $, is $ and base64
//	integers  numbers, enums too
//	floats    the shortest number that is read back the same; "NaN", "Infinity" and
//	          "-Infinity" as texts
//	bytes     base64, as are texts that are not UTF-8, in an array
//	unknown   "$unknown": for each number, as base64, what is there under it, in the
//	          order in which it came. Extensions count as unknown fields, so that it
//	          does not matter which of them a process knows.
//
// An Any is its type URL and bytes.
func appendMessage(b []byte, m protoreflect.Message) ([]byte, error) {
	b = append(b, '{')
	first := true
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !m.Has(field) {
			continue
		}
		b = appendName(b, field.TextName(), &first)
		var err error
		if b, err = appendField(b, field, m.Get(field)); err != nil {
			return nil, err
		}
	}
	unknown, err := unknownFields(m)
	if err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		b = append(appendName(b, unknownName, &first), '{')
		first = true
		for _, number := range slices.Sorted(maps.Keys(unknown)) {
			b = appendBytes(appendName(b, strconv.Itoa(int(number)), &first), unknown[number])
		}
		b = append(b, '}')
	}
	return append(b, '}'), nil
}

// appendName begins a member.
func appendName(b []byte, name string, first *bool) []byte {
	if !*first {
		b = append(b, ',')
	}
	*first = false
	return append(appendText(b, name), ':')
}

func appendField(b []byte, field protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch {
	case field.IsList():
		return appendList(b, field, v.List())
	case field.IsMap():
		return appendMap(b, field, v.Map())
	default:
		return appendValue(b, field, v)
	}
}

func appendList(b []byte, field protoreflect.FieldDescriptor, list protoreflect.List) ([]byte, error) {
	b = append(b, '[')
	for i := range list.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendValue(b, field, list.Get(i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendMap(b []byte, field protoreflect.FieldDescriptor, m protoreflect.Map) ([]byte, error) {
	keys := map[string]protoreflect.MapKey{}
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		name := k.String()
		if strings.HasPrefix(name, "$") || !utf8.ValidString(name) {
			name = "$" + base64.StdEncoding.EncodeToString([]byte(name))
		}
		keys[name] = k
		return true
	})
	b = append(b, '{')
	first := true
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		var err error
		if b, err = appendValue(appendName(b, name, &first), field.MapValue(), m.Get(keys[name])); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendValue appends a value that is no list and no map.
func appendValue(b []byte, field protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool()), nil
	case protoreflect.EnumKind:
		return strconv.AppendInt(b, int64(v.Enum()), 10), nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	case protoreflect.FloatKind:
		return appendFloat(b, v.Float(), 32), nil
	case protoreflect.DoubleKind:
		return appendFloat(b, v.Float(), 64), nil
	case protoreflect.StringKind:
		if s := v.String(); utf8.ValidString(s) {
			return appendText(b, s), nil
		}
		return append(appendBytes(append(b, '['), []byte(v.String())), ']'), nil
	case protoreflect.BytesKind:
		return appendBytes(b, v.Bytes()), nil
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return appendMessage(b, v.Message())
	default:
		return nil, fmt.Errorf("field %s is of an unknown kind", field.FullName())
	}
}

func appendFloat(b []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(b, `"-Infinity"`...)
	default:
		return strconv.AppendFloat(b, f, 'g', -1, bits)
	}
}

func appendText(b []byte, s string) []byte {
	text, _ := json.Marshal(s) // a text has no error
	return append(b, text...)
}

func appendBytes(b, raw []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), raw), '"')
}

// unknownFields are the bytes, by number, of what a type does not know, and of its
// extensions.
func unknownFields(m protoreflect.Message) (map[protowire.Number][]byte, error) {
	raw := slices.Clone([]byte(m.GetUnknown()))
	if m.Descriptor().ExtensionRanges().Len() > 0 {
		known := m.New()
		m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if field.IsExtension() {
				known.Set(field, v)
			}
			return true
		})
		extensions, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(known.Interface())
		if err != nil {
			return nil, fmt.Errorf("read extensions of %s: %w", m.Descriptor().FullName(), err)
		}
		raw = append(raw, extensions...)
	}
	if len(raw) == 0 {
		return nil, nil
	}
	found := map[protowire.Number][]byte{}
	for len(raw) > 0 {
		number, _, n := protowire.ConsumeField(raw)
		if n < 0 {
			return nil, fmt.Errorf("read unknown fields of %s: %w", m.Descriptor().FullName(), protowire.ParseError(n))
		}
		found[number] = append(found[number], raw[:n]...)
		raw = raw[n:]
	}
	return found, nil
}
