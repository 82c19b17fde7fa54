package kafkainbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// partition is a partition while it is this member's. Its worker handles its records in
// their order.
type partition struct {
	s      *session
	client *kgo.Client
	at     place
	// ctx is the handlers'.
	ctx    context.Context
	cancel context.CancelFunc
	// stopping is closed when no record may be begun any more: the partition is given up,
	// or Run ends. done is closed when the worker has ended.
	stopping <-chan struct{}
	stop     context.CancelFunc
	done     chan struct{}
	// added tells the worker that there are records.
	added chan struct{}

	mu     sync.Mutex
	queue  []*kgo.Record
	paused bool
	// acked is behind the last record that was acknowledged, sure what Kafka has of it.
	acked, sure kgo.EpochOffset
	// disowned: nothing is to be committed any more.
	disowned bool
}

func newPartition(s *session, client *kgo.Client, at place) *partition {
	ctx, cancel := context.WithCancel(s.ctx)
	taking, stop := context.WithCancel(s.run)
	return &partition{
		s: s, client: client, at: at, ctx: ctx, cancel: cancel,
		stopping: taking.Done(), stop: stop, done: make(chan struct{}), added: make(chan struct{}, 1),
	}
}

func (p *partition) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// add queues records, and fetches no more of them while too many wait.
func (p *partition) add(records []*kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, records...)
	if len(p.queue) > p.s.cfg.Queue && !p.paused {
		p.paused = true
		p.client.PauseFetchPartitions(p.itself())
	}
	select {
	case p.added <- struct{}{}:
	default:
	}
}

// resume fetches again. A pause would outlive the assignment.
func (p *partition) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused {
		p.paused = false
		p.client.ResumeFetchPartitions(p.itself())
	}
}

func (p *partition) itself() map[string][]int32 {
	return map[string][]int32{p.at.topic: {p.at.number}}
}

// work handles records until the partition is given up. It begins when the worker before
// has ended.
func (p *partition) work(before <-chan struct{}) {
	defer close(p.done)
	if before != nil {
		<-before
	}
	for {
		r, ok := p.next()
		if !ok || !p.handle(r) {
			return
		}
		p.ack(r)
	}
}

// next waits for the next record.
func (p *partition) next() (*kgo.Record, bool) {
	for {
		select {
		case <-p.stopping:
			return nil, false
		default:
		}
		if r, ok := p.take(); ok {
			return r, true
		}
		select {
		case <-p.stopping:
			return nil, false
		case <-p.added:
		}
	}
}

func (p *partition) take() (*kgo.Record, bool) {
	p.mu.Lock()
	if len(p.queue) == 0 {
		p.mu.Unlock()
		return nil, false
	}
	r := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	low := len(p.queue) <= p.s.cfg.Queue/2
	p.mu.Unlock()
	if low {
		p.resume()
	}
	return r, true
}

// handle tries a record until it has a verdict that acknowledges it; false if the
// partition is given up before.
func (p *partition) handle(r *kgo.Record) bool {
	if r.Attrs.IsControl() {
		return true // a mark of Kafka's own; no producer sent it
	}
	process, msg := p.s.cfg.message(r)
	for try := 1; ; try++ {
		verdict, err, begun := p.try(process, msg)
		if !begun {
			return false
		}
		e := Event{
			Kind: EventProcessed, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
			MessageID: msg.ID, Verdict: verdict, Try: try, Err: err,
		}
		if verdict.Ack() {
			p.s.cfg.Observe(e)
			return true
		}
		e.Wait = p.s.cfg.pause(try, err)
		p.s.cfg.Observe(e)
		if !p.wait(e.Wait) {
			return false
		}
	}
}

// try handles a delivery when there is a slot; not begun, if the partition is given up.
func (p *partition) try(process inbox.ProcessFunc, msg inbox.Message) (verdict inbox.Verdict, err error, begun bool) {
	select {
	case <-p.stopping:
		return inbox.Again, nil, false
	case p.s.slots <- struct{}{}:
	}
	defer func() { <-p.s.slots }()
	defer func() {
		if v := recover(); v != nil {
			verdict, err, begun = inbox.Again, fmt.Errorf("process message: panic: %v", v), true
		}
	}()
	verdict, err = process(p.ctx, msg)
	return verdict, err, true
}

// wait waits before the next try; false if the partition is given up.
func (p *partition) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.stopping:
		return false
	case <-timer.C:
		return true
	}
}

// ack notes that everything up to a record is acknowledged.
func (p *partition) ack(r *kgo.Record) {
	p.mu.Lock()
	p.acked = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	p.mu.Unlock()
	p.s.wake()
}

func (p *partition) disown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disowned = true
}

// uncommitted is what Kafka is to be told; false: nothing.
func (p *partition) uncommitted() (kgo.EpochOffset, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked, p.acked != p.sure && !p.disowned
}

func (p *partition) committed(at kgo.EpochOffset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sure = at
}
