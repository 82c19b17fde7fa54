package kafkainbox_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// mute swallows what is written, once it is silent: as a broker that hangs does.
type mute struct{ silent atomic.Bool }

func (m *mute) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &muted{conn, m}, err
}

type muted struct {
	net.Conn
	m *mute
}

func (c *muted) Write(b []byte) (int, error) {
	if c.m.silent.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Run ends also when the broker does not answer any more, and the context of a record that
// is in hand meanwhile ends with Drain. What was handled comes again.
func TestEndWithSilentBroker(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "m", ""))
	var m mute
	begun := make(chan struct{}, 9)
	cfg := k.config(func(ctx context.Context, _ inbox.Message) (inbox.Verdict, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return inbox.Handled, nil
	})
	cfg.Options = append(cfg.Options, kgo.Dialer(m.dial))
	r := run(t, cfg)
	<-begun
	m.silent.Store(true)
	r.stop()
	if at := k.committed(t, 0); at > 0 {
		t.Errorf("committed %d", at)
	}
}
