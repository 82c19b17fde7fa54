package mysqlstore

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/local"
	"github.com/onlyonce-go/onlyonce/adapters/internal/watch"
)

// fitSession is a session of MySQL's that is fit, but for what is said.
func fitSession(changed map[string]string) session {
	vars := map[string]string{
		"autocommit": "ON", "sql_mode": "STRICT_TRANS_TABLES", "transaction_isolation": "READ-COMMITTED", "completion_type": "NO_CHAIN",
		"character_set_client": "utf8mb4", "sql_select_limit": "18446744073709551615", "sql_log_bin": "ON",
	}
	maps.Copy(vars, changed)
	return session{database: "pay", vars: vars}
}

// C4: servers whose promises are not those of one server are told by their variables.
func TestServersThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		vars map[string]string
		fit  bool
	}{
		"plain":              {nil, true},
		"single primary":     {map[string]string{"group_replication_group_name": "g", "group_replication_single_primary_mode": "ON"}, true},
		"several primaries":  {map[string]string{"group_replication_group_name": "g", "group_replication_single_primary_mode": "OFF"}, false},
		"plugin without use": {map[string]string{"group_replication_group_name": "", "group_replication_single_primary_mode": "OFF"}, true},
		"galera":             {map[string]string{"wsrep_provider": "/galera.so", "wsrep_on": "ON", "wsrep_sync_wait": "7"}, true},
		"out of the cluster": {map[string]string{"wsrep_provider": "/galera.so", "wsrep_on": "OFF", "wsrep_sync_wait": "7"}, false},
		"no provider":        {map[string]string{"wsrep_provider": "none", "wsrep_on": "OFF"}, true},
		"binary":             {map[string]string{"character_set_client": "binary"}, true},
		"gb18030":            {map[string]string{"character_set_client": "gb18030"}, false},
	} {
		if err := fitSession(tt.vars).check(); tt.fit != (err == nil) || (err != nil && onlyonce.CodeOf(err) != onlyonce.CodeConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Percona's strict mode forbids locks by name.
func TestLocksOfNodes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]bool{"": true, "PERMISSIVE": true, "ENFORCING": false, "MASTER": false} {
		if got := fitSession(map[string]string{"wsrep_on": "ON", "pxc_strict_mode": mode}).locks(); got != want {
			t.Errorf("%q: %v", mode, got)
		}
	}
}

// waits is a contender whose writes time out.
type waits struct{ at found }

func (w waits) read(context.Context, onlyonce.Key, string) (found, error) { return w.at, nil }

func (w waits) write(context.Context, *claiming) (bool, error) {
	return false, classify("claim key", &mysql.MySQLError{Number: numLockTimeout}, committing)
}

// C2: a claim that timed out in a Galera cluster has perhaps waited for its node alone:
// it is busy when somebody has the key, and not otherwise.
func TestTimeoutIsNotAnOwner(t *testing.T) {
	t.Parallel()
	s := &Store{at: fitSession(map[string]string{"wsrep_on": "ON"}), watch: watch.New(nil, 0), seen: local.NewSeen()}
	req := onlyonce.ClaimRequest{Key: onlyonce.Key{Scope: "s", Value: "k"}, Attempt: onlyonce.NewToken(), Lease: time.Minute, Retention: time.Hour}
	if c, err := s.contend(t.Context(), req, waits{found{free: true}}); !errors.Is(err, onlyonce.ErrConflict) {
		t.Errorf("nobody's key: %v, %v", c.Verdict, err)
	}
	row := &keyRow{Record: onlyonce.Record{Key: req.Key, State: onlyonce.InProgress, Fence: 1, Attempt: onlyonce.NewToken()}, digest: req.Key.Digest(), lease: time.Minute}
	if c, err := s.contend(t.Context(), req, waits{found{free: true, key: row}}); err != nil || c.Verdict != onlyonce.Busy {
		t.Errorf("somebody's key: %v, %v", c.Verdict, err)
	}
}

// What leaves a session as it is, by its first word.
func TestLeavesSession(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]bool{
		insertFree: true, completeKey: true, setGuard: true, testGuard: true, selectKey: true, "select 1": true, "SELECT": true, "WITH a AS (SELECT 1) SELECT 1": true,
		"": false, "START TRANSACTION": false, "begin": false, "SET a = 1": false, "COMMIT": false, "CALL p()": false, "SELECTED": false,
		"/*! SET autocommit = 0 */": false, "-- SELECT\nSET a = 1": false, "XA START 'x'": false, "LOCK TABLES t READ": false,
	} {
		if got := leavesSession(query); got != want {
			t.Errorf("%q: %v", query, got)
		}
	}
}
