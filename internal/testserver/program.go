package testserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// postgresPrograms are needed from one installation: mixing the client of one
// with the server of another hides which version a test ran against.
var postgresPrograms = []string{"initdb", "postgres", "psql"}

// findPostgres returns the folder of an installation with server and client. The
// one in PATH wins; then the highest version in the packages' folders.
func findPostgres() (string, error) {
	return findPostgresIn(os.Getenv("PATH"), "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
}

func findPostgresIn(path string, patterns ...string) (string, error) {
	var packaged []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		packaged = append(packaged, found...)
	}
	dirs := filepath.SplitList(path)
	slices.SortFunc(packaged, func(a, b string) int { return majorVersion(b) - majorVersion(a) })
	for _, dir := range append(dirs, packaged...) {
		if bin, ok := installation(dir); ok {
			return bin, nil
		}
	}
	return "", &missingError{what: "postgres not found", hint: "install postgresql or set " + envPostgres}
}

// installation reports the real folder behind dir when it holds every program.
// Links are followed because distributions link single programs into PATH.
func installation(dir string) (string, bool) {
	if !filepath.IsAbs(dir) {
		return "", false
	}
	initdb, err := filepath.EvalSymlinks(filepath.Join(dir, postgresPrograms[0]))
	if err != nil {
		return "", false
	}
	bin := filepath.Dir(initdb)
	for _, name := range postgresPrograms {
		if _, err := exec.LookPath(filepath.Join(bin, name)); err != nil {
			return "", false
		}
	}
	return bin, true
}

// majorVersion reads 17 from /usr/lib/postgresql/17/bin and /usr/pgsql-17/bin.
func majorVersion(bin string) int {
	name := filepath.Base(filepath.Dir(bin))
	n, err := strconv.Atoi(strings.TrimPrefix(name, "pgsql-"))
	if err != nil {
		return 0
	}
	return n
}

// findPgBouncer returns the program's path. Its package installs it in /usr/sbin,
// which is not in every user's PATH.
func findPgBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &missingError{what: "pgbouncer not found", hint: "install pgbouncer"}
}
