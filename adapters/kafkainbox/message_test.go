package kafkainbox_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
)

func headers(values ...string) []kgo.RecordHeader {
	var hs []kgo.RecordHeader
	for i := 0; i < len(values); i += 2 {
		hs = append(hs, kgo.RecordHeader{Key: values[i], Value: []byte(values[i+1])})
	}
	return hs
}

// An id that is not clear is none: the wrong identity would drop a message.
func TestHeader(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		headers []kgo.RecordHeader
		id      string
		inTopic string
	}{
		"none":            {nil, "", ""},
		"another":         {headers("id", "1"), "", ""},
		"case counts":     {headers("Message-ID", "1"), "", ""},
		"empty":           {headers("message-id", ""), "", ""},
		"one":             {headers("a", "b", "message-id", "1"), "1", "charges/1"},
		"twice the same":  {headers("message-id", "1", "message-id", "1"), "1", "charges/1"},
		"two":             {headers("message-id", "1", "message-id", "2"), "", ""},
		"one and nothing": {headers("message-id", "1", "message-id", ""), "", ""},
		"bytes":           {headers("message-id", "\x00\xff"), "\x00\xff", "charges/\x00\xff"},
	} {
		r := &kgo.Record{Topic: "charges", Headers: tt.headers}
		if got := kafkainbox.Header("message-id")(r); got != tt.id {
			t.Errorf("%s: %q, want %q", name, got, tt.id)
		}
		if got := kafkainbox.TopicHeader("message-id")(r); got != tt.inTopic {
			t.Errorf("%s: in its topic %q, want %q", name, got, tt.inTopic)
		}
	}
}

// Positions are told apart whatever the topic's name.
func TestPosition(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range []*kgo.Record{
		{Topic: "t", Partition: 1, Offset: 11},
		{Topic: "t", Partition: 11, Offset: 1},
		{Topic: "t.1", Partition: 1, Offset: 1},
		{Topic: "t", Partition: 1, Offset: 1},
	} {
		seen[kafkainbox.Position(r)] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d positions, want 4: %v", len(seen), seen)
	}
}
