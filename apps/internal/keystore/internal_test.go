package keystore

import (
	"testing"
	"testing/fstest"
)

// A whole round of a table sees every page, wherever it begins.
func TestRounds(t *testing.T) {
	t.Parallel()
	for pages, want := range map[int64]int{0: 1, 1: 1, sweepPages: 1, sweepPages + 1: 3, 2 * sweepPages: 3, 10 * sweepPages: 11} {
		if got := rounds(pages); got != want {
			t.Errorf("%d pages take %d sweeps, want %d", pages, got, want)
		}
	}
}

// Migrations count from 1 without a gap.
func TestUps(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]fstest.MapFS{
		"gap":       {"0001_a.up.sql": {}, "0003_b.up.sql": {}},
		"no number": {"first.up.sql": {}},
		"twice":     {"0001_a.up.sql": {}, "0001_b.up.sql": {}},
	} {
		if list, err := ups(files); err == nil {
			t.Errorf("%s: %+v", name, list)
		}
	}
	list, err := ups(fstest.MapFS{"0001_a.up.sql": {}, "0001_a.down.sql": {}, "0002_b_c.up.sql": {}})
	if err != nil || len(list) != 2 || list[1] != (up{2, "b_c", "0002_b_c.up.sql"}) {
		t.Errorf("%+v, %v", list, err)
	}
}

// Every kind has a URL to be written by, and no scheme is of two.
func TestKinds(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range kinds() {
		if len(k.schemes) == 0 || Scheme(k.form) != k.schemes[0] || k.backend == nil {
			t.Errorf("%+v", k)
		}
		for _, s := range k.schemes {
			if seen[s] {
				t.Errorf("%s is of two kinds", s)
			}
			seen[s] = true
		}
	}
}
