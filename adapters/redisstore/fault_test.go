package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// noRetries keeps the client from sending a command again.
const noRetries = "max_retries=-1"

// behind opens a store on a private server behind a proxy, and one that goes
// straight to it. All scripts used here are known to the server.
func behind(t *testing.T, parameters string) (*proxy, *redisstore.Store, *redisstore.Store) {
	t.Helper()
	server := testserver.NewRedis(t)
	p := newProxy(t, server.Address())
	s, straight := openAt(t, p.url(parameters), redisstore.Config{}), openAt(t, server.URL(), redisstore.Config{})
	owner := mustClaim(t, straight, claimOf("warm up"), onlyonce.Won).Record.Owner()
	for name, w := range writes() {
		if _, err := w(t.Context(), straight, owner); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return p, s, straight
}

type write func(ctx context.Context, s *redisstore.Store, o onlyonce.Owner) (bool, error)

// writes are all that an owner may do.
func writes() map[string]write {
	intent := onlyonce.Intent{Name: "charge", Provider: "acme", DerivedKey: "d", Reference: "r"}
	return map[string]write{
		"renew": func(ctx context.Context, s *redisstore.Store, o onlyonce.Owner) (bool, error) {
			return s.Renew(ctx, o, time.Minute)
		},
		"complete": func(ctx context.Context, s *redisstore.Store, o onlyonce.Owner) (bool, error) {
			settled, err := s.Complete(ctx, o, answerOf("paid"))
			return settled.Held, err
		},
		"release": func(ctx context.Context, s *redisstore.Store, o onlyonce.Owner) (bool, error) {
			return s.Release(ctx, o, "test")
		},
		"park": func(ctx context.Context, s *redisstore.Store, o onlyonce.Owner) (bool, error) {
			return s.Park(ctx, onlyonce.ParkRequest{Owner: o, Reason: "test"})
		},
		"begin step": func(ctx context.Context, s *redisstore.Store, o onlyonce.Owner) (bool, error) {
			return s.BeginStep(ctx, o, intent)
		},
		"end step": func(ctx context.Context, s *redisstore.Store, o onlyonce.Owner) (bool, error) {
			if _, err := s.BeginStep(ctx, o, intent); err != nil && !errors.Is(err, onlyonce.ErrUncertain) {
				return false, err
			}
			return s.EndStep(ctx, o, onlyonce.StepEnd{Name: "charge", State: onlyonce.StepDone, Result: []byte("ok")})
		},
	}
}

// C10: a claim whose reply was lost may have been made; the same token finds it,
// and nobody else is told that it is free.
func TestLostReplyOfAClaim(t *testing.T) {
	t.Parallel()
	p, s, straight := behind(t, noRetries)
	req := claimOf("k")
	p.loseReplies(1, false)
	if c, err := s.Claim(t.Context(), req); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Fatalf("a claim whose reply was lost: %v, %v", c.Verdict, err)
	}
	mustClaim(t, straight, anotherOf(req), onlyonce.Busy)
	if c := mustClaim(t, s, req, onlyonce.Won); c.Record.Attempts != 1 || c.Record.Attempt != req.Attempt {
		t.Errorf("the repeated claim is another one: %+v", c.Record)
	}
}

// C10: the same for every write of an owner: it stands, and may be repeated.
func TestLostReplyOfAWrite(t *testing.T) {
	t.Parallel()
	p, s, straight := behind(t, noRetries)
	for name, w := range writes() {
		owner := mustClaim(t, straight, claimOf(name), onlyonce.Won).Record.Owner()
		p.loseReplies(1, false)
		if held, err := w(t.Context(), s, owner); name != "end step" && !errors.Is(err, onlyonce.ErrUncertain) {
			t.Errorf("%s whose reply was lost: %v, %v", name, held, err)
		}
		once := stateOf(t, straight, name)
		if held, err := w(t.Context(), s, owner); !held || err != nil {
			t.Errorf("%s repeated: %v, %v", name, held, err)
		}
		if diff := cmp.Diff(once, stateOf(t, straight, name)); diff != "" && name != "renew" {
			t.Errorf("%s repeated changed the record:\n%s", name, diff)
		}
	}
}

func stateOf(t *testing.T, s *redisstore.Store, value string) onlyonce.Record {
	t.Helper()
	rec, found, err := s.Get(t.Context(), keyOf(value))
	if err != nil || !found {
		t.Fatalf("get %s: %v, %v", value, found, err)
	}
	return rec
}

// C10: the client sends a command again by itself. Scripts may be repeated, so the
// caller is told the truth and need not know.
func TestClientRepeats(t *testing.T) {
	t.Parallel()
	p, s, straight := behind(t, "max_retries=3")
	req := claimOf("k")
	p.loseReplies(2, false)
	c := mustClaim(t, s, req, onlyonce.Won)
	p.loseReplies(1, false)
	if held, err := s.Complete(t.Context(), c.Record.Owner(), answerOf("paid")); !held.Held || err != nil {
		t.Errorf("complete: %+v, %v", held, err)
	}
	if p.count() != 3 {
		t.Errorf("%d replies were lost, want 3", p.count())
	}
	if c := mustClaim(t, straight, anotherOf(req), onlyonce.Replay); c.Record.Attempts != 1 {
		t.Errorf("%d claims were made", c.Record.Attempts)
	}
}

// C10: the same when the server has forgotten the script meanwhile: what was sent
// before it said so may have been carried out, whatever it says now.
func TestLostReplyThenForgottenScripts(t *testing.T) {
	t.Parallel()
	p, s, straight := behind(t, "max_retries=1")
	client := redisstore.ClientOf(straight)
	if err := client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	p.loseReplies(1, false)
	if c, err := s.Claim(t.Context(), claimOf("k")); !errors.Is(err, onlyonce.ErrUncertain) || p.count() != 1 {
		t.Errorf("claim: %v, %v with %d lost replies", c.Verdict, err, p.count())
	}
}

// C11: a server that is gone by the time the client tries again is not the same as
// one that was never reached: what was sent first may have happened.
func TestLostReplyThenUnreachable(t *testing.T) {
	t.Parallel()
	p, s, straight := behind(t, "max_retries=2")
	req := claimOf("k")
	p.loseReplies(1, true)
	c, err := s.Claim(t.Context(), req)
	if !errors.Is(err, onlyonce.ErrUncertain) || errors.Is(err, onlyonce.ErrUnreachable) {
		t.Fatalf("a claim that was made: %v, %v", c.Verdict, err)
	}
	mustClaim(t, straight, anotherOf(req), onlyonce.Busy)
	c, err = s.Claim(t.Context(), req)
	if !errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("a claim that could not be sent: %v, %v", c.Verdict, err)
	}
}

// C11: nothing was sent where no connection can be made.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	for _, url := range []string{
		"redis://" + address + "?" + noRetries + "",
		"redis+cluster://" + address + "?max_redirects=1",
		"redis+sentinel://" + address + "?master_name=m&" + noRetries + "",
	} {
		_, err := redisstore.Open(t.Context(), url, redisstore.Config{})
		if !errors.Is(err, onlyonce.ErrUnreachable) {
			t.Errorf("open %s: %v", url, err)
		}
	}
}

// A context that has ended before sends nothing; one that ends while the server
// says nothing leaves the outcome open.
func TestContextEnded(t *testing.T) {
	t.Parallel()
	server := testserver.NewRedis(t)
	s := openAt(t, server.URL()+"?"+noRetries, redisstore.Config{})
	mustClaim(t, s, claimOf("warm up"), onlyonce.Won)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	req := claimOf("k")
	if _, err := s.Claim(ended, req); !errors.Is(err, context.Canceled) || onlyonce.CodeOf(err) != "" {
		t.Errorf("claim: %v", err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, claimErr := s.Claim(soon, req)
	_, _, getErr := s.Get(soon, req.Key)
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(claimErr, onlyonce.ErrUncertain) {
		t.Errorf("claim while the server says nothing: %v", claimErr)
	}
	if !errors.Is(getErr, context.DeadlineExceeded) {
		t.Errorf("get while the server says nothing: %v", getErr)
	}
	mustClaim(t, s, req, onlyonce.Won)
}

// C3: with appendfsync always a server that is killed and started again has all
// that it confirmed, and what it did not confirm is settled by the same token.
func TestKilledServerKeepsWhatItConfirmed(t *testing.T) {
	t.Parallel()
	server := testserver.NewRedis(t)
	s := openAt(t, server.URL()+"?"+noRetries+"", redisstore.Config{})
	if !s.Features().Durable {
		t.Error("a server that flushes every write is not called durable")
	}
	var mu sync.Mutex
	confirmed, open := []onlyonce.ClaimRequest{}, []onlyonce.ClaimRequest{}
	enough := make(chan struct{})
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				req := claimOf(fmt.Sprintf("%d-%d", worker, i))
				_, err := s.Claim(t.Context(), req)
				mu.Lock()
				if err == nil {
					confirmed = append(confirmed, req)
				} else if errors.Is(err, onlyonce.ErrUncertain) {
					open = append(open, req)
				}
				n := len(confirmed)
				mu.Unlock()
				if err != nil {
					return
				}
				if n == 200 {
					close(enough)
				}
			}
		})
	}
	<-enough
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for _, req := range confirmed {
		mustClaim(t, s, anotherOf(req), onlyonce.Busy)
	}
	for _, req := range open {
		mustClaim(t, s, req, onlyonce.Won)
		mustClaim(t, s, anotherOf(req), onlyonce.Busy)
	}
	t.Logf("%d confirmed claims survived, %d were open", len(confirmed), len(open))
}

// What servers say when they will not, and what that means: nothing has happened.
func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		arrange [][]string
		code    onlyonce.Code
		hint    string
	}{
		"a replica":                 {[][]string{{"REPLICAOF", "127.0.0.1", "1"}}, onlyonce.CodeStoreUnavailable, "replica"},
		"too few replicas":          {[][]string{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, onlyonce.CodeStoreUnavailable, "min-replicas"},
		"no right to run scripts":   {[][]string{{"ACL", "SETUSER", "default", "-evalsha", "-eval"}}, onlyonce.CodeStoreUnavailable, "EVALSHA"},
		"no right to write hashes":  {[][]string{{"ACL", "SETUSER", "default", "-hset"}}, onlyonce.CodeStoreUnavailable, ""},
		"something else's key":      {[][]string{{"DEL", "NAME"}, {"SET", "NAME", "x"}}, onlyonce.CodeStoreUnavailable, "Prefix"},
		"another key under a name":  {[][]string{{"HSET", "NAME", "key", "other"}}, onlyonce.CodeStoreUnavailable, "digests"},
		"a password is asked for":   {[][]string{{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}, {"CONFIG", "SET", "requirepass", "x"}}, onlyonce.CodeStoreUnavailable, ""},
		"a script of somebody else": {nil, onlyonce.CodeConflict, "script"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.NewRedis(t, "busy-reply-threshold 1")
			s := openAt(t, server.URL()+"?"+noRetries, redisstore.Config{})
			req := claimOf("k")
			c := mustClaim(t, s, req, onlyonce.Won)
			owner := c.Record.Owner()
			if held, err := s.Release(t.Context(), owner, "test"); !held || err != nil {
				t.Fatal(held, err)
			}
			busy := make(chan struct{})
			if tt.arrange == nil {
				go func() {
					defer close(busy)
					_, _ = server.Do("EVAL", "while true do end", "0") // ends with an error, by SCRIPT KILL
				}()
				waitFor(t, "the server is busy", func() bool { _, err := server.Do("GET", "x"); return err != nil })
			}
			for _, args := range tt.arrange {
				for i := range args {
					args[i] = strings.ReplaceAll(args[i], "NAME", redisstore.RecordName(s, req.Key.Digest()))
				}
				if _, err := server.Do(args...); err != nil {
					t.Fatal(err)
				}
			}
			_, err := s.Claim(t.Context(), anotherOf(req))
			e, ok := errors.AsType[*onlyonce.Error](err)
			if !ok || e.Code != tt.code || !strings.Contains(e.Hint, tt.hint) {
				t.Errorf("claim: %v, want %s with a hint about %q", err, tt.code, tt.hint)
			}
			if tt.arrange == nil {
				if _, err := server.Do("SCRIPT", "KILL"); err != nil {
					t.Fatal(err)
				}
				<-busy
				mustClaim(t, s, anotherOf(req), onlyonce.Resumed)
			}
		})
	}
}

// waitFor polls until ok holds.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// A hash that was changed by hand is an error, never a panic or a free key.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	s := openAt(t, testserver.Redis(t), redisstore.Config{})
	client := redisstore.ClientOf(s)
	damage := map[string]func(name string) error{
		"a number": func(n string) error { return client.HSet(t.Context(), n, "attempts", "many").Err() },
		"a token":  func(n string) error { return client.HSet(t.Context(), n, "attempt", "short").Err() },
		"a field":  func(n string) error { return client.HDel(t.Context(), n, "operation").Err() },
		"a time":   func(n string) error { return client.HSet(t.Context(), n, "lease", "soon").Err() },
		"a header": func(n string) error {
			return client.HSet(t.Context(), n, "status", "200", "header", "x", "body", "").Err()
		},
		"the state": func(n string) error { return client.HSet(t.Context(), n, "state", "completed").Err() },
	}
	for name, do := range damage {
		req := claimOf(name)
		mustClaim(t, s, req, onlyonce.Won)
		if err := do(redisstore.RecordName(s, req.Key.Digest())); err != nil {
			t.Fatal(err)
		}
		if c, err := s.Claim(t.Context(), anotherOf(req)); err == nil {
			t.Errorf("claim of a record with %s damaged: %v", name, c.Verdict)
		}
		if _, found, err := s.Get(t.Context(), req.Key); err == nil {
			t.Errorf("get of a record with %s damaged: found %v", name, found)
		}
	}
}

// A server that has forgotten the scripts is told them again.
func TestForgottenScripts(t *testing.T) {
	t.Parallel()
	server := testserver.NewRedis(t)
	s := openAt(t, server.URL(), redisstore.Config{})
	req := claimOf("k")
	for range 3 {
		mustClaim(t, s, req, onlyonce.Won)
		if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
	}
	complete(t, s, claimOf("other"), "x")
}
