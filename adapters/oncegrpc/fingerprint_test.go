package oncegrpc_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/sourcecontextpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/canon"
)

// formOf is the canonical form of a message.
func formOf(tb testing.TB, msg proto.Message, policy canon.Policy) onlyonce.Form {
	tb.Helper()
	c, text, err := oncegrpc.Canonical(charge, msg, nil, policy)
	if err != nil {
		tb.Fatal(err)
	}
	form, err := c.Form(c.Version(), text)
	if err != nil {
		tb.Fatal(err)
	}
	return form
}

// differing names what differs between two forms, of which one was recorded.
func differing(recorded, now onlyonce.Form) []string {
	var names []string
	var sums [][32]byte
	for _, p := range recorded.Parts() {
		names, sums = append(names, p.Name), append(sums, p.Sum)
	}
	return now.Differs(names, func(i int, sum [32]byte) bool { return sums[i] == sum })
}

// field is a field as it is on the wire.
func field(number protowire.Number, v any) []byte {
	switch v := v.(type) {
	case int:
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), uint64(v))
	case float64:
		return protowire.AppendFixed64(protowire.AppendTag(nil, number, protowire.Fixed64Type), math.Float64bits(v))
	case string:
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), v)
	default:
		panic("no such field")
	}
}

func wire(fields ...[]byte) []byte { return slices.Concat(fields...) }

// F2: what is the same is the same, however it is written.
func TestFingerprintSame(t *testing.T) {
	t.Parallel()
	desc := chargeType(t)
	packed := string(wire(field(1, 1.5)[1:], field(1, 2.0)[1:]))
	for name, tt := range map[string]struct{ a, b []byte }{
		"order of fields":      {wire(field(1, 5), field(2, "EUR")), wire(field(2, "EUR"), field(1, 5))},
		"order of a map":       {wire(field(5, "\n\x01a\x12\x01x"), field(5, "\n\x01b\x12\x01y")), wire(field(5, "\x12\x01y\n\x01b"), field(5, "\n\x01a\x12\x01x"))},
		"a map's key twice":    {wire(field(5, "\n\x01a\x12\x01x")), wire(field(5, "\n\x01a\x12\x01w"), field(5, "\n\x01a\x12\x01x"))},
		"packed":               {wire(field(8, packed)), wire(field(8, 1.5), field(8, 2.0))},
		"packed in pieces":     {wire(field(8, packed)), wire(field(8, 1.5), field(8, string(field(1, 2.0)[1:])))},
		"at its default":       {wire(field(1, 5)), wire(field(1, 5), field(2, ""), field(9, 0), field(10, 0), field(18, 0), field(19, 0.0))},
		"the last one counts":  {wire(field(1, 5)), wire(field(1, 7), field(1, 5))},
		"a message in pieces":  {wire(field(7, "\n\x01a\x18\x01")), wire(field(7, "\n\x01a"), field(7, "\x18\x01"))},
		"a long varint":        {wire(field(1, 5)), []byte{0x08, 0x85, 0x80, 0x00}},
		"a choice made anew":   {wire(field(6, "4242")), wire(field(7, "\n\x01a"), field(6, "4242"))},
		"order of unknown":     {wire(field(90, 1), field(91, "x")), wire(field(91, "x"), field(90, 1))},
		"unknown in a message": {wire(field(7, string(wire(field(90, 1), field(91, 2))))), wire(field(7, string(wire(field(91, 2), field(90, 1)))))},
		"NaN of another bits":  {wire(field(19, math.NaN())), wire(field(19, math.Float64frombits(0x7ff8000000000bad)))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := formOf(t, bytesAs(t, desc, tt.a), canon.Policy{}), formOf(t, bytesAs(t, desc, tt.b), canon.Policy{})
			if a.Sum() != b.Sum() {
				t.Errorf("%x and %x are not the same; they differ in %v", tt.a, tt.b, differing(a, b))
			}
		})
	}
}

// F2, F6: what is not the same differs, and is named by its path.
func TestFingerprintDiffers(t *testing.T) {
	t.Parallel()
	desc := describe(t, strings.ReplaceAll(bankFile, "debug_redact: true", "")).Messages().ByName("Charge")
	for name, tt := range map[string]struct {
		a, b string
		want string
	}{
		"a number":              {`amount: 5000`, `amount: 5001`, "amount"},
		"a great number":        {`client_ts: 9007199254740993`, `client_ts: 9007199254740992`, "client_ts"},
		"the greatest number":   {`client_ts: 18446744073709551615`, `client_ts: 18446744073709551614`, "client_ts"},
		"two fields":            {`amount: 1 currency: "EUR"`, `amount: 2 currency: "USD"`, "amount currency"},
		"absent, with presence": {`amount: 1`, `amount: 1 note: ""`, "note"},
		"absent message":        {`amount: 1`, `amount: 1 account {}`, "account"},
		"an item":               {`items { sku: "a" } items { sku: "b" }`, `items { sku: "a" } items { sku: "c" }`, "items.1.sku"},
		"order of a list":       {`ids: 1 ids: 2`, `ids: 2 ids: 1`, "ids.0 ids.1"},
		"length of a list":      {`ids: 1`, `ids: 1 ids: 2`, "ids.1"},
		"a map's value":         {`labels { key: "colour" value: "red" }`, `labels { key: "colour" value: "blue" }`, "labels.colour"},
		"a map's key":           {`labels { key: "colour" value: "red" }`, `labels { key: "hue" value: "red" }`, "labels.colour labels.hue"},
		"a map's numbered key":  {`counts { key: 7 value { sku: "a" } }`, `counts { key: 7 value { sku: "b" } }`, "counts.7.sku"},
		"a key that is a value": {`labels { key: "ann@example.com" value: "1" }`, `labels { key: "bob@example.com" value: "1" }`, "labels"},
		"a choice":              {`card: "x"`, `account { sku: "x" }`, "account card"},
		"an enum":               {`status: STATUS_OLD`, `status: 2`, "status"},
		"minus zero":            {`weight: -0.0`, `weight: 0`, "weight"},
		"infinity":              {`weight: inf`, `weight: -inf`, "weight"},
		"no number":             {`weight: nan`, `weight: inf`, "weight"},
		"the next float":        {`ratio: 0.1`, `ratio: 0.10000001`, "ratio"},
		"bytes":                 {`raw: "\x00"`, `raw: "\x00\x00"`, "raw"},
		"an Any's type":         {`payload { type_url: "a/x" value: "1" }`, `payload { type_url: "a/y" value: "1" }`, "payload.type_url"},
		"deep down":             {`parent { parent { amount: 1 } }`, `parent { parent { amount: 2 } }`, "parent.parent.amount"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := formOf(t, textAs(t, desc, tt.a), canon.Policy{}), formOf(t, textAs(t, desc, tt.b), canon.Policy{})
			if a.Sum() == b.Sum() {
				t.Fatal("they are taken for the same")
			}
			if diff := cmp.Diff(strings.Fields(tt.want), differing(a, b)); diff != "" {
				t.Errorf("what differs (-want +got):\n%s", diff)
			}
		})
	}
}

// F6: a field that is marked debug_redact is not named, its parent is, and so is the
// parent of a map or a recursion with such fields.
func TestFingerprintSecrets(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		a, b    string
		without []string
		want    string
	}{
		"at the top":      {`amount: 1 secret: "a"`, `amount: 1 secret: "b"`, nil, "message"},
		"in a message":    {`account { pin: "1" }`, `account { pin: "2" }`, []string{"secret", "counts"}, "account"},
		"in an item":      {`items { sku: "a" pin: "1" }`, `items { sku: "a" pin: "2" }`, []string{"secret", "counts"}, "items.0"},
		"beside it":       {`items { sku: "a" pin: "1" }`, `items { sku: "b" pin: "1" }`, []string{"secret", "counts"}, "items.0"},
		"elsewhere":       {`amount: 1 account { pin: "1" }`, `amount: 2 account { pin: "1" }`, []string{"secret", "counts"}, "amount"},
		"in a map":        {`counts { key: 1 value { pin: "1" } }`, `counts { key: 1 value { pin: "2" } }`, []string{"secret"}, "message"},
		"in a recursion":  {`parent { account { pin: "1" } }`, `parent { account { pin: "2" } }`, []string{"secret", "counts"}, "parent"},
		"in the next one": {`parent { parent { account { pin: "1" } } }`, `parent { parent { account { pin: "2" } } }`, []string{"secret", "counts"}, "parent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			desc := chargeType(t, tt.without...)
			a, b := formOf(t, textAs(t, desc, tt.a), canon.Policy{}), formOf(t, textAs(t, desc, tt.b), canon.Policy{})
			if got := strings.Join(differing(a, b), " "); a.Sum() == b.Sum() || got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// F2: no two keys of a map are the same, whatever is in them.
func TestFingerprintMapKeys(t *testing.T) {
	t.Parallel()
	desc := chargeType(t)
	seen := map[[32]byte]string{}
	for _, key := range []string{"", "a", "A", "$", "\xff", "\xfe", "$/w==", "$/g==", "$YQ==", "$JA==", "\x00", "�", "a/b", "a~b", `"`} {
		m := dynamicpb.NewMessage(desc)
		m.Mutable(desc.Fields().ByName("labels")).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString("x"))
		sum := formOf(t, m, canon.Policy{}).Sum()
		if other, ok := seen[sum]; ok {
			t.Errorf("%q and %q are the same", key, other)
		}
		seen[sum] = key
	}
}

// F2: unknown fields count by their bytes.
func TestFingerprintUnknown(t *testing.T) {
	t.Parallel()
	desc := chargeType(t, "secret", "counts")
	a, b := wire(field(1, 5), field(90, 1)), wire(field(1, 5), field(90, 2))
	same := formOf(t, bytesAs(t, desc, a), canon.Policy{})
	other := formOf(t, bytesAs(t, desc, b), canon.Policy{})
	if got := differing(same, other); !slices.Equal(got, []string{"message"}) && !slices.Equal(got, []string{"$unknown.90"}) {
		t.Errorf("got %v", got)
	}
	// A policy may let them be.
	ignore := canon.Policy{Ignore: []string{"$unknown", "parent.$unknown"}}
	if formOf(t, bytesAs(t, desc, a), ignore).Sum() != formOf(t, bytesAs(t, desc, b), ignore).Sum() {
		t.Error("they count although they are ignored")
	}
}

// F6: a record names fields and holds no values.
func TestFingerprintPartsHoldNoValues(t *testing.T) {
	t.Parallel()
	form := formOf(t, textAs(t, chargeType(t), whole+`labels { key: "ann@example.com" value: "1" } labels { key: "4242424242424242" value: "1" }`), canon.Policy{})
	size := 0
	for _, p := range form.Parts() {
		size += len(p.Name) + 8
		for _, value := range []string{"EUR", "ann", "4242", "red", "1234", "main", "example"} {
			if strings.Contains(p.Name, value) {
				t.Errorf("the part %q holds a value", p.Name)
			}
		}
	}
	if n := len(form.Parts()); n == 0 || n > 64 || size > 2048 {
		t.Errorf("%d parts of %d bytes", n, size)
	}
	if got := differing(form, form); len(got) > 0 {
		t.Errorf("it differs from itself in %v", got)
	}
}

// F4: a policy names fields by their paths, or by JSON Pointers.
func TestFingerprintPolicy(t *testing.T) {
	t.Parallel()
	desc := chargeType(t)
	for name, tt := range map[string]struct {
		policy canon.Policy
		a, b   string
		same   bool
	}{
		"ignored":              {canon.Policy{Ignore: []string{"client_ts"}}, `amount: 1 client_ts: 1`, `amount: 1 client_ts: 2`, true},
		"ignored by a pointer": {canon.Policy{Ignore: []string{"/client_ts"}}, `amount: 1 client_ts: 1`, `amount: 1`, true},
		"ignored in items":     {canon.Policy{Ignore: []string{"items.*.seen"}}, `items { sku: "a" seen: true }`, `items { sku: "a" }`, true},
		"beside":               {canon.Policy{Ignore: []string{"items.*.seen"}}, `items { sku: "a" seen: true }`, `items { sku: "b" }`, false},
		"chosen":               {canon.Policy{Fields: []string{"amount", "account.sku"}}, `amount: 1 currency: "EUR" account { sku: "a" seen: true }`, `amount: 1 account { sku: "a" }`, true},
		"chosen, other":        {canon.Policy{Fields: []string{"amount"}}, `amount: 1`, `amount: 2`, false},
		"a set":                {canon.Policy{Sets: []string{"ids"}}, `ids: 1 ids: 2`, `ids: 2 ids: 1`, true},
		"a set counts":         {canon.Policy{Sets: []string{"ids"}}, `ids: 1 ids: 2`, `ids: 2 ids: 1 ids: 1`, false},
		"decimal":              {canon.Policy{Decimal: []string{"note"}}, `note: "50.0"`, `note: "50.00"`, true},
		"decimal, not rounded": {canon.Policy{Decimal: []string{"note"}}, `note: "50.001"`, `note: "50.00"`, false},
		"upper case":           {canon.Policy{Upper: []string{"currency"}}, `currency: "eur"`, `currency: "EUR"`, true},
		"a default":            {defaults("note", `"none"`), `amount: 1`, `amount: 1 note: "none"`, true},
		"another than default": {defaults("note", `"none"`), `amount: 1`, `amount: 1 note: ""`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := formOf(t, textAs(t, desc, tt.a), tt.policy), formOf(t, textAs(t, desc, tt.b), tt.policy)
			if same := a.Sum() == b.Sum(); same != tt.same {
				t.Errorf("the same: %v, want %v", same, tt.same)
			}
		})
	}
}

// defaults is a policy with one default.
func defaults(path, value string) canon.Policy {
	p, err := canon.ParsePolicy([]byte(`{"defaults":{"/any":` + value + `}}`))
	if err != nil {
		panic(err)
	}
	p.Defaults[path] = p.Defaults["/any"]
	delete(p.Defaults, "/any")
	return p
}

// F4: a path that leads nowhere is refused, not silently without effect.
func TestFingerprintPolicyLeadsToFields(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"amuont":            `has no field "amuont"`,
		"items.seen":        "named by *",
		"items.0.seen":      "named by *",
		"amount.cents":      "nothing is in amount",
		"labels.colour":     "nothing is in labels",
		"labels.*":          "nothing is in labels",
		"account.iban":      `bank.Item has no field "iban"`,
		"$unknown.90":       `has no field "$unknown"`,
		"ids.*.x":           "nothing is in *",
		"amount.$unknown":   "nothing is in amount",
		"parent.items.*.no": `bank.Item has no field "no"`,
	} {
		for name, policy := range map[string]canon.Policy{
			"ignore": {Ignore: []string{path}}, "fields": {Fields: []string{path}}, "sets": {Sets: []string{path}},
			"defaults": defaults(path, "1"),
		} {
			_, _, err := oncegrpc.Canonical(charge, dynamicpb.NewMessage(chargeType(t)), nil, policy)
			if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: got %v, want %q", name, path, err, want)
			}
		}
	}
}

// F1, S4: the method counts, and metadata that a policy names.
func TestFingerprintAround(t *testing.T) {
	t.Parallel()
	form := func(method, version string) onlyonce.Form {
		md := metadata.Pairs("api-version", version, "authorization", version)
		c, text, err := oncegrpc.Canonical(method, structpb.NewStringValue("x"), md, canon.Policy{Headers: []string{"Api-Version"}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.Form(c.Version(), text)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := form("/a/B", "1")
	for want, f := range map[string]onlyonce.Form{"": form("/a/B", "1"), "method": form("/a/C", "1"), "header:Api-Version": form("/a/B", "2")} {
		if got := strings.Join(differing(first, f), " "); got != want || (f.Sum() == first.Sum()) != (want == "") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// F7: a record is compared under the schema and the policy that it was written with.
func TestFingerprintOutlivesItsSchema(t *testing.T) {
	t.Parallel()
	before, after := chargeType(t, "currency", "weight"), chargeType(t)
	raw, err := proto.Marshal(textAs(t, after, whole))
	if err != nil {
		t.Fatal(err)
	}
	policy := canon.Policy{Ignore: []string{"client_ts"}}
	old, oldText, err := oncegrpc.Canonical(charge, bytesAs(t, before, raw), nil, policy)
	if err != nil {
		t.Fatal(err)
	}
	now, nowText, err := oncegrpc.Canonical(charge, bytesAs(t, after, raw), nil, canon.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if string(oldText) == string(nowText) {
		t.Fatal("another schema and policy have the same text")
	}
	recorded, err := old.Form(old.Version(), oldText)
	if err != nil {
		t.Fatal(err)
	}
	same, err := now.Form(now.Version(), oldText)
	if err != nil {
		t.Fatal(err)
	}
	if recorded.Sum() != same.Sum() {
		t.Errorf("the same request differs after a deploy in %v", differing(recorded, same))
	}
	changed, _, err := oncegrpc.Canonical(charge, bytesAs(t, after, wire(raw, field(2, "USD"))), nil, canon.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if other, err := changed.Form(changed.Version(), oldText); err != nil || other.Sum() == recorded.Sum() {
		t.Errorf("another request is taken for the same: %v", err)
	}
}

// F7: the schema that is kept is that of any message, is read again, and is short.
func TestFingerprintKeepsSchemas(t *testing.T) {
	t.Parallel()
	for _, msg := range []proto.Message{
		structpb.NewNumberValue(1), &descriptorpb.FileDescriptorProto{Name: new("x"), Edition: descriptorpb.Edition_EDITION_2023.Enum()},
		&apipb.Api{Name: "a", Syntax: 1, SourceContext: &sourcecontextpb.SourceContext{FileName: "f"}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}, &healthpb.HealthListResponse{},
		textAs(t, chargeType(t), whole),
	} {
		c, text, err := oncegrpc.Canonical(charge, msg, nil, canon.Policy{})
		if err != nil {
			t.Fatal(err)
		}
		now, err := c.Form(c.Version(), text)
		if err != nil {
			t.Fatal(err)
		}
		then, err := c.Form(c.Version(), append(text, ' ')) // as if it was another
		if err != nil || then.Sum() != now.Sum() {
			t.Errorf("%T: under its own schema it is another request: %v", msg, err)
		}
	}
	_, text, err := oncegrpc.Canonical(charge, &errdetails.RetryInfo{}, nil, canon.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 600 {
		t.Errorf("the text has %d bytes: %s", len(text), text)
	}
}

// F7: what a process does not know it refuses to judge.
func TestFingerprintRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	c, text, err := oncegrpc.Canonical(charge, dynamicpb.NewMessage(chargeType(t)), nil, canon.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		version int
		text    string
	}{
		"version":     {c.Version() + 1, string(text)},
		"no policy":   {c.Version(), ""},
		"no JSON":     {c.Version(), "{"},
		"new policy":  {c.Version(), `{"message":"a.B","policy":{"later":1}}`},
		"bad policy":  {c.Version(), `{"message":"a.B","policy":{"ignore":[""]}}`},
		"bad schema":  {c.Version(), `{"message":"a.B","policy":{},"schema":"AAAA"}`},
		"odd schema":  {c.Version(), `{"message":"a.B","policy":{},"schema":"CgIKAA=="}`},
		"other type":  {c.Version(), strings.Replace(string(text), "bank.Charge", "bank.Refund", 1)},
		"no such one": {c.Version(), strings.Replace(string(text), "bank.Charge", "bank.Status", 1)},
	} {
		if form, err := c.Form(tt.version, []byte(tt.text)); err == nil {
			t.Errorf("%s: got %v", name, form)
		}
	}
}

// F2: extensions are compared as unknown fields, so that it does not matter whether a
// process knows them.
func TestFingerprintExtensions(t *testing.T) {
	t.Parallel()
	file := describe(t, `
name: "old.proto" package: "old"
message_type {
  name: "Order" extension_range { start: 100 end: 200 }
  field { name: "total" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL default_value: "7" }
  field { name: "text" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "group" number: 3 type: TYPE_GROUP type_name: ".old.Order.Group" label: LABEL_OPTIONAL }
  nested_type { name: "Group" field { name: "n" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }
}
extension { name: "extra" number: 100 type: TYPE_INT64 label: LABEL_OPTIONAL extendee: ".old.Order" }
`)
	desc := file.Messages().ByName("Order")
	known := dynamicpb.NewMessage(desc)
	known.Set(dynamicpb.NewExtensionType(file.Extensions().ByName("extra")).TypeDescriptor(), protoreflect.ValueOfInt64(5))
	known.Set(desc.Fields().ByName("total"), protoreflect.ValueOfInt64(7))
	unknown := bytesAs(t, desc, wire(field(1, 7), field(100, 5)))
	if a, b := formOf(t, known, canon.Policy{}), formOf(t, unknown, canon.Policy{}); a.Sum() != b.Sum() {
		t.Errorf("they differ in %v", differing(a, b))
	}
	form := formOf(t, unknown, canon.Policy{})
	for name, raw := range map[string][]byte{
		"another extension": wire(field(1, 7), field(100, 6)),
		"no extension":      wire(field(1, 7)),
		"an absent default": wire(field(100, 5)),
		"no UTF-8":          wire(field(1, 7), field(100, 5), field(2, "\xff")),
		"a group":           wire(field(1, 7), field(100, 5), []byte{0x1b, 0x08, 0x01, 0x1c}),
	} {
		if formOf(t, bytesAs(t, desc, raw), canon.Policy{}).Sum() == form.Sum() {
			t.Errorf("%s is taken for the same", name)
		}
	}
	bad := wire(field(1, 7), field(100, 5), field(2, "\xff"))
	if formOf(t, bytesAs(t, desc, bad), canon.Policy{}).Sum() == formOf(t, bytesAs(t, desc, wire(field(1, 7), field(100, 5), field(2, "\xfe"))), canon.Policy{}).Sum() {
		t.Error("texts that are not UTF-8 are taken for the same")
	}
}
