package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// How long a server may take. Generous, since a slow machine is no failure.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 20 * time.Second
	pollInterval = 10 * time.Millisecond
)

// process is a running server program. One goroutine owns it: it starts the
// program, waits for its end and then closes done.
type process struct {
	cmd  *exec.Cmd
	log  string // path of the file that takes its output
	done chan struct{}
}

// startProcess runs cmd with its output in the file log.
//
// The kernel's parent death signal belongs to the thread that started the child,
// not to the process: were that thread to end, the child would be killed in the
// middle of a test. So the owning goroutine keeps its thread for as long as the
// child lives.
func startProcess(cmd *exec.Cmd, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", filepath.Base(cmd.Path), err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	dieWithUs(cmd)
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
		_ = out.Close() // the program wrote to it, not we
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// waitReady polls ready until it holds, the program ends or the time is over.
func (p *process) waitReady(ready func() bool) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-p.done:
			return p.fault("ended before it was ready")
		case <-deadline.C:
			return p.fault("not ready in " + startTimeout.String())
		}
	}
	return nil
}

// stop sends sig and waits for the end. A program that takes too long is killed.
func (p *process) stop(sig syscall.Signal) error {
	if p.ended() {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !p.ended() {
		return fmt.Errorf("signal %s: %w", p.name(), err)
	}
	deadline := time.NewTimer(stopTimeout)
	defer deadline.Stop()
	select {
	case <-p.done:
		return nil
	case <-deadline.C:
	}
	_ = p.cmd.Process.Kill() // the error below tells the caller all the same
	<-p.done
	return p.fault("did not stop in " + stopTimeout.String() + " and was killed")
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) name() string { return filepath.Base(p.cmd.Path) }

// fault is an error with the last lines of the program's own log, which is gone
// with its folder by the time a person looks for it.
func (p *process) fault(what string) error {
	return fmt.Errorf("%s %s; the end of its log:\n%s", p.name(), what, tail(p.log, 20))
}

// tail returns the last n lines of a file.
func tail(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
