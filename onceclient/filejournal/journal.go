package filejournal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// What is done, for errors.
const (
	opOpen    = "open journal"
	opBegin   = "begin entry"
	opLock    = "lock entry"
	opSave    = "save entry"
	opPending = "list entries"
	opPrune   = "prune entries"
)

// Journal is a journal in a folder. Any number of them, in any number of processes of
// one machine, may have the same folder. It holds nothing open and needs no Close.
type Journal struct {
	entries, locks, temps string
}

var _ onceclient.Journal = (*Journal)(nil)

// Open opens the journal in a folder, which is made if it is not there, and sweeps what
// crashes have left. It returns CodeConfig when the folder cannot be one, and
// CodeStoreUnavailable when this process may not write there.
func Open(dir string) (*Journal, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: opOpen, Hint: "name a folder for the journal"}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fail(opOpen, err)
	}
	j := &Journal{filepath.Join(dir, "entries"), filepath.Join(dir, "locks"), filepath.Join(dir, "tmp")}
	for _, folder := range []string{j.entries, j.locks, j.temps} {
		if err := makePrivate(folder); err != nil {
			return nil, err
		}
	}
	file, err := j.temporary()
	if err != nil {
		return nil, fail(opOpen, err)
	}
	// Who has made the folders may have died before they were on disk.
	if err := errors.Join(discard(file), syncDir(dir), j.sweepTemps()); err != nil {
		return nil, fail(opOpen, err)
	}
	return j, nil
}

// makePrivate makes a folder that only its owner can look into.
func makePrivate(path string) error {
	if err := makeFolder(path); err != nil {
		return fail(opOpen, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fail(opOpen, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: opOpen,
			Hint: fmt.Sprintf("%s is open to others (%v), and bodies are kept there: chmod 700 it", path, info.Mode().Perm()),
		}
	}
	return nil
}

func nameOf(intent string) string {
	sum := sha256.Sum256([]byte(intent))
	return hex.EncodeToString(sum[:])
}

func (j *Journal) path(intent string) string     { return filepath.Join(j.entries, nameOf(intent)) }
func (j *Journal) lockPath(intent string) string { return filepath.Join(j.locks, nameOf(intent)) }

// Begin implements [onceclient.Journal]. An entry without a State is Open. After an
// error Begin may be called again: it is CodeStoreUnavailable when nothing was recorded,
// and CodeUncertain when it is not known whether it survives.
func (j *Journal) Begin(ctx context.Context, e onceclient.Entry) (onceclient.Entry, bool, error) {
	none := onceclient.Entry{}
	e.State = cmp.Or(e.State, onceclient.Open)
	e.CreatedAt = e.CreatedAt.Round(0).UTC() // as it is read
	if err := ctx.Err(); err != nil {
		return none, false, fmt.Errorf("%s: %w", opBegin, err)
	}
	if err := e.Validate(); err != nil {
		return none, false, fmt.Errorf("%s: %w", opBegin, err)
	}
	for {
		stands, err := j.read(opBegin, e.Intent)
		if err == nil {
			// Who has made it may have died before it was on disk.
			return stands, false, j.settle(opBegin)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return none, false, err
		}
		err = j.put(opBegin, e, os.Link)
		if err == nil {
			return e, true, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return none, false, err
		}
	}
}

// Lock implements [onceclient.Journal]. The lock ends with the process.
func (j *Journal) Lock(ctx context.Context, intent string) (onceclient.Lock, onceclient.Entry, error) {
	none := onceclient.Entry{}
	if err := ctx.Err(); err != nil {
		return nil, none, fmt.Errorf("%s: %w", opLock, err)
	}
	// No lock file for an entry that is not there: nobody would clear it away.
	if _, err := os.Lstat(j.path(intent)); err != nil {
		return nil, none, missing(fail(opLock, err))
	}
	file, err := acquire(j.lockPath(intent), os.O_CREATE)
	if err != nil {
		return nil, none, fail(opLock, err)
	}
	l := &lock{j: j, intent: intent, file: file}
	e, err := j.read(opLock, intent)
	if err == nil {
		err = j.settle(opLock) // as in Begin
	}
	if err != nil {
		return nil, none, errors.Join(missing(err), l.Unlock())
	}
	return l, e, nil
}

// missing turns "no such file" into "no such entry".
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", opLock, onceclient.ErrNoEntry)
	}
	return err
}

// Pending implements [onceclient.Journal]. It reads the heads of all entries, so prune
// what has ended. After an intent that there is no entry of is the beginning. Where a
// file is damaged it says so, and lists the others all the same: the list is good even
// if the error is not nil.
func (j *Journal) Pending(ctx context.Context, after string, limit int) ([]string, error) {
	heads, err := j.heads(ctx, opPending)
	slices.SortFunc(heads, func(a, b head) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(string(a.Intent), string(b.Intent)))
	})
	at := slices.IndexFunc(heads, func(h head) bool { return string(h.Intent) == after })
	var intents []string
	for _, h := range heads[at+1:] {
		if h.State == onceclient.Open && len(intents) < limit {
			intents = append(intents, string(h.Intent))
		}
	}
	return intents, err
}

// heads reads the heads of all entries. It gives those that can be read even if it
// fails on others.
func (j *Journal) heads(ctx context.Context, op string) ([]head, error) {
	files, err := os.ReadDir(j.entries)
	if err != nil {
		return nil, fail(op, err)
	}
	var heads []head
	var faults []error
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		h, err := readHead(op, filepath.Join(j.entries, file.Name()))
		switch {
		case err == nil:
			heads = append(heads, h)
		case !errors.Is(err, fs.ErrNotExist): // else it was pruned meanwhile
			faults = append(faults, err)
		}
	}
	return heads, errors.Join(faults...)
}

// Prune implements [onceclient.Journal]. It also sweeps what crashes have left. As
// with Pending, damaged files are left alone and reported.
func (j *Journal) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	heads, err := j.heads(ctx, opPrune)
	heads = slices.DeleteFunc(heads, func(h head) bool { return !prunable(h.State, h.Ended, before) })
	slices.SortFunc(heads, func(a, b head) int { return a.Ended.Compare(b.Ended) })
	pruned, faults := 0, []error{err}
	for _, h := range heads {
		if pruned >= limit {
			break
		}
		did, err := j.pruneOne(ctx, string(h.Intent), before)
		if did {
			pruned++
		}
		faults = append(faults, err)
	}
	if pruned > 0 {
		faults = append(faults, j.settle(opPrune))
	}
	return pruned, errors.Join(append(faults, j.sweepTemps(), j.sweepLocks())...)
}

func prunable(state onceclient.State, ended, before time.Time) bool {
	return state != onceclient.Open && !ended.IsZero() && ended.Before(before)
}

// pruneOne deletes an entry if it still may when it is locked.
func (j *Journal) pruneOne(ctx context.Context, intent string, before time.Time) (did bool, err error) {
	l, e, err := j.Lock(ctx, intent)
	if errors.Is(err, onceclient.ErrLocked) || errors.Is(err, onceclient.ErrNoEntry) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, l.Unlock()) }()
	if !prunable(e.State, e.EndedAt, before) {
		return false, nil
	}
	if err := os.Remove(j.path(intent)); err != nil {
		return false, fail(opPrune, err)
	}
	return true, nil
}
