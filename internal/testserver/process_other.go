//go:build !linux

package testserver

import (
	"os"
	"os/exec"
	"path/filepath"
)

// account is the user that servers run as. Elsewhere than on Linux that is always
// the user who runs the tests, and a killed test binary leaves its servers behind.
type account struct{}

func serverAccount() (account, error) { return account{}, nil }

func (account) own(string) error { return nil }

func (account) apply(*exec.Cmd) {}

func dieWithUs(*exec.Cmd) {}

func lockFolder(dir string) (*os.File, error) {
	return os.Create(filepath.Join(dir, lockName))
}

func removeAbandoned(string) {}
