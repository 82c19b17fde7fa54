package onceclient_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/filejournal"
)

// What a child process is told: what to do ("do", "resume"), where to die, and where
// its journal and its server are.
const (
	childJob     = "ONCECLIENT_TEST_JOB"
	childDeath   = "ONCECLIENT_TEST_DEATH"
	childJournal = "ONCECLIENT_TEST_JOURNAL"
	childServer  = "ONCECLIENT_TEST_SERVER"
)

// die ends this process as SIGKILL does, at a point that it was told.
func die(point string) {
	if os.Getenv(childDeath) == point {
		p, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = p.Kill()
		}
		panic(err) // unless it is dead already
	}
}

// child is a process that may be killed. Its exit code says how it has ended.
func child() int {
	j, err := filejournal.Open(os.Getenv(childJournal))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	base := http.DefaultTransport
	cfg := quick(j)
	cfg.Base = roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		die("before the send")
		res, err := base.RoundTrip(r)
		die("before the response")
		return res, err
	})
	cfg.Observe = func(_ context.Context, e onceclient.Event) {
		if e.Kind == onceclient.EventEnded {
			die("behind the record")
		}
	}
	c, err := onceclient.New(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	if os.Getenv(childJob) == "resume" {
		err = c.Resume(context.Background(), func(_ onceclient.Outcome, failed error) { err = failed })
	} else {
		_, err = c.Do(context.Background(), charge("order-1", os.Getenv(childServer)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// run runs a child, and tells whether it was killed.
func runChild(t *testing.T, job, death, dir, url string) (killed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childJob+"="+job, childDeath+"="+death, childJournal+"="+dir, childServer+"="+url)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.Exited() && err != nil {
		t.Fatalf("child: %v: %s", err, out)
	}
	return !cmd.ProcessState.Exited()
}

// L1, B100: a process is killed between journal and send, between send and response, or
// behind the record, and so is the one that resumes; a third gets the answer. There is
// one effect, under one key, by one request's bytes, and after the record no request.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	points := []string{"before the send", "before the response", "behind the record"}
	for _, first := range points {
		for _, second := range points {
			t.Run(strings.Join([]string{first, second}, ", "), func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				effects := map[string]int{}
				s := serve(t, func(_ int, w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					key := r.Header.Get("Idempotency-Key")
					if effects[key]++; effects[key] > 1 {
						w.Header().Set("Idempotent-Replayed", "true")
					}
					fmt.Fprint(w, "charge ", len(effects))
				})
				dir := t.TempDir()
				if !runChild(t, "do", first, dir, s.URL) {
					t.Fatal("the first was not killed")
				}
				recorded := first == "behind the record"
				if runChild(t, "resume", second, dir, s.URL) == recorded {
					t.Fatalf("the second was killed: %t", recorded)
				}
				if runChild(t, "resume", "", dir, s.URL) || runChild(t, "do", "", dir, s.URL) {
					t.Fatal("the last were killed")
				}
				want := map[string]int{"before the send": 0, "before the response": 1, "behind the record": 1}
				requests := want[first]
				if !recorded {
					requests += want[second]
				}
				if !recorded && second != "behind the record" {
					requests++
				}
				j, err := filejournal.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				e := stands(t, j, "order-1")
				s.wantOneKey(t, e.Key, requests)
				if e.State != onceclient.Answered || e.Answer == nil || string(e.Answer.Body) != "charge 1" || len(effects) != 1 {
					t.Errorf("%d effects; the entry says %+v", len(effects), e)
				}
			})
		}
	}
}
