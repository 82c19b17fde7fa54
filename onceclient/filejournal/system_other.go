//go:build !unix || aix || (solaris && !illumos)

package filejournal

import (
	"os"
	"runtime"

	"github.com/onlyonce-go/onlyonce"
)

// supported: a lock that outlives a killed process would keep its operation from
// being resumed, so there is no journal rather than one with such locks.
func supported() error {
	return &onlyonce.Error{
		Code: onlyonce.CodeConfig, Op: opOpen,
		Hint: "the journal of files needs flock, which " + runtime.GOOS + " does not have: use the journal in a database (sqljournal with SQLite)",
	}
}

func flock(*os.File) error { return supported() }

func hint(error) string { return "" }
