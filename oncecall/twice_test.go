package oncecall_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncecall"
)

// shape is a way to ask.
type shape struct {
	method string
	body   func() io.Reader
}

func none() io.Reader { return nil }

func shapes() map[string]shape {
	return map[string]shape{
		"POST":                {"POST", pay},
		"PATCH":               {"PATCH", pay},
		"POST_without_body":   {"POST", none},
		"POST_with_NoBody":    {"POST", func() io.Reader { return http.NoBody }},
		"PUT_without_body":    {"PUT", none},
		"DELETE_without_body": {"DELETE", none},
		"POST_of_any_length":  {"POST", func() io.Reader { return io.MultiReader(pay()) }},
		"POST_of_much":        {"POST", func() io.Reader { return bytes.NewReader(make([]byte, 1<<20)) }},
	}
}

// G1, D3: a kept connection dies after a request was read from it. net/http sends
// such a request again, since it bears a key and its body can be had again; that it
// does is the control.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	for name, sh := range shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWire(t, func(n int) reaction { return []reaction{answer, hangUp, answer}[n] })
			c, _ := client(t)
			s := newShop(t)
			post := func(ctx context.Context, _ onlyonce.Sending) error { return ask(ctx, c, sh.method, w.url, sh.body()) }
			if err := s.send(t, "k1", post); err != nil {
				t.Fatal(err)
			}
			err := s.send(t, "k2", post)
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
			w.want(t, 2)
		})
	}
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		w := startWire(t, func(n int) reaction { return []reaction{answer, hangUp, answer}[n] })
		base := &http.Transport{}
		t.Cleanup(base.CloseIdleConnections)
		for range 2 {
			header := http.Header{"Idempotency-Key": {"k"}}
			if err := askWith(t.Context(), &http.Client{Transport: base}, message{method: "POST", url: w.url, header: header}); err != nil {
				t.Error(err)
			}
		}
		w.want(t, 3) // for two
	})
}

// The same outside of an operation, where the caller chose the key.
func TestNothingIsSentTwiceOutside(t *testing.T) {
	t.Parallel()
	for name, sh := range shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWire(t, func(n int) reaction { return []reaction{answer, hangUp, answer}[n] })
			c, _ := client(t)
			m := message{method: sh.method, url: w.url, header: http.Header{"X-Idempotency-Key": {"k"}}}
			m.body = sh.body()
			if err := askWith(t.Context(), c, m); err != nil {
				t.Fatal(err)
			}
			m.body = sh.body()
			if err := askWith(t.Context(), c, m); err == nil || oncecall.NotSent(err) {
				t.Errorf("second request: %v", err)
			}
			w.want(t, 2)
		})
	}
}

// What is read only may be sent again, and is.
func TestReadsAreRepeated(t *testing.T) {
	t.Parallel()
	w := startWire(t, func(n int) reaction { return []reaction{answer, hangUp, answer}[n] })
	c, _ := client(t)
	for range 2 {
		if err := ask(t.Context(), c, "GET", w.url, nil); err != nil {
			t.Error(err)
		}
	}
	w.want(t, 3)
}

// A round tripper beneath that repeats by itself is stopped, with a body and
// without.
func TestRepeatingBaseIsStopped(t *testing.T) {
	t.Parallel()
	for name, sh := range shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWire(t, func(int) reaction { return hangUp })
			inner := &http.Transport{}
			t.Cleanup(inner.CloseIdleConnections)
			var tries atomic.Int32
			repeating := roundTripperFunc(func(r *http.Request) (res *http.Response, err error) {
				for range 3 {
					tries.Add(1)
					if res, err = inner.RoundTrip(r); err == nil {
						return res, nil
					}
				}
				return nil, err
			})
			s, c := newShop(t), oncecall.NewClient(&oncecall.Transport{Base: repeating})
			err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error { return ask(ctx, c, sh.method, w.url, sh.body()) })
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
			wantCode(t, err, oncecall.CodeSentBefore)
			if tries.Load() != 3 {
				t.Errorf("it was tried %d times", tries.Load())
			}
			if begun := strings.Count(w.drained(c), " HTTP/1.1\r\n"); begun != 1 {
				t.Errorf("%d requests were begun, want 1", begun)
			}
		})
	}
}

// A redirect is an answer: 307 and 308 would be a second sending.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	w, s := startWire(t, func(int) reaction { return redirect }), newShop(t)
	c, tr := client(t)
	post := func(ctx context.Context, _ onlyonce.Sending) error { return ask(ctx, c, "POST", w.url, pay()) }
	wantCode(t, s.send(t, "k1", post), onlyonce.CodeOutcomeUnknown)
	w.want(t, 1)
	// A client that follows them is stopped: the place is another.
	c = &http.Client{Transport: tr}
	wantCode(t, s.send(t, "k2", post), oncecall.CodeOtherKey)
	w.want(t, 2)
}

// HTTP/2: a stream that the server refuses is opened again by net/http where the
// request has no body; that it does is the control.
func TestHTTP2IsNotSentTwice(t *testing.T) {
	t.Parallel()
	for name, sh := range shapes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, streams := refusingStreams(t)
			s := newShop(t)
			err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
				return ask(ctx, oncecall.NewClient(&oncecall.Transport{Base: base}), sh.method, "http://acme.invalid", sh.body())
			})
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
			if got := streams.Load(); got != 1 {
				t.Errorf("%d streams were opened, want 1", got)
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		base, streams := refusingStreams(t)
		if err := ask(t.Context(), &http.Client{Transport: base}, "POST", "http://acme.invalid", nil); err == nil {
			t.Error("it succeeded")
		}
		if got := streams.Load(); got != 2 {
			t.Errorf("%d streams were opened, want 2", got)
		}
	})
}

// refusingStreams is an HTTP/2 transport to a server that refuses the first stream
// and cancels the others, and how many were opened.
func refusingStreams(t *testing.T) (*http.Transport, *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var opened atomic.Int32
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer conn.Close()
				if err := refuseStreams(conn, &opened); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					t.Logf("connection ended with %v", err)
				}
			})
		}
	})
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	base := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
	}}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		ln.Close()
		served.Wait()
	})
	return base, &opened
}

// Types, flags and codes of RFC 9113.
const (
	frameHeaders, frameReset, frameSettings = 1, 3, 4
	codeRefused, codeCancel                 = 7, 8
)

// refuseStreams speaks just enough HTTP/2.
func refuseStreams(conn net.Conn, opened *atomic.Int32) error {
	if _, err := io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return fmt.Errorf("read preface: %w", err)
	}
	frame := func(kind, flags byte, stream uint32, payload ...byte) error {
		head := []byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, 0}
		binary.BigEndian.PutUint32(head[5:], stream)
		_, err := conn.Write(append(head, payload...))
		return err
	}
	if err := frame(frameSettings, 0, 0); err != nil {
		return err
	}
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(conn, head); err != nil {
			return err
		}
		length := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			return err
		}
		var err error
		switch kind, flags := head[3], head[4]; {
		case kind == frameSettings && flags == 0:
			err = frame(frameSettings, 1, 0)
		case kind == frameHeaders:
			code := byte(codeCancel)
			if opened.Add(1) == 1 {
				code = codeRefused
			}
			err = frame(frameReset, 0, binary.BigEndian.Uint32(head[5:]), 0, 0, 0, code)
		}
		if err != nil {
			return err
		}
	}
}

// A body is had once, also by a Base that tells nothing of its connections.
func TestBodyIsHadOnce(t *testing.T) {
	t.Parallel()
	var got []string
	repeating := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		for {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			got = append(got, string(text))
			r.Body.Close()
			r.Body.Close()
		}
	})
	for name, body := range map[string]func() io.Reader{"with": pay, "without": none} {
		got = nil
		s := newShop(t)
		err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
			return ask(ctx, oncecall.NewClient(&oncecall.Transport{Base: repeating}), "POST", "http://acme.invalid", body())
		})
		wantCode(t, err, oncecall.CodeSentBefore)
		if len(got) != 1 {
			t.Errorf("%s a body: it was had as %q", name, got)
		}
	}
}
