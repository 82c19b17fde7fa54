package redisstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
)

// What join puts together, split takes apart; anything else is an error.
func TestJoinSplit(t *testing.T) {
	t.Parallel()
	same := func(a, b, c string) bool {
		got, err := split(string(join(a, b, c)), 3)
		return err == nil && slices.Equal(got, []string{a, b, c})
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
	whole := join("one", "two")
	for i := range whole {
		if _, err := split(string(whole[:i]), 2); err == nil {
			t.Errorf("%d of %d bytes were accepted", i, len(whole))
		}
	}
	for _, damaged := range []string{string(whole) + "x", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		if parts, err := split(damaged, 2); err == nil {
			t.Errorf("%q was taken for %q", damaged, parts)
		}
	}
}

// No reply, however odd, is a claim or makes us panic.
func TestOddReplies(t *testing.T) {
	t.Parallel()
	odd := []any{
		nil, "won", int64(1),
		[]any{},
		[]any{"won"},
		[]any{"won", "1"},
		[]any{"won", "x", []any{}},
		[]any{"won", "1", []any{nil}},
		[]any{int64(1), "1", []any{"s"}},
		[]any{"won", "1", "s"},
	}
	for _, v := range odd {
		if c, err := decodeClaim(v); err == nil {
			t.Errorf("%v was taken for %+v", v, c)
		}
		if st, err := decodeStep(v, time.Time{}); err == nil {
			t.Errorf("%v was taken for %+v", v, st)
		}
	}
	if _, err := decodeStep([]any{"1:0:s", "1 0 begun", "", nil}, time.Time{}); err == nil {
		t.Error("a step without its numbers was accepted")
	}
	if _, err := decodeEntry("1 2 damaged"); err == nil {
		t.Error("a damaged entry was accepted")
	}
}

type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// C10, C11: what an error means depends on how often the command was sent.
func TestClassify(t *testing.T) {
	t.Parallel()
	write, read := call{op: "claim key"}, call{op: "read key", reads: true}
	dial := errors.New("dial tcp: refused")
	tests := []struct {
		name string
		call call
		err  error
		sent int
		code onlyonce.Code
	}{
		{"no connection", write, dial, 0, onlyonce.CodeUnreachable},
		{"no connection for a read", read, dial, 0, onlyonce.CodeUnreachable},
		{"no connection the second time", write, dial, 1, onlyonce.CodeUncertain},
		{"no connection after a read", read, dial, 1, onlyonce.CodeStoreUnavailable},
		{"a busy pool", write, redis.ErrPoolTimeout, 0, onlyonce.CodeStoreUnavailable},
		{"a closed client", write, redis.ErrClosed, 0, onlyonce.CodeStoreUnavailable},
		{"a lost reply", write, io.EOF, 1, onlyonce.CodeUncertain},
		{"a lost reply of a read", read, io.EOF, 2, onlyonce.CodeStoreUnavailable},
		{"a full server", write, serverError("OOM command not allowed"), 1, onlyonce.CodeStoreUnavailable},
		{"a full server the second time", write, serverError("OOM command not allowed"), 2, onlyonce.CodeUncertain},
		{"loading", write, serverError("LOADING Redis is loading"), 1, onlyonce.CodeStoreUnavailable},
		{"a script of somebody else", write, serverError("BUSY Redis is busy"), 1, onlyonce.CodeConflict},
		{"a slot on the move", write, serverError("TRYAGAIN Multiple keys"), 1, onlyonce.CodeConflict},
		{"a greeting that is refused", write, serverError("NOAUTH Authentication required."), 0, onlyonce.CodeStoreUnavailable},
		{"a disk that is full", write, serverError("MISCONF Redis is configured"), 1, onlyonce.CodeStoreUnavailable},
	}
	for _, tt := range tests {
		err := classify(t.Context(), tt.call, tt.err, fateOf(tt.err, tt.sent))
		if onlyonce.CodeOf(err) != tt.code || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.code)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := classify(over, write, dial, unsent); onlyonce.CodeOf(err) != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that would not wait: %v", err)
	}
	if err := classify(over, write, dial, open); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("a caller that would not wait for a reply: %v", err)
	}
}

// Every send is counted, and only that.
func TestMark(t *testing.T) {
	t.Parallel()
	m := &mark{text: []byte("1")}
	for range 2 {
		if b, err := m.MarshalBinary(); err != nil || !bytes.Equal(b, []byte("1")) {
			t.Errorf("%q, %v", b, err)
		}
	}
	if m.sent.Load() != 2 {
		t.Errorf("%d sends", m.sent.Load())
	}
}
