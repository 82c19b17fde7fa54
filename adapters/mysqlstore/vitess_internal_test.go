package mysqlstore

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce"
)

// vitessSession is a session that is fit but for its transaction_mode.
func vitessSession(mode string) session {
	return session{database: "pay", mode: mode, vars: map[string]string{
		"autocommit": "1", "sql_mode": "STRICT_TRANS_TABLES", "transaction_isolation": "REPEATABLE-READ",
	}}
}

// O: a session that could commit on one of two shards only is refused, and Open's are
// not of that kind.
func TestTransactionMode(t *testing.T) {
	t.Parallel()
	for mode, fit := range map[string]bool{"": true, "SINGLE": true, "single": true, "MULTI": false, "TWOPC": false, "UNSPECIFIED": false} {
		err := vitessSession(mode).check()
		if fit != (err == nil) || (!fit && (onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "transaction_mode=SINGLE"))) {
			t.Errorf("%q: %v", mode, err)
		}
	}
	for mode, want := range map[string]string{"": "", "MULTI": "'SINGLE'"} {
		dc := mysql.NewConfig()
		sessionSettings(dc, Config{}, vitessSession(mode))
		if got := dc.Params["transaction_mode"]; got != want {
			t.Errorf("%q: Open asks for %q, want %q", mode, got, want)
		}
	}
	said := mysql.NewConfig()
	said.Params = map[string]string{"transaction_mode": "'MULTI'"}
	sessionSettings(said, Config{}, vitessSession("MULTI"))
	if got := said.Params["transaction_mode"]; got != "'MULTI'" {
		t.Errorf("the URL's own setting became %q", got) // and check refuses it
	}
}

// What two shards cannot keep is neither promised nor taken, and no transaction of the
// sweeper's has two rows.
func TestVitessPromises(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "SINGLE"} {
		s := &Store{at: vitessSession(mode)}
		shards := mode != ""
		if f := s.Features(); f.Resources == shards || !f.Transactions || (f.Name == "vitess") != shards {
			t.Errorf("%q: features: %+v", mode, f)
		}
		if err := s.refuse(onlyonce.ClaimRequest{Resource: "order_1"}); (onlyonce.CodeOf(err) == onlyonce.CodeConfig) != shards {
			t.Errorf("%q: a claim with a resource: %v", mode, err)
		}
		if err := s.refuse(onlyonce.ClaimRequest{}); err != nil {
			t.Errorf("%q: a claim without: %v", mode, err)
		}
		if b := (&batch{line: &line{s: s}}); (b.most() == 1) != shards {
			t.Errorf("%q: %d rows a transaction", mode, b.most())
		}
	}
}
