package kafkainbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
)

const (
	// abandonAfter is how long a handler may take to obey its cancelled context.
	abandonAfter = time.Second
	// commitTimeout bounds one commit of offsets.
	commitTimeout = 5 * time.Second
	// leaveTimeout bounds the last commit and leaving the group. A broker that is silent would
	// hold up the end of Run for minutes.
	leaveTimeout = 2 * commitTimeout
	// maxPollPause bounds the pause between polls that fail. Other partitions wait as long.
	maxPollPause = time.Second
)

// place is a partition of a topic.
type place struct {
	topic  string
	number int32
}

// session is one member of the group, from joining to leaving.
type session struct {
	cfg Config
	// run is Run's context; ctx outlives it: it has its values and is never cancelled. line is
	// the client's, which cut cancels.
	run, ctx, line context.Context
	cut            context.CancelFunc
	// slots bounds the records that are handled at once.
	slots chan struct{}
	// acked tells the committer that there is something to commit.
	acked   chan struct{}
	workers sync.WaitGroup

	// committing is held during a commit, and while partitions are given up: no commit is
	// on its way when a partition changes hands, which would set the next owner back.
	committing sync.Mutex

	mu         sync.Mutex
	partitions map[place]*partition
	// abandoned has the ends of workers that outlived their partition. The next worker of
	// the same partition waits, so that records are not overtaken within this process.
	abandoned map[place]<-chan struct{}
}

func newSession(ctx context.Context, cfg Config) *session {
	s := &session{
		cfg: cfg, run: ctx, ctx: context.WithoutCancel(ctx),
		slots: make(chan struct{}, cfg.Concurrency), acked: make(chan struct{}, 1),
		partitions: map[place]*partition{}, abandoned: map[place]<-chan struct{}{},
	}
	s.line, s.cut = context.WithCancel(s.ctx)
	return s
}

// consume polls until Run's context is done, or a topic is another one under its old name,
// which a client does not take in; then it leaves the group. It tells whether to join anew.
func (s *session) consume(client *kgo.Client) (again bool) {
	left := make(chan struct{})
	s.workers.Go(func() { s.commitUntil(left, client) })
	failures, backoff := 0, consume.Backoff{Min: s.cfg.MinBackoff, Max: max(s.cfg.MinBackoff, maxPollPause)}
	for s.run.Err() == nil && !again {
		fetches := client.PollFetches(s.run)
		s.queue(client, fetches)
		client.AllowRebalance()
		if failures++; fetches.NumRecords() > 0 || len(fetches.Errors()) == 0 {
			failures = 0
			continue
		}
		again = slices.ContainsFunc(fetches.Errors(), func(e kgo.FetchError) bool { return errors.Is(e.Err, kerr.UnknownTopicID) })
		consume.Sleep(s.run, backoff.Pause(failures, nil)) // not every failure is paused by the client
	}
	s.give(s.all(), s.cfg.Drain)
	// Leaving gives up every partition, by the same callback as a rebalance.
	silent := time.AfterFunc(leaveTimeout, s.cut)
	defer silent.Stop()
	client.Close()
	close(left)
	s.workers.Wait()
	return again && s.run.Err() == nil
}

// queue hands fetched records to their partitions. It does not block: the group waits.
func (s *session) queue(client *kgo.Client, fetches kgo.Fetches) {
	fetches.EachError(func(topic string, number int32, err error) {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			s.cfg.Observe(Event{Kind: EventFetchFailed, Topic: topic, Partition: number, Err: err})
		}
	})
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if len(f.Records) > 0 {
			s.partition(client, place{f.Topic, f.Partition}).add(f.Records)
		}
	})
}

// partition is the partition at a place, with its worker.
func (s *session) partition(client *kgo.Client, at place) *partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.partitions[at]
	if !ok {
		p = newPartition(s, client, at, s.abandoned[at])
		delete(s.abandoned, at)
		s.partitions[at] = p
		s.workers.Go(p.work)
	}
	return p
}

func (s *session) assigned(_ context.Context, _ *kgo.Client, places map[string][]int32) {
	for topic, numbers := range places {
		for _, number := range numbers {
			s.cfg.Observe(Event{Kind: EventAssigned, Topic: topic, Partition: number})
		}
	}
}

// revoked gives up partitions while the group waits: records in hand end, and what is
// acknowledged is committed.
func (s *session) revoked(_ context.Context, client *kgo.Client, places map[string][]int32) {
	given := s.at(places)
	s.give(given, s.cfg.Drain)
	s.forget(client, given, EventGivenUp)
}

// lost gives up partitions that may be another member's already: a commit would be refused
// or set that one back.
func (s *session) lost(_ context.Context, client *kgo.Client, places map[string][]int32) {
	given := s.at(places)
	for _, p := range given {
		p.disown()
	}
	s.give(given, 0)
	s.forget(client, given, EventLost)
}

// at are the partitions at the places.
func (s *session) at(places map[string][]int32) []*partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*partition
	for topic, numbers := range places {
		for _, number := range numbers {
			if p, ok := s.partitions[place{topic, number}]; ok {
				found = append(found, p)
			}
		}
	}
	return found
}

func (s *session) all() []*partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make([]*partition, 0, len(s.partitions))
	for _, p := range s.partitions {
		found = append(found, p)
	}
	return found
}

// give ends the workers of partitions: at once those between records, the others when
// their record has its verdict or drain and a moment are over.
func (s *session) give(partitions []*partition, drain time.Duration) {
	for _, p := range partitions {
		p.stop()
	}
	if !ended(partitions, drain) {
		for _, p := range partitions {
			p.cancel()
		}
		ended(partitions, abandonAfter)
	}
	for _, p := range partitions {
		p.cancel()
	}
}

// ended waits for the workers, for a while.
func ended(partitions []*partition, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, p := range partitions {
		select {
		case <-p.done:
		case <-timer.C:
			return false
		}
	}
	return true
}

// forget commits for partitions that are given up and forgets them: a worker that was
// abandoned commits nothing any more.
func (s *session) forget(client *kgo.Client, partitions []*partition, kind EventKind) {
	s.committing.Lock()
	defer s.committing.Unlock()
	s.commit(client, partitions)
	for _, p := range partitions {
		p.resume()
		s.mu.Lock()
		delete(s.partitions, p.at)
		running := p.running()
		if running != nil {
			s.abandoned[p.at] = running
		}
		s.mu.Unlock()
		if running != nil {
			s.cfg.Observe(Event{Kind: EventAbandoned, Topic: p.at.topic, Partition: p.at.number})
		}
		s.cfg.Observe(Event{Kind: kind, Topic: p.at.topic, Partition: p.at.number})
	}
}

// commitUntil commits what is acknowledged, at most once in an interval, until the group
// is left.
func (s *session) commitUntil(left <-chan struct{}, client *kgo.Client) {
	for {
		select {
		case <-left:
			return
		case <-s.acked:
		}
		s.committing.Lock()
		if !s.commit(client, s.all()) {
			s.wake()
		}
		s.committing.Unlock()
		timer := time.NewTimer(s.cfg.CommitInterval)
		select {
		case <-left:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// wake tells the committer that there is something to commit.
func (s *session) wake() {
	select {
	case s.acked <- struct{}{}:
	default:
	}
}

// commit commits what is acknowledged of the partitions. The caller holds committing.
func (s *session) commit(client *kgo.Client, partitions []*partition) bool {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	var sent []func()
	for _, p := range partitions {
		at, ok := p.uncommitted()
		if !ok {
			continue
		}
		if offsets[p.at.topic] == nil {
			offsets[p.at.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[p.at.topic][p.at.number] = at
		sent = append(sent, func() { p.committed(at) })
	}
	if len(offsets) == 0 {
		return true
	}
	if err := commitOffsets(s.ctx, client, offsets); err != nil {
		s.cfg.Observe(Event{Kind: EventCommitFailed, Err: err})
		return false
	}
	for _, done := range sent {
		done()
	}
	return true
}

// commitOffsets commits, in the session of the group that it began in or not at all.
func commitOffsets(ctx context.Context, client *kgo.Client, offsets map[string]map[int32]kgo.EpochOffset) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	var errs []error
	client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		errs = append(errs, err)
		if err != nil {
			return
		}
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				errs = append(errs, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	})
	return errors.Join(errs...)
}
