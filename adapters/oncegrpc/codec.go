package oncegrpc

import (
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// frame is a message as bytes. No other codec can write it, so that whoever drops ours
// on the way to the transport sends nothing.
type frame struct {
	body []byte
	// taken: the transport has asked for the bytes. Until then nothing of the message
	// can have left.
	taken atomic.Bool
}

var errSentBefore = errors.New("an interceptor was about to send the attempt once more; leave retrying to the client")

// rawCodec passes bytes through. To the server it is protobuf, for that is what they are.
type rawCodec struct{}

// Marshal gives the bytes of a frame, once: whoever asks again would send them again.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("%T is not a message of an attempt: an interceptor has put another one in its place", v)
	}
	if f.taken.Swap(true) {
		return nil, errSentBefore
	}
	return mem.BufferSlice{mem.SliceBuffer(f.body)}, nil
}

// Unmarshal keeps a copy of the bytes.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("%T does not take the answer of an attempt: an interceptor has put another one in its place", v)
	}
	f.body = data.Materialize()
	return nil
}

// Name is the one that servers know protobuf by.
func (rawCodec) Name() string { return "proto" }
