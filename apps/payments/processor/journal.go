package processor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// errClosed is what a closed journal answers.
var errClosed = errors.New("journal is closed")

// entry is one line of the journal: something that must not be forgotten.
type entry struct {
	At time.Time `json:"at"`
	// Key and Digest are the request's; Key is empty where keys are ignored.
	Key    string `json:"key,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Struck names the attempt that a fault has struck, so that it does not
	// strike again.
	Struck string `json:"struck,omitempty"`
	// One of the two is set, or none for a fault that struck before the effect.
	Charge *Charge `json:"charge,omitempty"`
	Refund *Refund `json:"refund,omitempty"`
}

// journal makes entries durable, many with one fsync where many wait. The zero
// value keeps nothing; it only puts entries in order. It is safe for concurrent
// use.
type journal struct {
	file *os.File // nil in memory

	mu       sync.Mutex
	idle     sync.Cond // of mu: a flush has ended
	flushing bool
	pending  []pendingEntry
	queued   uint64 // entries ever taken
	flushed  uint64 // entries durable and applied
	err      error  // once set, nothing is taken any more
}

type pendingEntry struct {
	line  []byte
	apply func()
}

// openJournal opens or makes the file at path and hands each entry in it to
// load, in order. A last line without its end was never answered for: it is cut
// off. Any other line that cannot be read is an error, for the journal is then
// not what was written.
func openJournal(path string, load func(entry) error) (*journal, error) {
	j := &journal{}
	j.idle.L = &j.mu
	if path == "" {
		return j, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := replay(file, load); err != nil {
		return nil, errors.Join(fmt.Errorf("replay journal %s: %w", path, err), file.Close())
	}
	syncFolder(filepath.Dir(path))
	j.file = file
	return j, nil
}

// replay reads the whole file and leaves it positioned for the next line.
func replay(file *os.File, load func(entry) error) error {
	var offset int64
	lines := bufio.NewReader(file)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if err := load(e); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		offset += int64(len(line))
	}
	if err := file.Truncate(offset); err != nil {
		return fmt.Errorf("cut torn line: %w", err)
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return fmt.Errorf("find end: %w", err)
	}
	return nil
}

// syncFolder makes a new file's name durable. Not every file system can; there
// the file's own fsync has to do.
func syncFolder(path string) {
	folder, err := os.Open(path)
	if err != nil {
		return
	}
	_ = folder.Sync()
	_ = folder.Close()
}

// append makes e durable, calls apply, and returns. Entries are applied one at
// a time and in the file's order, so that memory and a later replay agree. An
// error leaves it open whether e is in the file; no entry is taken after it.
func (j *journal) append(e entry, apply func()) error {
	line := append(encode(e), '\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	j.pending = append(j.pending, pendingEntry{line: line, apply: apply})
	j.queued++
	mine := j.queued
	for j.flushed < mine && j.err == nil {
		if j.flushing {
			j.idle.Wait()
			continue
		}
		j.flush()
	}
	if j.flushed >= mine {
		return nil
	}
	return j.err
}

// flush writes all that waits. It is called with mu held, and lets go of it
// meanwhile.
func (j *journal) flush() {
	batch, upTo := j.pending, j.queued
	j.pending, j.flushing = nil, true
	j.mu.Unlock()
	err := j.write(batch)
	if err == nil {
		for _, p := range batch {
			p.apply()
		}
	}
	j.mu.Lock()
	j.flushing = false
	if err == nil {
		j.flushed = upTo
	} else {
		j.err = err
	}
	j.idle.Broadcast()
}

// write puts the batch on disk.
func (j *journal) write(batch []pendingEntry) error {
	if j.file == nil {
		return nil
	}
	var lines []byte
	for _, p := range batch {
		lines = append(lines, p.line...)
	}
	if _, err := j.file.Write(lines); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	return nil
}

// failure returns why no entry is taken any more, or nil.
func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// close waits for the flush under way and closes the file. Calling it again is
// fine.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.flushing {
		j.idle.Wait()
	}
	if errors.Is(j.err, errClosed) {
		return nil
	}
	j.err = errClosed
	j.idle.Broadcast()
	if j.file == nil {
		return nil
	}
	if err := j.file.Close(); err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}
