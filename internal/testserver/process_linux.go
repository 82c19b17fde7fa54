package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that servers run as; the zero value is "as we are".
type account struct {
	uid, gid uint32
	switched bool
}

// serverAccount finds the user postgres when we are root, because PostgreSQL and
// PgBouncer refuse to run as root.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return account{}, fmt.Errorf("find user postgres, which servers run as under root: %w; "+
			"install postgresql, add the user, or run the tests as another user", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("read uid of user postgres: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("read gid of user postgres: %w", err)
	}
	return account{uint32(uid), uint32(gid), true}, nil
}

// own gives path to the account.
func (a account) own(path string) error {
	if !a.switched {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// apply makes cmd run as the account.
func (a account) apply(cmd *exec.Cmd) {
	if a.switched {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid},
		}
	}
}

// dieWithUs has the kernel kill cmd when the thread that starts it ends.
func dieWithUs(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// lockFolder marks dir as in use until the file is closed or we end. The file gets
// its name only when it is locked, so that nobody ever sees it without its holder.
func lockFolder(dir string) (*os.File, error) {
	name := filepath.Join(dir, lockName)
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(flock(f), os.Rename(name+".new", name)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func flock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// removeAbandoned removes the folders of test binaries that were killed: those
// whose lock nobody holds. It does what it can and says nothing of the rest: a
// folder of another user's, or one whose server is just dying, is no reason for a
// test of ours to fail, and the next run tries again.
func removeAbandoned(parent string) {
	locks, err := filepath.Glob(filepath.Join(parent, folderPrefix+"*", lockName))
	if err != nil {
		return
	}
	for _, name := range locks {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if flock(f) == nil {
			_ = os.RemoveAll(filepath.Dir(name))
		}
		_ = f.Close()
	}
}
