package testserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

const (
	folderPrefix = "onlyonce-test-"
	lockName     = "in-use.lock"
)

// folder is the temporary folder of one server, locked while we live.
type folder struct {
	path    string
	account account
	lock    *os.File
}

// newFolder makes a folder that the servers' account can write to.
func newFolder() (*folder, error) {
	acc, err := serverAccount()
	if err != nil {
		return nil, err
	}
	removeAbandoned(os.TempDir())
	dir, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("make folder for a test server: %w", err)
	}
	f := &folder{path: dir, account: acc}
	if err := acc.own(dir); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	if f.lock, err = lockFolder(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.remove())
	}
	return f, nil
}

func (f *folder) join(name string) string { return filepath.Join(f.path, name) }

// remove deletes the folder and lets go of its lock.
func (f *folder) remove() error {
	err := os.RemoveAll(f.path)
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

// command prepares a program to run in the folder, as the servers' account. It
// inherits nothing but PATH: a PGHOST or PGOPTIONS of the caller's must not
// redirect a test.
func (f *folder) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = f.path
	cmd.Env = cleanEnv()
	f.account.apply(cmd)
	return cmd
}

func cleanEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}

// Ports are taken from below the ephemeral range (32768 and up on Linux). Were a
// port from that range free for a moment, as between Kill and Start, a client that
// dials it again and again can be given that very port as its own and connect to
// itself, and the server can no longer start.
const (
	portFirst = 15000
	portLast  = 32000
	portTries = 200
)

// freePort returns a port that nothing listens on at the moment.
func freePort() (int, error) {
	for range portTries {
		port := portFirst + rand.IntN(portLast-portFirst)
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", address(port))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("find a free port: %d ports between %d and %d were taken", portTries, portFirst, portLast)
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
