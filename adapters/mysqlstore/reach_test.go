package mysqlstore_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// as is the URL with another user and password.
func as(t *testing.T, dsn, user, password string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// C11: a server that is there and lets nobody in is not out of reach, and a password
// that is no longer right is no outage: a bad setting must not switch the protection off.
func TestServerLetsNobodyIn(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	db := admin(t, dsn)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	database := u.Path[1:]
	app, stranger := "app_"+database[max(0, len(database)-20):], "none_"+database[max(0, len(database)-20):]
	for _, name := range []string{app, stranger} {
		exec(t, db, fmt.Sprintf("CREATE USER `%s`@`%%` IDENTIFIED BY 'first'", name))
		defer exec(t, db, fmt.Sprintf("DROP USER `%s`@`%%`", name))
	}
	exec(t, db, fmt.Sprintf("GRANT ALL ON `%s`.* TO `%s`@`%%`", database, app))
	s := open(t, as(t, dsn, app, "first"), mysqlstore.Config{})
	want(t, s, request("before"), onlyonce.Won)
	exec(t, db, fmt.Sprintf("ALTER USER `%s`@`%%` IDENTIFIED BY 'second'", app))
	s.DB().SetMaxIdleConns(0) // the next claim needs a new connection
	if _, err := s.Claim(t.Context(), request("after")); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || !strings.Contains(err.Error(), "password") {
		t.Errorf("claim with an old password: %v, want unavailable", err)
	}

	nothing := strings.Replace(dsn, "/"+database, "/none_of_this_name", 1)
	for name, dsn := range map[string]string{
		"wrong password":  as(t, dsn, app, "first"),
		"no such user":    as(t, dsn, "nobody_of_this_name", "x"),
		"no database":     nothing,
		"not its own":     as(t, dsn, stranger, "first"),
		"no TLS to trust": with(t, dsn, "tls", "true"),
	} {
		s, err := mysqlstore.Open(t.Context(), dsn, mysqlstore.Config{})
		if err == nil {
			s.Close()
		}
		if err == nil || errors.Is(err, onlyonce.ErrUnreachable) {
			t.Errorf("%s: %v, want another error than unreachable", name, err)
		}
	}
}
