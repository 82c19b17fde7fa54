package testserver

import (
	"net/url"
	"strings"
	"testing"
)

func TestPair(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	mustQuery(t, p.Primary.DSN(), "CREATE TABLE money (amount numeric)")
	mustQuery(t, p.Primary.DSN(), "INSERT INTO money VALUES (1)")
	const count = "SELECT count(*) FROM money"
	if got := mustQuery(t, p.Standby.DSN(), count); got != "1" {
		t.Errorf("rows on the standby: %s; a commit must have waited for it", got)
	}
	if got := mustQuery(t, p.Standby.DSN(), "SELECT pg_is_in_recovery()"); got != "t" {
		t.Errorf("the standby takes writes: %s", got)
	}
	u, err := url.Parse(p.DSN())
	if err != nil || strings.Count(u.Host, ",") != 1 {
		t.Fatalf("URL of both: %v, %v", u, err)
	}
	if err := p.Primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustQuery(t, p.Standby.DSN(), "INSERT INTO money VALUES (2)")
	if got := mustQuery(t, p.Standby.DSN(), count); got != "2" {
		t.Errorf("rows after the promotion: %s, want both", got)
	}
}
