package testserver

import (
	"errors"
	"os"
	"testing"
)

// Names of the environment variables that the package reads.
const (
	envPostgres = "ONLYONCE_TEST_POSTGRES"
	envRequire  = "ONLYONCE_TEST_REQUIRE"
	envFsync    = "ONLYONCE_TEST_FSYNC"
)

// missingError says that a server is not installed. It skips a test; every other
// error fails it, so that a server that is there but broken is never overlooked.
type missingError struct {
	what string // the program or version that was looked for
	hint string // what to do about it
	old  bool   // it is there, but too old for this test
}

func (e *missingError) Error() string { return e.what + ": " + e.hint }

// unavailable ends the test. A server that is missing skips it, unless
// ONLYONCE_TEST_REQUIRE asks for all of them. One that is too old always skips it,
// since the packages of a system come in one version. Anything else fails it.
func unavailable(tb testing.TB, err error) {
	tb.Helper()
	m, ok := errors.AsType[*missingError](err)
	if ok && (m.old || os.Getenv(envRequire) != "1") {
		tb.Skip(m.Error())
	}
	tb.Fatal(err)
}
