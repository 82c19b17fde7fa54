package filejournal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// acquire opens a file and takes its lock. Whoever holds a lock file may delete it:
// then somebody may already wait at the door with the old file, and somebody else
// with a new one. So the lock counts only if the file is still the one of that name.
func acquire(path string, flags int) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|flags, 0o600)
		if err != nil {
			return nil, err
		}
		err = flock(file)
		there := false
		if err == nil {
			there, err = bears(file, path)
		}
		if there {
			return file, nil
		}
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
	}
}

// bears tells whether the open file is the one that has the name now.
func bears(file *os.File, path string) (bool, error) {
	own, err := file.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(own, named), err
}

// discard deletes a file that acquire has given, and lets go of it.
func discard(file *os.File) error {
	err := os.Remove(file.Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

// temporary makes an empty file that nobody else touches while it is open.
func (j *Journal) temporary() (*os.File, error) {
	for {
		file, err := acquire(filepath.Join(j.temps, onlyonce.NewToken().String()), os.O_CREATE|os.O_EXCL)
		// A sweeper may have taken it for a leftover before it was locked.
		if !errors.Is(err, onceclient.ErrLocked) {
			return file, err
		}
	}
}

// put writes an entry whole and then puts it in its place: [os.Link] where there must
// be none yet, [os.Rename] where there is one. An error that is fs.ErrExist means
// that Link found one. CodeUncertain: it is in place, and may not survive a crash of
// the machine.
func (j *Journal) put(op string, e onceclient.Entry, place func(from, to string) error) error {
	pieces, err := encode(e)
	if err != nil {
		return fail(op, err)
	}
	file, err := j.temporary()
	if err != nil {
		return fail(op, err)
	}
	defer func() { _ = discard(file) }() // a leftover is swept
	for _, piece := range pieces {
		if _, err := file.Write(piece); err != nil {
			return fail(op, err)
		}
	}
	if err := file.Sync(); err != nil {
		return fail(op, err)
	}
	if err := place(file.Name(), j.path(e.Intent)); err != nil {
		return fail(op, err)
	}
	return j.settle(op)
}

// settle makes what is in the folder of entries survive a crash of the machine.
func (j *Journal) settle(op string) error {
	if err := syncDir(j.entries); err != nil {
		return &onlyonce.Error{
			Code: onlyonce.CodeUncertain, Op: op, Err: err,
			Hint: "the disk did not confirm it: look at the system's log, and ask again",
		}
	}
	return nil
}

// makeFolder makes a folder, and those above it, so that they survive a crash of the
// machine. What is there is left as it is.
func makeFolder(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// open opens an entry's file and says its size.
func open(path string) (*os.File, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// read reads the entry of an intent. fs.ErrNotExist: there is none.
func (j *Journal) read(op, intent string) (onceclient.Entry, error) {
	path := j.path(intent)
	file, size, err := open(path)
	if err != nil {
		return onceclient.Entry{}, fail(op, err)
	}
	defer func() { _ = file.Close() }()
	e, err := decode(file, size)
	if err == nil {
		err = belongs(path, e.Intent)
	}
	if err != nil {
		return onceclient.Entry{}, damaged(op, path, err)
	}
	return e, nil
}

// readHead reads what the file of a path says without its bodies.
func readHead(op, path string) (head, error) {
	file, size, err := open(path)
	if err != nil {
		return head{}, fail(op, err)
	}
	defer func() { _ = file.Close() }()
	h, err := decodeHead(file, size)
	if err == nil {
		err = belongs(path, string(h.Intent))
	}
	if err != nil {
		return head{}, damaged(op, path, err)
	}
	return h, nil
}

// belongs refuses a copy under another name: it would be sent as well.
func belongs(path, intent string) error {
	if filepath.Base(path) != nameOf(intent) {
		return fmt.Errorf("it is the entry of %q under another name", intent)
	}
	return nil
}

// fail says what to do about an error of the system. Nothing has happened.
func fail(op string, err error) error {
	if errors.Is(err, onceclient.ErrLocked) {
		return fmt.Errorf("%s: %w", op, err)
	}
	return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Hint: hint(err), Err: err}
}

// damaged is what a file is that was changed by somebody else than a journal, or by a
// disk.
func damaged(op, path string, err error) error {
	return &onlyonce.Error{
		Code: onlyonce.CodeStoreUnavailable, Op: op, Err: err,
		Hint: path + " is no entry that can be sent: restore it from a backup, or find out at the server what became of the operation and move the file away",
	}
}
