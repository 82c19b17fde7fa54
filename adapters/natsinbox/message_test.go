package natsinbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/adapters/natsinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// What comes beside the payload is kept with the message, whose id is Nats-Msg-Id.
func TestMessage(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	m := nats.NewMsg("payments.charged")
	m.Data = []byte("\x00payload")
	m.Header = nats.Header{"Kind": {"a", "b"}, "nats.subject": {"forged"}}
	if _, err := s.js.PublishMsg(t.Context(), m, jetstream.WithMsgID("m-1")); err != nil {
		t.Fatal(err)
	}
	got := make(chan inbox.Message, 1)
	cfg := s.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		got <- msg
		return inbox.Handled, nil
	})
	cfg.ID = nil
	c := run(t, cfg)
	c.events.Wait(t, 1, acked)
	c.stop()
	msg := <-got
	if _, err := time.Parse(time.RFC3339Nano, msg.Attributes[natsinbox.AttributeTime]); err != nil {
		t.Errorf("time: %v", err)
	}
	delete(msg.Attributes, natsinbox.AttributeTime)
	want := inbox.Message{
		ID: "m-1", Payload: []byte("\x00payload"), Deliveries: 1,
		Attributes: map[string]string{
			"Kind": "a, b", "Nats-Msg-Id": "m-1",
			natsinbox.AttributeSubject: "payments.charged", natsinbox.AttributeStream: "PAYMENTS", natsinbox.AttributeSequence: "1",
		},
	}
	if diff := cmp.Diff(want, msg); diff != "" {
		t.Error(diff)
	}
}

// fake is a message with headers and a reply subject alone.
type fake struct {
	jetstream.Msg
	headers nats.Header
	meta    jetstream.MsgMetadata
	err     error
}

func (f fake) Headers() nats.Header                      { return f.headers }
func (f fake) Metadata() (*jetstream.MsgMetadata, error) { return &f.meta, f.err }

func TestHeader(t *testing.T) {
	t.Parallel()
	id := natsinbox.Header("Id")
	for _, c := range []struct {
		headers nats.Header
		want    string
	}{
		{nats.Header{"Id": {"m"}}, "m"},
		{nats.Header{"Id": {"m", "m"}}, "m"},
		{nats.Header{"Id": {"m", "other"}}, ""},
		{nats.Header{"Id": {}}, ""},
		{nats.Header{"ID": {"m"}}, ""},
		{nil, ""},
	} {
		if got := id(fake{headers: c.headers}); got != c.want {
			t.Errorf("%v: %q, want %q", c.headers, got, c.want)
		}
	}
}

// The positions of a stream that is made anew are others, although its sequence begins
// again.
func TestPosition(t *testing.T) {
	t.Parallel()
	at := func(stream string, seq uint64, nanos int64) string {
		f := fake{meta: jetstream.MsgMetadata{Stream: stream, Sequence: jetstream.SequencePair{Stream: seq}, Timestamp: time.Unix(0, nanos)}}
		return natsinbox.Position(f)
	}
	if got := at("S", 7, 1_000_000_007); got != "position/S/7/1000000007" {
		t.Errorf("position: %q", got)
	}
	seen := map[string]bool{}
	for _, id := range []string{at("S", 1, 5), at("S", 1, 6), at("S", 2, 5), at("T", 1, 5)} {
		if seen[id] || !strings.HasPrefix(id, "position/") {
			t.Errorf("position %q", id)
		}
		seen[id] = true
	}
	if got := natsinbox.Position(fake{err: jetstream.ErrNotJSMessage}); got != "" {
		t.Errorf("of no message of JetStream: %q", got)
	}
}
