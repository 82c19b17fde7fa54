package pgstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// foreign makes keys that are due, of operations that the recoverer does not know,
// all longer than anything else.
const foreign = `UPDATE onlyonce_keys SET state = 4, doubt = true, status = NULL, completed_at = NULL, expires_at = NULL, header = NULL, body = NULL,
	operation = 'POST /foreign/' || origin % 3, keep = 'x', turn_at = 'epoch', due_at = 'epoch' WHERE origin <= 20000`

// X1: however many keys of other operations are due, and however long, a recoverer is
// given its own at once, and reads next to nothing of theirs.
func TestDueOfUnknownOperations(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	exec(t, pool, fill)
	exec(t, pool, foreign)
	req := keeping("mine")
	req.Lease = time.Microsecond
	want(t, s, req, onlyonce.Won)
	args := `NULL::timestamptz, 'store'::text, 0::bigint, 1100::bigint, ARRAY['POST /charges']::text[], 100::bigint, 1000000::float8, 10000000::float8`
	args = strings.Replace(args, "ARRAY['POST /charges']", `'{"POST /charges"}'`, 1)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec(t, pool, `ANALYZE onlyonce_keys`)
		}
		for _, name := range []string{"putOff", "giveTurns"} {
			p := explain(t, pool, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+literal(pgstore.SQLOf(s)[name], args))
			for _, m := range regexp.MustCompile(`rows=(\d+)|Filter: (\d+)|Seq Scan`).FindAllStringSubmatch(p, -1) {
				if n, _ := strconv.Atoi(m[1] + m[2]); m[0] == "Seq Scan" || n > 10 {
					t.Errorf("%s (analysed %v): %s for one key:\n%s", name, analyzed, m[0], p)
				}
			}
		}
		exec(t, pool, `UPDATE onlyonce_keys SET turn = NULL, turn_at = lease_end, due_at = lease_end WHERE key = 'mine'`)
	}
	mine := dueNow
	mine.Operations = []string{"POST /charges", "POST /nothing"}
	if due, err := s.Due(t.Context(), mine); err != nil || len(due) != 1 || due[0].Record.Key != req.Key {
		t.Errorf("due: %d, %v, want one", len(due), err)
	}
	// Asked for all, it is told of all operations, those longest due first.
	all := map[string]int{}
	for range 30 {
		due, err := s.Due(t.Context(), onlyonce.DueRequest{Limit: 1000, Pause: time.Hour, MaxPause: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range due {
			all[d.Record.Operation]++
		}
	}
	if len(all) != 3 || all["POST /foreign/0"]+all["POST /foreign/1"]+all["POST /foreign/2"] != 20000 {
		t.Errorf("given %v, want all of three operations", all)
	}
}

// That nothing live is in a partition is found without reading it, or the keys: it
// is looked for while nobody else can get at it.
func TestPlansOfMoving(t *testing.T) {
	t.Parallel()
	s, pool := partitioned(t)
	pool = admin(t, with(t, pool.Config().ConnString(), "enable_seqscan", "off")) // as who looks for it has set
	exec(t, pool, strings.ReplaceAll(fillBeside, "interval '1 day'", "interval '-1 day'"))
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec(t, pool, `ANALYZE onlyonce_keys, onlyonce_answers, onlyonce_requests`)
		}
		for name, args := range map[string]string{
			"moveAnswers": `1::smallint, NULL::timestamptz, 1000::bigint`, "moveRequests": `1::smallint, 1000::bigint`,
		} {
			p := explain(t, pool, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+literal(pgstore.SQLOf(s)[name], args))
			for line := range strings.Lines(p) {
				if m := regexp.MustCompile(`Scan.*\(actual rows=(\d+)`).FindStringSubmatch(line); m != nil {
					if n, _ := strconv.Atoi(m[1]); n > 1 || strings.Contains(line, "Seq Scan") {
						t.Errorf("%s (analysed %v) reads too much:\n%s", name, analyzed, p)
						break
					}
				}
			}
		}
	}
}

// A replay looks into one partition: the others are not read.
func TestReplayReadsOnePartition(t *testing.T) {
	t.Parallel()
	s, pool := partitioned(t)
	exec(t, pool, fillBeside)
	sql := pgstore.SQLOf(s)["readKey"]
	for n := range 5 {
		digest := one[string](t, pool, `SELECT digest::text FROM onlyonce_keys WHERE answer_slot = $1 LIMIT 1`, n)
		p := explain(t, pool, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+literal(sql, fmt.Sprintf(`'%s'::bytea, NULL::timestamptz`, digest)))
		for slot := range 5 {
			read := regexp.MustCompile(fmt.Sprintf(`onlyonce_answers_%d_pkey.*\(actual`, slot)).MatchString(p)
			if read != (slot == n) {
				t.Errorf("an answer of partition %d: partition %d was read: %v\n%s", n, slot, read, p)
			}
		}
	}
}
