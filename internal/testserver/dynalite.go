package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// dynaliteFolder is where package-lock.json pins dynalite, from the top of the
// repository.
const dynaliteFolder = "adapters/dynamostore/testdata/dynalite"

// Dynalite starts a private dynalite, an imitation of DynamoDB, for the tests of the
// binary and returns its endpoint, such as http://127.0.0.1:20001. All tests of a
// binary share it, and [Run] stops it; whoever makes a table gives it a name of its
// own. It keeps everything in memory. Without Node, or where dynalite is not
// installed, the test is skipped.
func Dynalite(tb testing.TB) string {
	tb.Helper()
	d, err := start(&shared, "dynalite", startDynalite)
	if err != nil {
		unavailable(tb, err)
	}
	return d.endpoint()
}

// dynalite is a running server.
type dynalite struct {
	folder *folder
	port   int
	proc   *process
}

// startDynalite starts the server on a free port.
func startDynalite() (*dynalite, error) {
	node, script, err := findDynalite()
	if err != nil {
		return nil, err
	}
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	d := &dynalite{folder: f}
	for range startTries {
		if err = d.start(node, script); err == nil {
			return d, nil
		}
	}
	return nil, errors.Join(err, f.remove())
}

// start runs the program as this process's user, who can read the repository, and
// waits until it listens.
func (d *dynalite) start(node, script string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	d.port = port
	cmd := exec.Command(node, script, "--host", "127.0.0.1", "--port", strconv.Itoa(port),
		"--createTableMs", "0", "--deleteTableMs", "0", "--updateTableMs", "0")
	cmd.Dir, cmd.Env = d.folder.path, cleanEnv()
	log := d.folder.join("dynalite-" + strconv.Itoa(port) + ".log")
	proc, err := startProcess(cmd, log)
	if err != nil {
		return err
	}
	if err := proc.waitReady(func() bool { return d.ready(log) }); err != nil {
		return errors.Join(err, proc.stop(syscall.SIGKILL))
	}
	d.proc = proc
	return nil
}

// ready tells whether this very process listens: its log says so, and somebody does.
func (d *dynalite) ready(log string) bool {
	text, err := os.ReadFile(log)
	if err != nil || !bytes.Contains(text, []byte("listening")) {
		return false
	}
	conn, err := net.Dial("tcp4", address(d.port))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func (d *dynalite) endpoint() string { return "http://" + address(d.port) }

func (d *dynalite) close() error {
	return errors.Join(d.proc.stop(syscall.SIGKILL), d.folder.remove())
}

// findDynalite returns Node and the program that it runs.
func findDynalite() (node, script string, err error) {
	if node, err = exec.LookPath("node"); err != nil {
		return "", "", &missingError{what: "node not found", hint: "install nodejs and npm, or run make servers"}
	}
	top, err := repository()
	if err != nil {
		return "", "", err
	}
	script, err = dynaliteIn(top)
	return node, script, err
}

// dynaliteIn is the program in a repository.
func dynaliteIn(top string) (string, error) {
	folder := filepath.Join(top, filepath.FromSlash(dynaliteFolder))
	script := filepath.Join(folder, "node_modules", "dynalite", "cli.js")
	if _, err := os.Stat(script); err != nil {
		return "", &missingError{what: "dynalite not found", hint: "run make servers, or npm ci --ignore-scripts in " + folder}
	}
	return script, nil
}

// repository is the top of the repository: the nearest folder above the test's that
// has a go.work.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for from := dir; ; {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", fmt.Errorf("find dynalite: no go.work above %s", from)
		}
		dir = above
	}
}
