package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
)

// fate is what became of a command that ended in an error.
type fate int

const (
	// unsent: it was never written on a connection.
	unsent fate = iota
	// refused: it was sent once, and the server said no to it. No script of ours
	// fails behind its first write, so nothing has happened.
	refused
	// open: nobody knows. A reply was lost, now or, when the client sent it more
	// than once, before.
	open
)

// fateOf judges by how often the command was sent.
func fateOf(err error, sent int) fate {
	code, answered := replyCode(err)
	switch {
	case sent == 0:
		return unsent
	case answered && sent == 1 && !ofConnection(code, err):
		return refused
	default:
		return open
	}
}

// ofConnection tells whether the server said no to a connection, and not to a
// command on it: the client, which had sent the command and lost its reply, was about
// to send it again.
func ofConnection(code string, err error) bool {
	return code == "WRONGPASS" || code == "NOAUTH" ||
		(code == "ERR" && (strings.Contains(err.Error(), "max number of clients") || strings.Contains(err.Error(), "invalid password")))
}

// ended is why the context is over; nil if it is not. The client's sockets learn
// of a deadline from the same clock, and may be a little earlier.
func ended(ctx context.Context) error {
	if d, ok := ctx.Deadline(); ok && ctx.Err() == nil && time.Until(d) <= 0 {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// classify makes a client's error one of the store contract's: it may have
// happened (ErrUncertain), it did not and may be repeated at once (ErrConflict),
// it did not, and of that the case that no server could be reached
// (ErrUnreachable), which a caller that would not wait knows nothing of.
func classify(ctx context.Context, c call, err error, f fate) error {
	switch {
	case err == nil:
		return nil
	case f == open && !c.reads:
		return &onlyonce.Error{
			Code: onlyonce.CodeUncertain, Op: c.op, Err: err,
			Hint: "the server's reply was lost; repeat it with the same attempt token",
		}
	case ended(ctx) != nil:
		return fmt.Errorf("%s: %w (%w)", c.op, ended(ctx), err)
	}
	if code, ok := replyCode(err); ok {
		kind, hint := onlyonce.CodeStoreUnavailable, hintFor(code)
		if code == "TRYAGAIN" || code == "BUSY" || code == "MOVED" || code == "ASK" {
			kind = onlyonce.CodeConflict
		}
		return &onlyonce.Error{Code: kind, Op: c.op, Hint: hint, Err: err}
	}
	if f == unsent && !errors.Is(err, redis.ErrClosed) && !errors.Is(err, redis.ErrPoolTimeout) && !errors.Is(err, redis.ErrPoolExhausted) {
		return &onlyonce.Error{
			Code: onlyonce.CodeUnreachable, Op: c.op, Err: err,
			Hint: "no connection could be made that answers, and nothing was sent: look at the address, the server and its log",
		}
	}
	return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: c.op, Hint: clientHint(err), Err: err}
}

// replyCode is the first word of an error that a server gave, which is how Redis
// tells errors apart.
func replyCode(err error) (string, bool) {
	e, ok := errors.AsType[redis.Error](err)
	if !ok {
		return "", false
	}
	code, _, _ := strings.Cut(e.Error(), " ")
	return code, true
}

// hintFor tells people what to do about what a server said.
func hintFor(code string) string {
	switch code {
	case "OOM":
		return "the server's memory is full: nothing was changed. What is under way can still be completed; raise maxmemory or sweep"
	case "READONLY":
		return "the server is a replica, or has just become one: nothing was changed. Name the master, or use Sentinel or a cluster client"
	case "LOADING":
		return "the server is still loading its data: nothing was changed, it goes on soon"
	case "CLUSTERDOWN", "MASTERDOWN":
		return "a part of the cluster has no master at present: nothing was changed. Look at CLUSTER INFO"
	case "NOREPLICAS":
		return "fewer replicas are in sync than min-replicas-to-write asks for: nothing was changed"
	case "MISCONF":
		return "the server cannot save its data to disk and takes no writes: nothing was changed. Look at its log and its disk"
	case "BUSY":
		return "a script of somebody else's occupies the server: nothing was changed"
	case "NOAUTH", "WRONGPASS":
		return "the server asks for another user or password"
	case "NOPERM":
		return "the user needs EVAL, EVALSHA, SCRIPT LOAD, SCAN, INFO and the commands on hashes, on all keys that begin with Prefix"
	case "CLOCK":
		return "set the server's clock"
	case "COLLISION":
		return "the digests of two keys are equal, or the hash was changed by hand"
	case "WRONGTYPE":
		return "a key with this name holds something else: choose another Prefix"
	default:
		return ""
	}
}

// unreadable is a reply that is not what our own scripts give.
func unreadable(op string, errs ...error) error {
	return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Err: cmp.Or(errors.Join(errs...), errors.New("a reply that makes no sense"))}
}

func clientHint(err error) string {
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return "all connections of the pool are in use: nothing was sent. Raise pool_size, or look for slow commands"
	}
	return ""
}
