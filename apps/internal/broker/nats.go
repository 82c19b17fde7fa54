package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// natsPublisher publishes to a stream. JetStream passes over an id that it has had in
// its window; consumers tell duplicates by themselves in any case.
type natsPublisher struct {
	address Address

	mu   sync.Mutex
	conn *nats.Conn // nil: there was none yet
	js   jetstream.JetStream
}

// Publish publishes.
func (p *natsPublisher) Publish(ctx context.Context, msgs []inbox.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.connect(ctx); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	if err := p.publish(ctx, msgs); err != nil {
		return errors.Join(fmt.Errorf("publish to NATS: %w", err), p.disconnect())
	}
	return nil
}

// publish sends messages and waits for all confirms.
func (p *natsPublisher) publish(ctx context.Context, msgs []inbox.Message) error {
	futures := make([]jetstream.PubAckFuture, len(msgs))
	for i, msg := range msgs {
		m := nats.NewMsg(p.address.name + "." + kindOf(msg))
		m.Data = msg.Payload
		for name, value := range msg.Attributes {
			m.Header.Set(name, value)
		}
		m.Header.Set("Content-Type", contentType)
		var err error
		if futures[i], err = p.js.PublishMsgAsync(m, jetstream.WithMsgID(msg.ID)); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return fmt.Errorf("wait for confirm: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("wait for confirm: %w", context.Cause(ctx))
		}
	}
	return nil
}

// connect connects and makes the stream, where that is not done. After a failure a new
// connection is made, so that nothing is left in the client's buffers.
func (p *natsPublisher) connect(ctx context.Context) (err error) {
	if p.conn != nil {
		return nil
	}
	conn, err := dialNATS(ctx, p.address.url)
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err == nil {
		err = ensureStream(ctx, js, p.address)
	}
	if err != nil {
		conn.Close()
		return err
	}
	p.conn, p.js = conn, js
	return nil
}

func (p *natsPublisher) disconnect() error {
	if p.conn == nil {
		return nil
	}
	p.js.CleanupPublisher()
	p.conn.Close()
	p.conn, p.js = nil, nil
	return nil
}

// Close ends the connection.
func (p *natsPublisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.disconnect()
}

// dialNATS connects. How long it may take is bounded, and by ctx where that ends first.
func dialNATS(ctx context.Context, url string, options ...nats.Option) (*nats.Conn, error) {
	timeout := 5 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(min(timeout, time.Until(deadline)), time.Millisecond)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nats.Connect(url, append([]nats.Option{nats.Name("onlyonce"), nats.Timeout(timeout), nats.MaxReconnects(-1)}, options...)...)
}

// streamName is a name that JetStream allows.
func streamName(a Address) string { return strings.ReplaceAll(a.name, ".", "-") }

// ensureStream makes the stream where there is none. One that is there, with limits of
// its operator's, stays as it is.
func ensureStream(ctx context.Context, js jetstream.JetStream, a Address) error {
	_, err := js.Stream(ctx, streamName(a))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: streamName(a), Subjects: []string{a.name + ".>"}, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, MaxAge: keep,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			err = nil // somebody else was faster
		}
	}
	if err != nil {
		return fmt.Errorf("make stream %s: %w", streamName(a), err)
	}
	return nil
}
