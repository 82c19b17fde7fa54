package oncegrpc_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/anypb" // imported by the schema
)

// bankFile is a schema with a field of every sort.
const bankFile = `
name: "bank.proto" package: "bank" syntax: "proto3" dependency: "google/protobuf/any.proto"
message_type {
  name: "Charge"
  field { name: "amount" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "currency" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "note" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true oneof_index: 1 }
  field { name: "items" number: 4 type: TYPE_MESSAGE type_name: ".bank.Item" label: LABEL_REPEATED }
  field { name: "labels" number: 5 type: TYPE_MESSAGE type_name: ".bank.Charge.LabelsEntry" label: LABEL_REPEATED }
  field { name: "card" number: 6 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "account" number: 7 type: TYPE_MESSAGE type_name: ".bank.Item" label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "rates" number: 8 type: TYPE_DOUBLE label: LABEL_REPEATED }
  field { name: "status" number: 9 type: TYPE_ENUM type_name: ".bank.Status" label: LABEL_OPTIONAL }
  field { name: "client_ts" number: 10 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "payload" number: 11 type: TYPE_MESSAGE type_name: ".google.protobuf.Any" label: LABEL_OPTIONAL }
  field { name: "parent" number: 12 type: TYPE_MESSAGE type_name: ".bank.Charge" label: LABEL_OPTIONAL }
  field { name: "secret" number: 13 type: TYPE_STRING label: LABEL_OPTIONAL options { debug_redact: true } }
  field { name: "raw" number: 14 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "ratio" number: 15 type: TYPE_FLOAT label: LABEL_OPTIONAL }
  field { name: "ids" number: 16 type: TYPE_SINT32 label: LABEL_REPEATED }
  field { name: "counts" number: 17 type: TYPE_MESSAGE type_name: ".bank.Charge.CountsEntry" label: LABEL_REPEATED }
  field { name: "final" number: 18 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "weight" number: 19 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  nested_type {
    name: "LabelsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "CountsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".bank.Item" label: LABEL_OPTIONAL }
  }
  oneof_decl { name: "source" }
  oneof_decl { name: "_note" }
}
message_type {
  name: "Item"
  field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "price" number: 2 type: TYPE_FIXED64 label: LABEL_OPTIONAL }
  field { name: "seen" number: 3 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "pin" number: 4 type: TYPE_STRING label: LABEL_OPTIONAL options { debug_redact: true } }
}
enum_type {
  name: "Status"
  value { name: "STATUS_NEW" number: 0 }
  value { name: "STATUS_OLD" number: 1 }
}
`

// describe reads a schema, without the fields of Charge that it does not know yet.
func describe(tb testing.TB, file string, without ...string) protoreflect.FileDescriptor {
	tb.Helper()
	p := new(descriptorpb.FileDescriptorProto)
	if err := prototext.Unmarshal([]byte(file), p); err != nil {
		tb.Fatal(err)
	}
	p.MessageType[0].Field = slices.DeleteFunc(p.MessageType[0].Field, func(f *descriptorpb.FieldDescriptorProto) bool {
		return slices.Contains(without, f.GetName())
	})
	fd, err := protodesc.NewFile(p, protoregistry.GlobalFiles)
	if err != nil {
		tb.Fatal(err)
	}
	return fd
}

// chargeType is the type of messages of the schema.
func chargeType(tb testing.TB, without ...string) protoreflect.MessageDescriptor {
	tb.Helper()
	return describe(tb, bankFile, without...).Messages().ByName("Charge")
}

// textAs is a message of a type, given its text.
func textAs(tb testing.TB, desc protoreflect.MessageDescriptor, text string) *dynamicpb.Message {
	tb.Helper()
	m := dynamicpb.NewMessage(desc)
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		tb.Fatal(err)
	}
	return m
}

// bytesAs is a message of a type, given its bytes.
func bytesAs(tb testing.TB, desc protoreflect.MessageDescriptor, raw []byte) *dynamicpb.Message {
	tb.Helper()
	m := dynamicpb.NewMessage(desc)
	if err := (proto.UnmarshalOptions{Resolver: new(protoregistry.Types)}).Unmarshal(raw, m); err != nil {
		tb.Fatal(err)
	}
	return m
}

// whole is a message with everything in it.
const whole = `
amount: 5000 currency: "EUR" note: "n" items { sku: "a" price: 1 } items { sku: "b" seen: true }
labels { key: "colour" value: "red" } labels { key: "size" value: "xl" } account { sku: "main" pin: "1234" }
rates: 1.5 rates: 2 status: STATUS_OLD client_ts: 17 parent { amount: 1 secret: "p" } secret: "s" raw: "\x00\xff"
ratio: 0.1 ids: 1 ids: -2 counts { key: 7 value { sku: "c" } } final: true weight: 2.5
payload { type_url: "type.example/x" value: "\x08\x01" }
`
