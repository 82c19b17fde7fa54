package onceclient_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// Types of HTTP/2's frames, and of its errors.
const (
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	frameGoAway   = 7

	refusedStream = 7
	cancelStream  = 8
)

func frame(kind, flags byte, stream uint32, payload ...uint32) []byte {
	b := []byte{0, 0, byte(4 * len(payload)), kind, flags}
	b = binary.BigEndian.AppendUint32(b, stream)
	for _, p := range payload {
		b = binary.BigEndian.AppendUint32(b, p)
	}
	return b
}

// frames is a server of HTTP/2 in the clear, that answers the header of a request, or the
// end of its body, with frames as they are, and then hangs up or does not.
type frames struct {
	address string
	onEnd   bool // of the body
	answer  func(stream uint32) []byte
	hangUp  bool

	mu       sync.Mutex
	requests int
}

func (f *frames) start(t *testing.T) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = "http://" + l.Addr().String()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				if err := f.serve(conn); err != nil && !errors.Is(err, net.ErrClosed) {
					return
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
}

func (f *frames) serve(conn net.Conn) error {
	preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return err
	}
	if _, err := conn.Write(append(frame(frameSettings, 0, 0), frame(frameSettings, 1, 0)...)); err != nil {
		return err
	}
	for {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		length := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			return err
		}
		kind, ended := head[3], head[4]&1 != 0
		if kind == frameHeaders {
			f.mu.Lock()
			f.requests++
			f.mu.Unlock()
		}
		if kind == frameHeaders && !f.onEnd || (kind == frameHeaders || kind == frameData) && ended {
			if _, err := conn.Write(f.answer(binary.BigEndian.Uint32(head[5:]))); err != nil || f.hangUp {
				return err
			}
		}
	}
}

// G1, D3: whatever a server of HTTP/2 does to a request that has a header there, also what
// lets net/http send it again by the protocol's letter: one attempt is one request, and
// nothing is proved.
func TestFrames(t *testing.T) {
	t.Parallel()
	none := func(uint32) []byte { return nil }
	reset := func(code uint32) func(uint32) []byte {
		return func(stream uint32) []byte { return frame(frameReset, 0, stream, code) }
	}
	away := func(last, code uint32) func(uint32) []byte {
		return func(uint32) []byte { return frame(frameGoAway, 0, 0, last, code) }
	}
	for name, answer := range map[string]struct {
		with   func(uint32) []byte
		hangUp bool
	}{
		"refused stream":             {reset(refusedStream), false},
		"refused stream, hangs up":   {reset(refusedStream), true},
		"cancelled":                  {reset(cancelStream), false},
		"no error":                   {reset(0), false},
		"goes away, without it":      {away(0, 0), true},
		"goes away, with it":         {away(1<<31-1, 0), true},
		"goes away, enhance calm":    {away(0, 11), true},
		"goes away and refuses":      {func(s uint32) []byte { return bytes.Join([][]byte{away(0, 0)(s), reset(refusedStream)(s)}, nil) }, false},
		"hangs up":                   {none, true},
		"a frame out of place":       {func(uint32) []byte { return frame(frameData, 0, 0, 1) }, false},
		"settings that are too much": {func(uint32) []byte { return frame(frameSettings, 0, 0, 1) }, false},
	} {
		for _, onEnd := range []bool{false, true} {
			for _, body := range []string{"", "x", string(make([]byte, 1<<16))} {
				f := &frames{onEnd: onEnd && len(body) < 1<<16, answer: answer.with, hangUp: answer.hangUp}
				f.start(t)
				base := &http.Transport{Protocols: new(http.Protocols)}
				base.Protocols.SetUnencryptedHTTP2(true)
				cfg := quick(memjournal.New())
				cfg.Base, cfg.Attempts, cfg.AttemptTimeout = base, 1, 2*time.Second
				c := newClient(t, cfg)
				r := charge("order-1", f.address)
				r.Body = []byte(body)
				_, err := c.Do(t.Context(), r)
				wantKind(t, err, "unknown")
				f.mu.Lock()
				if f.requests != 1 {
					t.Errorf("%s, on its end %t, %d bytes: %d requests: %v", name, onEnd, len(body), f.requests, err)
				}
				f.mu.Unlock()
				c.CloseIdleConnections()
			}
		}
	}
}
