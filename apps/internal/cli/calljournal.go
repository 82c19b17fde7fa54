package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/onlyonce-go/onlyonce/adapters/sqljournal"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/filejournal"
)

// journalLease is for how long a journal in SQLite keeps an operation for a process that
// was killed. One that only slept longer finds out, and what it sends has the same key.
const journalLease = 5 * time.Second

// openJournal opens the journal that a flag names; shut lets go of it. What was
// confirmed is on disk before, so that nothing is lost when shut fails.
func openJournal(ctx context.Context, name string) (j onceclient.Journal, shut func(), err error) {
	if name == "" {
		if name, err = defaultJournal(); err != nil {
			return nil, nil, err
		}
	}
	if path, ok := strings.CutPrefix(name, "sqlite:"); ok {
		j, shut, err = openSQLiteJournal(ctx, path)
	} else if scheme, _, found := strings.Cut(name, ":"); found && scheme != "" && !strings.ContainsAny(scheme, `/\`) {
		return nil, nil, misuse("--journal "+name+" is neither a folder nor sqlite:PATH", "if it is a folder, write ./"+name)
	} else if j, err = filejournal.Open(name); err == nil {
		shut = func() {}
	}
	if err != nil {
		return nil, nil, journalError(name, err)
	}
	return j, shut, nil
}

// openSQLiteJournal opens one in a file, which is made if it is not there, for its
// owner alone.
func openSQLiteJournal(ctx context.Context, path string) (onceclient.Journal, func(), error) {
	if path == "" || strings.HasPrefix(path, ":memory:") {
		return nil, nil, errors.New("sqlite:PATH names a file")
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, nil, fmt.Errorf("close: %w", err)
	}
	name := url.URL{Scheme: "file", Path: filepath.ToSlash(absolute(path)), RawQuery: url.Values{
		"_busy_timeout": {"5000"}, "_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_dqs": {"0"}, "_error_rc": {"1"},
	}.Encode()}
	connector, err := sqlite.NewConnector(name.String())
	if err != nil {
		return nil, nil, fmt.Errorf("open: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	j, err := sqljournal.New(ctx, db, sqljournal.Config{Dialect: sqljournal.SQLite, Lease: journalLease})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return j, func() { _ = db.Close() }, nil
}

func journalError(name string, err error) error {
	return misuse(fmt.Sprintf("open the journal %s: %v", name, err), "nothing is sent without a journal; mend it, or name another one with --journal, which knows nothing of what this one has begun")
}

// defaultJournal is in the user's own folder for state.
func defaultJournal() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // what is relative is to be ignored
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return "", misuse("there is no home folder for the journal", "name one with --journal FOLDER")
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "onlyonce", "journal"), nil
}

// absolute is a name that means the same in every folder.
func absolute(name string) string {
	prefix := ""
	if path, ok := strings.CutPrefix(name, "sqlite:"); ok {
		prefix, name = "sqlite:", path
	}
	if name == "" {
		return prefix
	}
	if path, err := filepath.Abs(name); err == nil {
		name = path
	}
	return prefix + name
}

// transport makes the connections of a run.
func (c *callCmd) transport() (*http.Transport, error) {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second}
	t.DisableCompression = true // the answer is printed as it came
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CACert != "" {
		pem, err := readFile(c.CACert)
		if err != nil {
			return nil, misuse("--cacert: "+pathless(err), "name a file that can be read")
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, misuse("--cacert "+c.CACert+" has no certificate in it", "it must be in PEM: -----BEGIN CERTIFICATE-----")
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Cert)
		if err != nil {
			return nil, misuse(fmt.Sprintf("--cert %s: %s", c.Cert, pathless(err)), "it must have a certificate and its key, both in PEM, without a password")
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// pathless is why a file could not be read, without its name.
func pathless(err error) string {
	if pathError, ok := errors.AsType[*os.PathError](err); ok {
		err = pathError.Err
	}
	return err.Error()
}
