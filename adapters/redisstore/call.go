package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
)

// call is one script on one key.
type call struct {
	op     string
	script *redis.Script
	key    string
	args   []any // behind the clock
	// reads: the script changes nothing, so its outcome does not matter.
	reads bool
	// confirm: replicas are to confirm it, if the configuration asks for it.
	confirm bool
}

// reply is what a script gave.
type reply struct {
	value any
	// unconfirmed is why too few replicas have confirmed it; nil if they have.
	unconfirmed error
}

// mark is an argument that every command has one of; of a script it is the
// first: a test's clock, or nothing. The client asks for its bytes each time it writes the command on a connection, which
// is how we know whether, and how often, it may have reached the server: the
// client repeats commands by itself, and the last error tells nothing about the
// sends before.
type mark struct {
	text []byte
	sent atomic.Int32
}

// MarshalBinary gives the argument and counts a send.
func (m *mark) MarshalBinary() ([]byte, error) {
	m.sent.Add(1)
	return m.text, nil
}

// clockMark is the mark of a script.
func (s *Store) clockMark() *mark {
	m := &mark{}
	if s.cfg.Now != nil {
		m.text = strconv.AppendInt(nil, s.cfg.Now().UnixMicro(), 10)
	}
	return m
}

// run runs a script, by its digest if the server knows it, else by its text. The
// error is classified.
func (s *Store) run(ctx context.Context, c call) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, fmt.Errorf("%s: %w", c.op, err)
	}
	m := s.clockMark()
	r, err := s.send(ctx, c, m, c.script.EvalSha)
	if !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return r, classify(ctx, c, err, fateOf(err, int(m.sent.Load())))
	}
	lost := int(m.sent.Load()) - 1 // sends before the one that was answered
	m = s.clockMark()
	r, err = s.send(ctx, c, m, c.script.Eval)
	f := fateOf(err, int(m.sent.Load()))
	if lost > 0 {
		f = open
	}
	return r, classify(ctx, c, err, f)
}

// ask sends a plain command, the last of whose arguments is its mark.
func ask(ctx context.Context, to redis.UniversalClient, op string, args ...any) (any, error) {
	m := &mark{text: fmt.Append(nil, args[len(args)-1])}
	args[len(args)-1] = m
	v, err := to.Do(ctx, args...).Result()
	return v, classify(ctx, call{op: op, reads: true}, err, fateOf(err, int(m.sent.Load())))
}

// eval is one of the two ways to have a script run.
type eval func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

func (s *Store) send(ctx context.Context, c call, m *mark, run eval) (reply, error) {
	args := append([]any{m}, c.args...)
	if c.confirm && s.cfg.WaitReplicas > 0 {
		return s.sendAndWait(ctx, c.key, func(to redis.Scripter) *redis.Cmd { return run(ctx, to, []string{c.key}, args...) })
	}
	value, err := run(ctx, s.client, []string{c.key}, args...).Result()
	return reply{value: value}, err
}

// sendAndWait has replicas confirm what a script wrote. WAIT is about the writes
// of its own connection, so both go out together.
func (s *Store) sendAndWait(ctx context.Context, key string, run func(redis.Scripter) *redis.Cmd) (reply, error) {
	node, err := s.nodeOf(ctx, key)
	if err != nil {
		return reply{}, err
	}
	pipe := node.Pipeline()
	cmd := run(pipe)
	wait := pipe.Do(ctx, "wait", s.cfg.WaitReplicas, s.cfg.WaitTimeout.Milliseconds())
	_, _ = pipe.Exec(ctx) // each command has its own error
	value, err := cmd.Result()
	if err != nil {
		if cluster, ok := s.client.(*redis.ClusterClient); ok {
			cluster.ReloadState(ctx) // the slot may have moved
		}
		return reply{}, err
	}
	n, err := wait.Int()
	if err == nil && n < s.cfg.WaitReplicas {
		err = fmt.Errorf("%d of %d replicas confirmed it within %v", n, s.cfg.WaitReplicas, s.cfg.WaitTimeout)
	}
	return reply{value: value, unconfirmed: err}, nil
}

// nodeOf is the master that has the key.
func (s *Store) nodeOf(ctx context.Context, key string) (*redis.Client, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	default:
		return nil, fmt.Errorf("no node of %T", c) // New has refused it
	}
}

// unconfirmed is the error of a write that stands, but that a failover may lose.
func unconfirmed(op string, err error) error {
	return &onlyonce.Error{
		Code: onlyonce.CodeUncertain, Op: op, Err: err,
		Hint: "too few replicas have confirmed it, so a failover may lose it; repeat it with the same attempt token",
	}
}

// write runs a script that gives 1 when the owner held the key.
func (s *Store) write(ctx context.Context, c call) (bool, error) {
	c.confirm = true
	r, err := s.run(ctx, c)
	if err != nil {
		return false, err
	}
	held := r.value == int64(1)
	if held && r.unconfirmed != nil {
		return false, unconfirmed(c.op, r.unconfirmed)
	}
	return held, nil
}

// ownerArgs begins the arguments of a script that only an owner may run.
func ownerArgs(o onlyonce.Owner, more ...any) []any {
	return append([]any{strconv.FormatInt(o.Fence, 10), o.Attempt[:]}, more...)
}
