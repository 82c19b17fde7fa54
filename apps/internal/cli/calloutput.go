package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// callOutput is where an answer goes: standard output, or a file that appears whole.
type callOutput struct {
	out  io.Writer
	name string // empty: out
}

// check finds out before anything is sent whether an answer could be written.
func (o callOutput) check() error {
	if o.name == "" {
		return nil
	}
	path, special, err := o.place()
	if err == nil && !special {
		var temp *os.File
		if temp, err = os.CreateTemp(filepath.Dir(path), ".onlyonce-*"); err == nil {
			err = errors.Join(temp.Close(), os.Remove(temp.Name()))
		}
	}
	if err != nil {
		return misuse(fmt.Sprintf("--output %s: %v", o.name, err), "name a file in a folder that can be written; nothing was sent")
	}
	return nil
}

// place is the file itself, behind links; special ones, such as /dev/null, are not
// replaced but written to.
func (o callOutput) place() (path string, special bool, err error) {
	path = o.name
	if behind, err := filepath.EvalSymlinks(path); err == nil {
		path = behind
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return path, false, nil
	case err != nil:
		return path, false, fmt.Errorf("look: %w", err)
	case info.IsDir():
		return path, false, errors.New("it is a folder")
	}
	return path, !info.Mode().IsRegular(), nil
}

// write has fill write the answer.
func (o callOutput) write(fill func(io.Writer) error) error {
	if o.name == "" {
		return fill(o.out)
	}
	path, special, err := o.place()
	if err != nil {
		return err
	}
	if special {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		return errors.Join(fill(file), file.Close())
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".onlyonce-*")
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err = errors.Join(fill(temp), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}
