package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// estimateJSON reads what estimate says.
func estimateJSON(t *testing.T, args ...string) (v estimateView, errs string) {
	t.Helper()
	out, errs, code := run(t, append([]string{"estimate", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitDone {
		t.Fatalf("%d %s, %v", code, errs, err)
	}
	return v, errs
}

// Two million a day for a week at a kilobyte each are 14 million rows and 14 GB,
// before overhead.
func TestEstimate(t *testing.T) {
	t.Parallel()
	out, errs, code := run(t, "estimate", "--per-day", "2000000", "--retention", "7d", "--row", "1KB")
	want := `2,000,000 a day, kept for 7d: 14,000,000 rows
14,000,000 rows of 1 KB: 14 GB before overhead

STORE     FIGURES  A ROW    INDEXED  ALL ROWS  INDEXES  TOTAL
postgres  typical  2.73 KB  50 B     38.2 GB   700 MB   38.9 GB
sqlite    typical  1.77 KB  45 B     24.9 GB   630 MB   25.5 GB
mysql     typical  2.44 KB  40 B     34.1 GB   560 MB   34.6 GB
`
	if out != want || errs != "" || code != exitDone {
		t.Errorf("%d %s\n%s", code, errs, out)
	}
	v, _ := estimateJSON(t, "--per-day", "2_000_000", "--retention", "7d", "--row", "1KB")
	if v.Rows != 14_000_000 || v.AnswerBytes != 14_000_000_000 || v.RetentionSeconds != 7*86400 || v.PerDay != 2e6 || v.RowBytes != 1000 {
		t.Errorf("%+v", v)
	}
	for _, s := range v.Stores {
		if s.Total != s.Table+s.Index || s.Table != s.TablePerKey*14e6 || s.Total < 14e9 || s.Figures != fromUs {
			t.Errorf("%+v", s)
		}
	}
}

// The arithmetic, at its edges.
func TestEstimateLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		perDay    count
		retention time.Duration
		row       byteSize
		want      load
	}{
		{1, day, 1, load{1, 1}},
		{1, time.Second, 1, load{1, 1}},      // a part of a row is a row
		{86_401, time.Second, 1, load{2, 2}}, // and so is a bit more than one
		{86_400, time.Second, 10, load{1, 10}},
		{100, 36 * time.Hour, 1000, load{150, 150_000}},
		{maxPerDay, maxRetention, 1, load{36_500_000_000_000_000, 36_500_000_000_000_000}},
		{9_223_372_036, day, maxRow, load{9_223_372_036, 9_223_372_036_000_000_000}},
	} {
		got, err := (&estimateCmd{PerDay: c.perDay, Retention: span(c.retention), Row: c.row}).load()
		if err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
	for _, c := range []estimateCmd{
		{PerDay: 9_223_372_037, Retention: span(day), Row: maxRow},
		{PerDay: maxPerDay, Retention: span(maxRetention), Row: maxRow},
	} {
		if got, err := c.load(); err == nil {
			t.Errorf("%d × %d × %d: %+v", c.PerDay, c.Retention, c.Row, got)
		}
	}
}

// What is nonsense, or cannot be counted, is refused with a message.
func TestEstimateRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flags, want string }{
		{"", "--per-day"},
		{"--per-day 0", "--per-day must be between"},
		{"--per-day=-1", "--per-day must be between"},
		{"--per-day 2M", "not a number"},
		{"--per-day 9223372036854775808", "not a number"},
		{"--per-day 1000000000001", "--per-day must be between"},
		{"--per-day 1 --retention 0d", "--retention must be between 1s and 36500d"},
		{"--per-day 1 --retention 36501d", "--retention must be between"},
		{"--per-day 1 --retention 99999999999d", "not a duration"},
		{"--per-day 1 --retention week", "not a duration"},
		{"--per-day 1 --row 0", "--row must be between"},
		{"--per-day 1 --row=-1KB", "--row must be between"},
		{"--per-day 1 --row 2GB", "--row must be between"},
		{"--per-day 1 --row 1kb", "not a size"},
		{"--per-day 1 --row 0.5", "not a whole number of bytes"},
		{"--per-day 1000000000000 --retention 36500d --row 1GB", "more bytes than can be counted"},
		{"--per-day 1 --sample", "--store"},
		{"--per-day 1 --latency", "--store"},
		{"--per-day 1 --store sqlite:x.db --sample --keys 99", "--keys must be between 100"},
		{"--per-day 1 --store sqlite:x.db --sample --keys 1000001", "--keys must be between 100"},
		{"--per-day 1 --store sqlite:none.db", "there is no file none.db"},
		{"--per-day 1 --store oracle:x", "no kind of store"},
		{"--per-day 1 --store memory: --sample", "cannot be measured with a sample"},
	} {
		out, errs, code := run(t, append([]string{"estimate"}, strings.Fields(c.flags)...)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %d %s %s", c.flags, code, out, errs)
		}
	}
}

// What we say is typical is what a sample gives on the real thing; a sample leaves
// nothing behind, and says before it writes that it does.
func TestEstimateSample(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, url string) {
		t.Helper()
		for _, row := range []string{"1KB", "6KB"} {
			v, errs := estimateJSON(t, "--per-day", "1000", "--row", row, "--store", url, "--sample", "--keys", "200")
			if !strings.Contains(errs, "writing 300 keys") || len(v.Stores) != 1 {
				t.Fatalf("%+v, %s", v, errs)
			}
			got := v.Stores[0]
			for _, want := range typical(v.RowBytes) {
				if want.kind != got.Kind {
					continue
				}
				// Less where a vacuum came in between and made room in the pages.
				if ratio := got.TablePerKey / want.table; ratio > 1.3 || ratio < 0.4 || got.IndexPerKey < 16 || got.IndexPerKey > 150 {
					t.Errorf("%s: measured %+v, typical %+v", row, got, want)
				}
			}
			if got.Figures != fromSample || got.Measured != 200 {
				t.Errorf("%+v", got)
			}
		}
		if n := left(t, url); n != 0 {
			t.Errorf("%d keys are left in the store itself", n)
		}
	})
}

// With keys enough the store's own tables tell, and nothing is written; with too few
// that is said, and the typical figures of its kind stand.
func TestEstimateLive(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, url string) {
		t.Helper()
		answered(t, url, "k", 10, time.Hour)
		v, _ := estimateJSON(t, "--per-day", "1000", "--store", url)
		if len(v.Stores) != 1 || v.Stores[0].Figures != fromUs || v.Stores[0].Kind != keystore.Scheme(url) || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "10 keys, too few") {
			t.Errorf("few keys: %+v", v)
		}
		answered(t, url, "more", liveKeys-10, time.Hour)
		v, errs := estimateJSON(t, "--per-day", "1000", "--store", url)
		if len(v.Stores) != 1 || errs != "" {
			t.Fatalf("%+v, %s", v, errs)
		}
		if s := v.Stores[0]; s.Figures != fromTables || s.Measured != liveKeys || s.TablePerKey < 500 || s.TablePerKey > 5000 || s.IndexPerKey < 16 {
			t.Errorf("many keys: %+v", s)
		}
		if n := left(t, url); n != liveKeys {
			t.Errorf("%d keys are there now", n)
		}
	})
}

// MySQL cannot be sampled; what we say is typical is what its own tables tell.
func TestEstimateMySQL(t *testing.T) {
	t.Parallel()
	url := testserver.MySQL(t)
	if err := keystore.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	answered(t, url, "k", 10, time.Hour)
	v, _ := estimateJSON(t, "--per-day", "1000", "--row", "500", "--store", url)
	if len(v.Stores) != 1 || v.Stores[0].Figures != fromUs || v.Stores[0].Kind != "mysql" || !strings.HasSuffix(v.Notes[0], "too few to tell what one takes: the typical figures stand") {
		t.Fatalf("few keys: %+v", v)
	}
	want := v.Stores[0]
	answered(t, url, "more", liveKeys-10, time.Hour)
	mysqlExec(t, url, "ANALYZE TABLE onlyonce_keys") // the server counts now and then
	v, _ = estimateJSON(t, "--per-day", "1000", "--store", url)
	got := v.Stores[0]
	// Room is taken in pieces of a megabyte.
	if ratio := got.TablePerKey / want.TablePerKey; got.Figures != fromTables || got.Measured != liveKeys || ratio > 2 || ratio < 0.6 {
		t.Errorf("measured %+v, typical %+v", got, want)
	}
}

// A kind without figures says so.
func TestEstimateWithoutFigures(t *testing.T) {
	t.Parallel()
	v, _ := estimateJSON(t, "--per-day", "1000", "--store", testserver.Redis(t))
	if len(v.Stores) != 0 || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "redis cannot tell how large it is, and we have no typical figures for it") {
		t.Errorf("%+v", v)
	}
}

// Latency is measured on the store itself, with keys that go again; nobody else's
// attempt is decided by the way.
func TestEstimateLatency(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, url string) {
		t.Helper()
		abandoned := claimOf("abandoned", time.Microsecond, time.Hour)
		abandoned.Abandon = onlyonce.AbandonRerun
		onStore(t, url, func(s *keystore.Store) {
			if _, err := s.Claim(t.Context(), abandoned); err != nil {
				t.Fatal(err)
			}
		})
		out, errs, code := run(t, "estimate", "--per-day", "1000", "--store", url, "--latency", "--keys", "100")
		if code != exitDone || !strings.Contains(errs, "under the scope onlyonce.estimate; they expire 1s after") || !strings.Contains(out, "measured with 100 keys") {
			t.Errorf("%d %s %s", code, out, errs)
		}
		for _, call := range []string{"\nclaim ", "\ncomplete ", "\nreplay "} {
			if !strings.Contains(out, call) {
				t.Errorf("%q is missing: %s", call, out)
			}
		}
		onStore(t, url, func(s *keystore.Store) {
			rec, found, err := s.Get(t.Context(), abandoned.Key)
			if err != nil || !found || rec.State != onlyonce.InProgress {
				t.Errorf("somebody's attempt is %s, %v", rec.State, err)
			}
		})
		if n := left(t, url); n != 1 {
			t.Errorf("%d keys are left, want the one that was there", n)
		}
	})
}

// A store in memory has times, and no size.
func TestEstimateMemory(t *testing.T) {
	t.Parallel()
	v, _ := estimateJSON(t, "--per-day", "1000", "--store", "memory:", "--latency", "--keys", "100")
	if v.LatencyKeys != 100 || len(v.Latency) != 3 || v.Latency["claim"].P99 < v.Latency["claim"].P50 || v.Latency["claim"].P50 <= 0 {
		t.Errorf("%+v", v)
	}
	if len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "memory cannot tell") || len(v.Stores) != 0 {
		t.Errorf("%+v", v)
	}
	out, errs, code := run(t, "estimate", "--per-day", "1000", "--store", "memory:")
	if code != exitDone || errs != "" || strings.Contains(out, "STORE") || !strings.Contains(out, "\nnote: ") {
		t.Errorf("%d %s %s", code, errs, out)
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	times := func(n int) (all []time.Duration) {
		for i := n; i > 0; i-- {
			all = append(all, time.Duration(i))
		}
		return all
	}
	for n, want := range map[int]quantiles{0: {}, 1: {1, 1}, 2: {1, 2}, 100: {50, 99}, 1000: {500, 990}} {
		if got := quantilesOf(times(n)); got != want {
			t.Errorf("%d times: %+v, want %+v", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", 999: "999ns", 1234567: "1.23ms", 12345678: "12.3ms", 987654321: "988ms", 1234567890: "1.23s"} {
		if got := short(d); got != want {
			t.Errorf("%d is written %s, want %s", d, got, want)
		}
	}
}
