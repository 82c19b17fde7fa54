// Package memjournal is a journal in memory, for tests and examples. It loses
// everything with its process, so that a crash leaves operations of which nobody knows:
// what moves money needs one of the others.
package memjournal

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

// Journal keeps entries in memory. It is safe for concurrent use within a process.
type Journal struct {
	mu      sync.Mutex
	entries map[string]*kept
	made    int
}

// kept is an entry and who works on it.
type kept struct {
	entry  onceclient.Entry
	number int // tells those of one moment apart
	lock   *lock
}

// New makes an empty journal.
func New() *Journal { return &Journal{entries: map[string]*kept{}} }

// Begin records an entry, unless there is one of its intent.
func (j *Journal) Begin(ctx context.Context, entry onceclient.Entry) (onceclient.Entry, bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return onceclient.Entry{}, false, context.Cause(ctx)
	}
	entry.State = cmp.Or(entry.State, onceclient.Open)
	if err := entry.Validate(); err != nil {
		return onceclient.Entry{}, false, fmt.Errorf("begin: %w", err)
	}
	if k, ok := j.entries[entry.Intent]; ok {
		return clone(k.entry), false, nil
	}
	j.made++
	j.entries[entry.Intent] = &kept{entry: clone(entry), number: j.made}
	return clone(entry), true, nil
}

// Lock makes the caller the one who works on an entry, until Unlock.
func (j *Journal) Lock(ctx context.Context, intent string) (onceclient.Lock, onceclient.Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, onceclient.Entry{}, context.Cause(ctx)
	}
	k, ok := j.entries[intent]
	switch {
	case !ok:
		return nil, onceclient.Entry{}, onceclient.ErrNoEntry
	case k.lock != nil:
		return nil, onceclient.Entry{}, onceclient.ErrLocked
	}
	k.lock = &lock{j, intent}
	return k.lock, clone(k.entry), nil
}

// Pending lists the intents of open entries, oldest first.
func (j *Journal) Pending(ctx context.Context, after string, limit int) ([]string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	behind, found := j.entries[after]
	var open []*kept
	for _, k := range j.entries {
		if k.entry.State == onceclient.Open && (!found || older(behind, k) < 0) {
			open = append(open, k)
		}
	}
	slices.SortFunc(open, older)
	var intents []string
	for _, k := range open[:min(len(open), max(limit, 0))] {
		intents = append(intents, k.entry.Intent)
	}
	return intents, nil
}

// older puts entries in the order in which they were made.
func older(a, b *kept) int {
	return cmp.Or(a.entry.CreatedAt.Compare(b.entry.CreatedAt), cmp.Compare(a.number, b.number))
}

// Prune deletes entries that ended before a time and are not locked.
func (j *Journal) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
	}
	n := 0
	for intent, k := range j.entries {
		if n < limit && k.lock == nil && k.entry.State != onceclient.Open && k.entry.EndedAt.Before(before) {
			delete(j.entries, intent)
			n++
		}
	}
	return n, nil
}

// lock is the right to work on one entry.
type lock struct {
	journal *Journal
	intent  string
}

// Save records how the entry stands.
func (l *lock) Save(ctx context.Context, entry onceclient.Entry) error {
	l.journal.mu.Lock()
	defer l.journal.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	k := l.journal.entries[l.intent]
	if k == nil || k.lock != l {
		return onceclient.ErrLockLost
	}
	if err := entry.Validate(); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	entry = clone(entry)
	e := &k.entry
	e.State, e.Attempts, e.Answer, e.Note, e.EndedAt = entry.State, entry.Attempts, entry.Answer, entry.Note, entry.EndedAt
	return nil
}

// Unlock lets go.
func (l *lock) Unlock() error {
	l.journal.mu.Lock()
	defer l.journal.mu.Unlock()
	if k := l.journal.entries[l.intent]; k != nil && k.lock == l {
		k.lock = nil
	}
	return nil
}

// clone shares nothing with e.
func clone(e onceclient.Entry) onceclient.Entry {
	e.Header = maps.Clone(e.Header)
	for name, values := range e.Header {
		e.Header[name] = slices.Clone(values)
	}
	e.Body = bytes.Clone(e.Body)
	if e.Answer != nil {
		e.Answer = &onceclient.Answer{
			Status: e.Answer.Status, Header: http.Header.Clone(e.Answer.Header), Body: bytes.Clone(e.Answer.Body),
		}
	}
	return e
}
