package onlyonce

import (
	"fmt"
	"testing"
)

// O2, O3, O4, O5: the table of what a run leaves behind, all of it.
func TestDecide(t *testing.T) {
	t.Parallel()
	const (
		C, R, P = actComplete, actRelease, actPark
	)
	type row struct {
		event                             string
		run                               run
		atomic, steps, begun, hold, freed action
	}
	status := func(s int) run { return run{answer: Answer{Status: s}} }
	said := func(s int, o Outcome) run { r := status(s); r.outcome = o; return r }
	failed := run{failed: true}
	// begun: steps with an unfinished one. hold, freed: wrap with On5xx.
	rows := []row{
		{"200", status(200), C, C, P, C, C},
		{"201", status(201), C, C, P, C, C},
		{"303", status(303), C, C, P, C, C},
		{"400", status(400), C, C, P, C, C},
		{"402", status(402), C, C, P, C, C},
		{"404", status(404), C, C, P, C, C},
		{"409", status(409), C, C, P, C, C},
		{"422", status(422), C, C, P, C, C},
		{"401", status(401), R, R, P, R, R},
		{"403", status(403), R, R, P, R, R},
		{"425", status(425), R, R, P, R, R},
		{"429", status(429), R, R, P, R, R},
		{"408", status(408), R, R, P, P, R},
		{"500", status(500), R, R, P, P, R},
		{"503", status(503), R, R, P, P, R},
		{"599", status(599), R, R, P, P, R},
		{"no status", status(0), R, R, P, P, R},
		{"error or panic", failed, R, R, P, P, R},
		{"final 500", said(500, Final), C, C, P, C, C},
		{"final 429", said(429, Final), C, C, P, C, C},
		{"not applied 200", said(200, NotApplied), R, R, P, R, R},
		{"not applied 500", said(500, NotApplied), R, R, P, R, R},
		{"unknown 202", said(202, Unknown), P, P, P, P, P},
		{"unknown 504", said(504, Unknown), P, P, P, P, P},
		{"final, but failed", run{failed: true, outcome: Final}, R, R, P, P, R},
	}
	for _, r := range rows {
		cases := []struct {
			column string
			run    run
			want   action
		}{
			{"atomic", run{mode: modeAtomic}, r.atomic},
			{"steps", run{mode: modeSteps}, r.steps},
			{"steps, one unfinished", run{mode: modeSteps, unfinished: ReasonUnfinishedStep}, r.begun},
			{"wrap, hold", run{mode: modeWrap, on5xx: Hold}, r.hold},
			{"wrap, release", run{mode: modeWrap, on5xx: ReleaseKey}, r.freed},
		}
		for _, c := range cases {
			in := r.run
			in.mode, in.on5xx, in.unfinished = c.run.mode, c.run.on5xx, c.run.unfinished
			got, reason := decide(in)
			if got != c.want {
				t.Errorf("%s, %s: action %d, want %d", r.event, c.column, got, c.want)
			}
			if (got == actComplete) != (reason == "") {
				t.Errorf("%s, %s: reason %q for action %d", r.event, c.column, reason, got)
			}
		}
	}
}

// K3, S1: the digest joins scope and value unambiguously.
func TestKeyDigest(t *testing.T) {
	t.Parallel()
	seen := map[Digest]Key{}
	for _, k := range []Key{{"a:b", "c"}, {"a", "b:c"}, {"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}, {"a", "b"}, {"A", "b"}, {"a", "B"}, {"a", "b "}} {
		if other, dup := seen[k.Digest()]; dup {
			t.Errorf("%q and %q have one digest", k, other)
		}
		seen[k.Digest()] = k
	}
	// The digest is stored: it may never change.
	if got := fmt.Sprintf("%x", Key{"acct", "key"}.Digest()); got != "3fefbcd1c28e02fc778523b615ad20df" {
		t.Errorf("digest %s", got)
	}
}
