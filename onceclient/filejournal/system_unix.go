//go:build unix && !aix && (!solaris || illumos)

package filejournal

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

// supported: the system has locks that end with their process.
func supported() error { return nil }

// flock takes the file's lock without waiting. It belongs to this opening of the
// file, so that two goroutines of a process exclude each other as well.
func flock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK):
			return onceclient.ErrLocked
		case errors.Is(err, syscall.EINTR):
			continue
		default:
			return err
		}
	}
}

// hint says what to do about an error of the system, for people.
func hint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return "there is no room for it: make some, and ask again"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return "give this process the right to write in the folder of the journal, on a file system that has hard links"
	case errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.EOPNOTSUPP):
		return "the file system has no hard links or no locks: put the journal on another one"
	case errors.Is(err, syscall.EIO):
		return "the disk failed: look at the system's log"
	default:
		return ""
	}
}
