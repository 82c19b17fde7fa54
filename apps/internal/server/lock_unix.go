//go:build unix

package server

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockJournal keeps two processes from writing one journal. The lock ends with
// the process, whatever ends that.
func lockJournal(path string) (unlock func() error, err error) {
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock journal: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = &Error{
			Field: "--processor-journal", Text: path + " is used by another process",
			Hint: "one process at a time runs the simulated processor: give its address to the others with --processor URL",
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file.Close, nil
}
