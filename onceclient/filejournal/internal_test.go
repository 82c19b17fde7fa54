package filejournal

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

func newJournal(t *testing.T) *Journal {
	t.Helper()
	j, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func smallEntry() onceclient.Entry {
	return onceclient.Entry{
		Intent: "i", Key: "k", Method: "POST", Target: "https://a/", Header: map[string][]string{"A": {"b", "\xff"}},
		Body: []byte("body"), CreatedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), State: onceclient.Answered, Attempts: 1,
		Answer: &onceclient.Answer{Status: 200, Body: []byte("answer")}, EndedAt: time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC),
	}
}

// L1: no bit of a file can change, and no end of it be missing, without an error.
func TestEveryBitCounts(t *testing.T) {
	t.Parallel()
	pieces, err := encode(smallEntry())
	if err != nil {
		t.Fatal(err)
	}
	whole := bytes.Join(pieces, nil)
	check := func(b []byte) error {
		_, err := decode(bytes.NewReader(b), int64(len(b)))
		return err
	}
	if err := check(whole); err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		for bit := range 8 {
			broken := bytes.Clone(whole)
			broken[at] ^= 1 << bit
			if check(broken) == nil {
				t.Errorf("bit %d of byte %d (%q) does not count", bit, at, whole[at])
			}
		}
		if check(whole[:at]) == nil {
			t.Errorf("%d of %d bytes are taken for all", at, len(whole))
		}
	}
}

// A head whose sum is right but whose words are not is one of a program gone wrong.
func TestHeadThatIsNone(t *testing.T) {
	t.Parallel()
	var h head
	for _, line := range []string{`{"intent":[1]}`, `{"created":"yesterday"}`, `[]`} {
		if err := json.Unmarshal([]byte(line), &h); err == nil {
			t.Errorf("%s was read as %+v", line, h)
		}
	}
	if got := headerOf([][]text{{}, {"A", "b"}}); len(got) != 1 {
		t.Errorf("header %v", got)
	}
	if _, err := readLine(strings.NewReader(strings.Repeat("a", 1000))); err == nil {
		t.Error("a line without an end was read")
	}
}

// The classic race of lock files: one waits at the door with a file that its holder
// deletes, and locks it, while another locks the new file of that name.
func TestLockOfADeletedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	holder, err := acquire(path, os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if err := flock(waiting); !errors.Is(err, onceclient.ErrLocked) {
		t.Fatalf("a lock that is held: %v", err)
	}
	if err := discard(holder); err != nil {
		t.Fatal(err)
	}
	next, err := acquire(path, os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer discard(next)
	if err := flock(waiting); err != nil {
		t.Fatalf("the deleted file: %v", err)
	}
	if there, err := bears(waiting, path); there || err != nil {
		t.Errorf("the deleted file counts: %v, %v", there, err)
	}
	if there, err := bears(next, path); !there || err != nil {
		t.Errorf("the new file does not count: %v, %v", there, err)
	}
}

// Lock files come and go under everybody's hands, and yet one at a time has the lock.
func TestLocksUnderStress(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	if _, _, err := j.Begin(t.Context(), smallEntry()); err != nil {
		t.Fatal(err)
	}
	var holders, given atomic.Int32
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			for range 150 {
				l, _, err := j.Lock(t.Context(), "i")
				if errors.Is(err, onceclient.ErrLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				given.Add(1)
				holders.Add(-1)
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if given.Load() == 0 {
		t.Error("nobody ever had the lock")
	}
}

// What nobody is writing any more is swept, and what somebody is writing is not.
func TestSweep(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	busy, err := j.temporary()
	if err != nil {
		t.Fatal(err)
	}
	defer discard(busy)
	e := smallEntry()
	if _, _, err := j.Begin(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	leftTemp, leftLock, idleLock := filepath.Join(j.temps, "left"), filepath.Join(j.locks, nameOf("gone")), j.lockPath("i")
	for _, path := range []string{leftTemp, leftLock, idleLock} {
		if err := os.WriteFile(path, []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	there := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	if _, err := Open(filepath.Dir(j.entries)); err != nil {
		t.Fatal(err)
	}
	if there(leftTemp) || !there(busy.Name()) {
		t.Errorf("left temporary: %v, busy one: %v", there(leftTemp), there(busy.Name()))
	}
	if n, err := j.Prune(t.Context(), e.EndedAt, 10); n != 0 || err != nil {
		t.Fatalf("pruned %d, %v", n, err)
	}
	if there(leftLock) || !there(idleLock) {
		t.Errorf("left lock: %v, lock of an entry: %v", there(leftLock), there(idleLock))
	}
	if n, err := j.Prune(t.Context(), e.EndedAt.Add(1), 10); n != 1 || err != nil {
		t.Fatalf("pruned %d, %v", n, err)
	}
	if there(idleLock) {
		t.Error("a pruned entry's lock is left")
	}
}

// A temporary that a sweeper took in the moment before it was locked is made anew.
func TestTemporaryIsItsMakers(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := j.sweepTemps(); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 300 {
		file, err := j.temporary()
		if err != nil {
			t.Fatal(err)
		}
		if there, err := bears(file, file.Name()); !there || err != nil {
			t.Errorf("temporary %d was swept: %v", i, err)
		}
		if err := discard(file); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	group.Wait()
}
