package mysqlstore

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

const openStore = "open mysqlstore"

// syncWait has every statement wait until its Galera node has applied what was
// committed before anywhere: reads (1), updates and deletes (2), inserts (4). Without
// it an owner that comes through another node would be told that it lost its key.
const syncWait = "7"

// singleShard is the mode in which Vitess refuses a transaction that reaches a second
// shard. In any other it commits one shard after the other.
const singleShard = "SINGLE"

// session is what the server says of a session, and of itself. A variable that it
// does not have is absent.
type session struct {
	vars map[string]string
	// database is that of the session; empty: none.
	database string
	// mode is Vitess' transaction_mode; empty: it is not Vitess.
	mode string
}

// readSession asks for everything at once: SHOW VARIABLES leaves out what the server
// does not know, so that MySQL and MariaDB can be asked alike.
func readSession(ctx context.Context, db *sql.DB) (session, error) {
	conn, err := db.Conn(ctx)
	if refusesSettings(err) {
		return session{}, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: openStore, Hint: "the server refuses what the URL says of its sessions: look at the parameters that are none of the driver's", Err: err}
	}
	if err != nil {
		return session{}, classify(openStore, noConnection(ctx, err), undone)
	}
	defer func() { _ = conn.Close() }()
	at := session{vars: map[string]string{}}
	var database sql.NullString
	if err := conn.QueryRowContext(ctx, `SELECT DATABASE()`).Scan(&database); err != nil {
		return session{}, classify(openStore, err, undone)
	}
	at.database = database.String
	if err := conn.QueryRowContext(ctx, `SELECT @@transaction_mode`).Scan(&at.mode); err != nil && number(err) != numUnknownVar {
		return session{}, classify(openStore, err, undone)
	}
	rows, err := conn.QueryContext(ctx, `SHOW SESSION VARIABLES WHERE Variable_name IN (
		'sql_mode', 'autocommit', 'completion_type', 'tx_isolation', 'transaction_isolation', 'character_set_client', 'sql_select_limit', 'sql_log_bin',
		'wsrep_on', 'wsrep_provider', 'wsrep_sync_wait', 'pxc_strict_mode', 'group_replication_group_name', 'group_replication_single_primary_mode',
		'innodb_flush_log_at_trx_commit', 'innodb_rollback_on_timeout')`)
	if err != nil {
		return session{}, classify(openStore, err, undone)
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return session{}, classify(openStore, err, undone)
		}
		at.vars[strings.ToLower(name)] = value
	}
	return at, classify(openStore, rows.Err(), undone)
}

// galera tells whether the server is a node of a cluster.
func (at session) galera() bool { return on(at.vars["wsrep_on"]) }

// locks tells whether sessions may take locks by name. A Galera cluster has them on each
// node; one of Percona's may forbid them.
func (at session) locks() bool {
	mode := strings.ToUpper(at.vars["pxc_strict_mode"])
	return !at.galera() || (mode != "ENFORCING" && mode != "MASTER")
}

// undoes tells whether the error means that the server has itself undone all that a
// transaction had written.
func (at session) undoes(err error) bool {
	return rolledBack(err) || (lockTimeout(err) && on(at.vars["innodb_rollback_on_timeout"]))
}

// vitess tells whether the server is Vitess.
func (at session) vitess() bool { return at.mode != "" }

// durable tells whether a commit is on disk when it is confirmed.
func (at session) durable() bool { return at.vars["innodb_flush_log_at_trx_commit"] == "1" }

// isolationName is the variable of a session's isolation: MySQL has no other name
// than the one that old MariaDB does not know.
func (at session) isolationName() string {
	if _, ok := at.vars["transaction_isolation"]; ok {
		return "transaction_isolation"
	}
	return "tx_isolation"
}

// readCommitted tells whether transactions are READ COMMITTED by themselves.
func (at session) readCommitted() bool { return at.vars[at.isolationName()] == "READ-COMMITTED" }

func on(value string) bool { return strings.EqualFold(value, "ON") || value == "1" }

// allRows is how many rows a SELECT gives when nobody has set a limit.
const allRows = "18446744073709551615"

// is tells whether the variable has one of the values, or is not there.
func (at session) is(name string, values ...string) bool {
	value, there := at.vars[name]
	return !there || slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, value) })
}

func refuse(hint string) error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: openStore, Hint: hint}
}

// check refuses sessions in which a write may do something else than it says.
func (at session) check() error {
	if err := at.checkServer(); err != nil {
		return err
	}
	modes := map[string]bool{}
	for mode := range strings.SplitSeq(at.vars["sql_mode"], ",") {
		modes[mode] = true
	}
	switch {
	case !on(at.vars["autocommit"]):
		return refuse("sessions have autocommit off, so that nothing would be committed: remove autocommit=0 from the URL, init_connect or the server's settings")
	case !modes["STRICT_TRANS_TABLES"] && !modes["STRICT_ALL_TABLES"]:
		return refuse("sessions are not in strict mode, so that values could be cut off without an error: add STRICT_TRANS_TABLES to the server's sql_mode, or ?sql_mode='TRADITIONAL' to the URL")
	case modes["EMPTY_STRING_IS_NULL"]:
		return refuse("sessions take empty strings for NULL: remove EMPTY_STRING_IS_NULL from sql_mode")
	case !at.is("completion_type", "NO_CHAIN", "0"):
		return refuse("sessions begin another transaction behind every COMMIT, so that what is written next would not be committed: remove completion_type from the URL, init_connect or the server's settings")
	case at.is(at.isolationName(), "READ-UNCOMMITTED") && at.vars[at.isolationName()] != "":
		return refuse("sessions are READ UNCOMMITTED and would replay answers that are never committed: set " + at.isolationName() + " to READ-COMMITTED, in the URL or the server's settings")
	case !at.is("character_set_client", "utf8mb4", "utf8", "utf8mb3", "latin1", "ascii", "binary"):
		return refuse("in the sessions' character set " + at.vars["character_set_client"] + " the second byte of a letter may be a quote: use utf8mb4, and look at charset in the URL and at init_connect")
	case !at.vitess() && !at.is("sql_select_limit", allRows):
		return refuse("sessions cut off what they read behind sql_select_limit=" + at.vars["sql_select_limit"] + " rows: remove it from the URL, init_connect or the server's settings")
	case !at.is("sql_log_bin", "ON", "1"):
		return refuse("sessions write nothing to the binary log, so that replicas would miss it: remove sql_log_bin=0 from the URL or init_connect")
	case at.vitess() && !strings.EqualFold(at.mode, singleShard):
		return refuse("sessions of Vitess need transaction_mode=" + singleShard + ", or a transaction that reaches two shards could be committed on one of them only: add it to the URL, or to vtgate's flags")
	case at.galera() && at.vars["wsrep_sync_wait"] != syncWait:
		return refuse("sessions of a Galera cluster need wsrep_sync_wait=" + syncWait + ", or a node would answer with what it has not applied yet: add it to the URL, or to the server's settings")
	}
	return nil
}

// checkServer refuses servers whose promises are not known to be kept.
func (at session) checkServer() error {
	switch {
	case at.database == "":
		return refuse("the connection is to no database: name one")
	case !at.galera() && !at.is("wsrep_provider", "", "none"):
		return refuse("the server has a Galera provider (wsrep_provider), and the session is out of the cluster: remove wsrep_on=OFF from the URL or the settings, or wsrep_provider from those of a server of its own")
	case at.vars["group_replication_group_name"] != "" && !at.is("group_replication_single_primary_mode", "ON", "1"):
		return refuse("a group with several primaries has several clocks and no common locks, by which leases cannot be judged: switch it to single-primary mode (group_replication_switch_to_single_primary_mode) and connect to the primary")
	}
	return nil
}
