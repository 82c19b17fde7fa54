package kafkainbox

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// twiceOrMore stands for a count of deliveries that nobody keeps.
const twiceOrMore = 2

// partition is a partition while it is this member's. Its worker handles its records in
// their order.
type partition struct {
	s      *session
	client *kgo.Client
	at     place
	// ctx is the handlers'.
	ctx    context.Context
	cancel context.CancelFunc
	// taking is done when no record may be begun any more: the partition is given up, or Run
	// ends. done is closed when the worker has ended, and before, if not nil, when one has
	// that was left behind by an assignment before.
	taking context.Context
	stop   context.CancelFunc
	done   chan struct{}
	before <-chan struct{}
	// handled: a record of this assignment was. Only the worker knows.
	handled bool
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

func newPartition(s *session, client *kgo.Client, at place, before <-chan struct{}) *partition {
	ctx, cancel := context.WithCancel(s.ctx)
	taking, stop := context.WithCancel(s.run)
	return &partition{
		s: s, client: client, at: at, ctx: ctx, cancel: cancel,
		taking: taking, stop: stop, done: make(chan struct{}), before: before, added: make(chan struct{}, 1),
	}
}

// running is closed when nothing of the partition runs any more; nil: nothing does.
func (p *partition) running() <-chan struct{} {
	switch {
	case !closed(p.done):
		return p.done
	case p.before != nil && !closed(p.before):
		return p.before
	default:
		return nil
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
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
func (p *partition) work() {
	defer close(p.done)
	if p.before != nil {
		select {
		case <-p.before:
		case <-p.taking.Done():
			return
		}
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
		case <-p.taking.Done():
			return nil, false
		default:
		}
		if r, ok := p.take(); ok {
			return r, true
		}
		select {
		case <-p.taking.Done():
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
		msg.Deliveries = p.deliveries()
		verdict, err, begun := p.try(process, msg)
		if !begun {
			return false
		}
		e := Event{
			Kind: EventProcessed, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
			MessageID: msg.ID, Verdict: verdict, Try: try, Err: err,
		}
		if verdict.Ack() {
			p.handled = p.handled || verdict == inbox.Handled
			p.s.cfg.Observe(e)
			return true
		}
		e.Wait = p.s.cfg.backoff().Pause(try, err)
		p.s.cfg.Observe(e)
		if !consume.Sleep(p.taking, e.Wait) {
			return false
		}
	}
}

// try handles a delivery when there is a slot; not begun, if the partition is given up.
func (p *partition) try(process inbox.ProcessFunc, msg inbox.Message) (verdict inbox.Verdict, err error, begun bool) {
	select {
	case <-p.taking.Done():
		return inbox.Again, nil, false
	case p.s.slots <- struct{}{}:
	}
	defer func() { <-p.s.slots }()
	verdict, err = consume.Process(p.ctx, process, msg)
	return verdict, err, true
}

// deliveries is what can be said of how often a record was delivered. The one that ended
// the process of the member before is the first that was not handled: what came before it
// in the partition is a duplicate now. So records are under suspicion until one of this
// assignment is handled; and until a commit is sure, so that no assignment that ends with
// its process leaves neither a count nor a step forward.
func (p *partition) deliveries() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handled && p.sure != (kgo.EpochOffset{}) {
		return 0
	}
	return twiceOrMore
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
