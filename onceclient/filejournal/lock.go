package filejournal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

// lock is a locked file beside an entry.
type lock struct {
	j      *Journal
	intent string
	file   *os.File // nil when it was let go
}

// Save implements [onceclient.Lock]. A crash leaves the entry as it was or as it is
// saved.
func (l *lock) Save(ctx context.Context, e onceclient.Entry) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", opSave, err)
	}
	if err := e.Validate(); err != nil {
		return fmt.Errorf("%s: %w", opSave, err)
	}
	if held, err := l.held(); err != nil || !held {
		return errors.Join(err, fmt.Errorf("%s: %w", opSave, onceclient.ErrLockLost))
	}
	next, err := l.j.read(opSave, l.intent)
	if err != nil {
		return err
	}
	next.State, next.Attempts, next.Answer, next.Note, next.EndedAt = e.State, e.Attempts, e.Answer, e.Note, e.EndedAt
	return l.j.put(opSave, next, os.Rename)
}

// held tells whether the lock is still the one of its name. The system takes it from
// nobody, but people delete files.
func (l *lock) held() (bool, error) {
	if l.file == nil {
		return false, nil
	}
	return bears(l.file, l.file.Name())
}

// Unlock implements [onceclient.Lock]. The file is deleted while it is locked: see
// acquire.
func (l *lock) Unlock() error {
	held, err := l.held()
	file := l.file
	l.file = nil
	switch {
	case file == nil:
		return nil
	case held:
		err = discard(file)
	default:
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fail("unlock entry", err)
	}
	return nil
}

// sweepTemps deletes files that nobody is writing any more.
func (j *Journal) sweepTemps() error {
	return sweep(j.temps, func(string) bool { return true })
}

// sweepLocks deletes locks that nobody holds and that belong to no entry. Those of
// entries go with these, and must not be held here even for a moment.
func (j *Journal) sweepLocks() error {
	return sweep(j.locks, func(name string) bool {
		_, err := os.Lstat(filepath.Join(j.entries, name))
		return errors.Is(err, fs.ErrNotExist)
	})
}

func sweep(dir string, idle func(name string) bool) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var faults []error
	for _, entry := range files {
		if !idle(entry.Name()) {
			continue
		}
		file, err := acquire(filepath.Join(dir, entry.Name()), 0)
		switch {
		case err == nil:
			faults = append(faults, discard(file))
		case errors.Is(err, onceclient.ErrLocked), errors.Is(err, fs.ErrNotExist):
			// It is in use, or went by itself.
		default:
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}
