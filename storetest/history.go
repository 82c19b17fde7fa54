package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/onlyonce-go/onlyonce"
)

// RunHistory lets many workers loose on a few keys, records what each asked and
// got, and has the history judged: is there an order, in keeping with real
// time, in which a store that does one thing at a time would have given the
// same answers? A failing history is kept as a page to look at.
func RunHistory(t *testing.T, backend Backend) {
	t.Helper()
	explain(t, "no order of one step at a time explains what concurrent callers were told")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	clock := NewClock() // stands still: leases do not end by themselves here
	in := backend.Open(t, clock.Now)
	stores := []onlyonce.Store{in.Store, in.Store}
	if in.Another != nil {
		stores[1] = in.Another
	}
	h := &history{t: t, begun: time.Now()}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			h.work(stores[worker%2], worker, rand.New(rand.NewPCG(seed, uint64(worker))))
		})
	}
	wg.Wait()
	model := historyModel(clock.Now().UnixMicro())
	result, info := porcupine.CheckOperationsVerbose(model, h.ops, time.Minute)
	if result != porcupine.Ok {
		path := filepath.Join(t.ArtifactDir(), "history.html")
		if err := porcupine.VisualizePath(model, info, path); err != nil {
			_ = os.Remove(path)
		}
		t.Errorf("the history of %d operations is %s; see %s", len(h.ops), result, path)
	}
}

// asked is one request to a store.
type asked struct {
	what    string // claim, resolve, renew, complete, release, park
	key     string
	attempt onlyonce.Token
	request string
	fence   int64
}

// told is its answer.
type told struct {
	verdict onlyonce.Verdict
	fence   int64
	held    bool
}

// history collects what workers asked and were told.
type history struct {
	t     *testing.T
	begun time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// work asks for a while; it writes as the attempts that it came to own.
func (h *history) work(s onlyonce.Store, id int, r *rand.Rand) {
	var owned []onlyonce.Owner
	for range 60 {
		in := asked{key: []string{"a", "b"}[r.IntN(2)], attempt: onlyonce.NewToken(), request: []string{"x", "x", "x", "y"}[r.IntN(4)]}
		in.what = []string{"claim", "resolve"}[r.IntN(2)]
		if len(owned) > 0 && r.IntN(3) > 0 {
			o := owned[r.IntN(len(owned))]
			in.what = []string{"renew", "complete", "release", "release", "park", "park"}[r.IntN(6)]
			if in.what == "complete" && r.IntN(8) > 0 {
				in.what = "release" // completed keys are the end of the story
			}
			in.key, in.attempt, in.fence = o.Key.Value, o.Attempt, o.Fence
		}
		call := time.Since(h.begun)
		out, owner, err := h.ask(s, in)
		if err != nil {
			h.t.Errorf("%s %s: %v", in.what, in.key, err)
			return
		}
		if out.verdict.Owns() {
			owned = append(owned, owner)
		}
		h.mu.Lock()
		h.ops = append(h.ops, porcupine.Operation{ClientId: id, Input: in, Output: out, Call: call.Nanoseconds(), Return: time.Since(h.begun).Nanoseconds()})
		h.mu.Unlock()
	}
}

func (h *history) ask(s onlyonce.Store, in asked) (out told, owner onlyonce.Owner, err error) {
	ctx := h.t.Context()
	owner = onlyonce.Owner{Key: request(in.key).Key, Fence: in.fence, Attempt: in.attempt}
	switch in.what {
	case "renew":
		out.held, err = s.Renew(ctx, owner, lease)
	case "release":
		out.held, err = s.Release(ctx, owner, "r")
	case "park":
		out.held, err = s.Park(ctx, onlyonce.ParkRequest{Owner: owner, Reason: "p"})
	case "complete":
		var settled onlyonce.Settled
		settled, err = s.Complete(ctx, owner, created())
		out.held = settled.Held
	default:
		req := request(in.key)
		req.Attempt, req.Fingerprint, req.Resolve = in.attempt, fingerprintOf(in.request), in.what == "resolve"
		var c onlyonce.Claim
		c, err = s.Claim(ctx, req)
		out.verdict = c.Verdict
		if c.Verdict.Owns() {
			out.fence, owner = c.Record.Fence, c.Record.Owner()
		}
	}
	return out, owner, err
}

// keyState is all that the model knows of a key.
type keyState struct {
	state   onlyonce.State
	attempt onlyonce.Token
	request string
	fence   int64
}

// historyModel is a store that does one thing at a time, for one key, with a
// clock that stands still.
func historyModel(now int64) porcupine.Model {
	return porcupine.Model{
		Partition: byKey,
		Init:      func() any { return keyState{} },
		Step: func(state, input, output any) (bool, any) {
			s, in, out := state.(keyState), input.(asked), output.(told)
			want, next := s.step(in, now)
			return want == out, next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

func byKey(ops []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, op := range ops {
		key := op.Input.(asked).key
		parts[key] = append(parts[key], op)
	}
	var out [][]porcupine.Operation
	for _, p := range parts {
		out = append(out, p)
	}
	return out
}

// step is the contract in small, written apart from Judge so that one checks
// the other.
func (s keyState) step(in asked, now int64) (told, keyState) {
	if in.what == "claim" || in.what == "resolve" {
		return s.claim(in, now)
	}
	if s.attempt != in.attempt || s.fence != in.fence {
		return told{}, s
	}
	leadsTo := map[string]onlyonce.State{"complete": onlyonce.Completed, "release": onlyonce.FailedRetryable, "park": onlyonce.InDoubt, "renew": onlyonce.InProgress}
	next := s
	next.state = leadsTo[in.what]
	may := s.state == onlyonce.InProgress || s.state == next.state || (s.state == onlyonce.InDoubt && in.what == "complete")
	if !may {
		return told{}, s
	}
	return told{held: true}, next
}

func (s keyState) claim(in asked, now int64) (told, keyState) {
	next := keyState{state: onlyonce.InProgress, attempt: in.attempt, request: in.request, fence: max(s.fence+1, now)}
	switch {
	case s.state == "":
		return told{verdict: onlyonce.Won, fence: next.fence}, next
	case s.request != in.request:
		return told{verdict: onlyonce.Mismatch}, s
	case s.state == onlyonce.Completed:
		return told{verdict: onlyonce.Replay}, s
	case s.state == onlyonce.InProgress:
		return told{verdict: onlyonce.Busy}, s
	case s.state == onlyonce.InDoubt && in.what == "claim":
		return told{verdict: onlyonce.Doubtful}, s
	default:
		return told{verdict: onlyonce.Resumed, fence: next.fence}, next
	}
}
