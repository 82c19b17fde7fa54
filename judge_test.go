package onlyonce_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
)

// judgement is one cell of the table that Judge decides.
type judgement struct {
	state onlyonce.State
	// over: the record has expired, or its lease is over, if the state has one.
	over        bool
	fingerprint string // "same", "sum" or "version": what differs
	own         bool   // the claim bears the record's own token
	first       bool   // the record's attempt began its life
	recorded    onlyonce.Abandon
	asked       onlyonce.Abandon
	resolve     bool
}

// allJudgements are the cells of the table.
func allJudgements() []judgement {
	var all []judgement
	both := []bool{false, true}
	abandons := []onlyonce.Abandon{onlyonce.AbandonHold, onlyonce.AbandonRerun, onlyonce.AbandonResume}
	for _, state := range []onlyonce.State{onlyonce.InProgress, onlyonce.Completed, onlyonce.FailedRetryable, onlyonce.InDoubt} {
		for _, fingerprint := range []string{"same", "sum", "version"} {
			for _, recorded := range abandons {
				for _, asked := range abandons {
					for bits := range 16 {
						all = append(all, judgement{
							state: state, fingerprint: fingerprint, recorded: recorded, asked: asked,
							over: both[bits&1], own: both[bits>>1&1], first: both[bits>>2&1], resolve: both[bits>>3&1],
						})
					}
				}
			}
		}
	}
	return all
}

// expected says for each verdict when it is due; docs/PROTOCOL.md in other
// words. Exactly one may hold.
func (j judgement) expected(t *testing.T) (onlyonce.Verdict, bool) {
	t.Helper()
	settled := j.state == onlyonce.Completed || j.state == onlyonce.FailedRetryable
	absent := settled && j.over
	itsOwn := j.own && j.state == onlyonce.InProgress
	other := !absent && !itsOwn && j.fingerprint != "same"
	same := !absent && !itsOwn && !other
	running := same && j.state == onlyonce.InProgress
	mayTakeOver := j.recorded == onlyonce.AbandonRerun && j.asked == onlyonce.AbandonRerun ||
		j.recorded == onlyonce.AbandonResume && j.asked == onlyonce.AbandonResume

	leavesSteps := j.recorded == onlyonce.AbandonResume && j.asked != onlyonce.AbandonResume
	type verdict struct {
		verdict onlyonce.Verdict
		write   bool
	}
	due := map[verdict]bool{
		{onlyonce.Won, true}:       absent,
		{onlyonce.Won, false}:      itsOwn && j.first,
		{onlyonce.Resumed, false}:  itsOwn && !j.first,
		{onlyonce.Mismatch, false}: other,
		{onlyonce.Replay, false}:   same && j.state == onlyonce.Completed,
		{onlyonce.Doubtful, false}: same && j.state == onlyonce.InDoubt && !j.resolve ||
			same && j.state == onlyonce.FailedRetryable && leavesSteps,
		{onlyonce.Busy, false}:      running && !j.over,
		{onlyonce.Abandoned, false}: running && j.over && !mayTakeOver,
		{onlyonce.Resumed, true}: same && j.state == onlyonce.FailedRetryable && !leavesSteps ||
			same && j.state == onlyonce.InDoubt && j.resolve ||
			running && j.over && mayTakeOver,
	}
	var found []verdict
	for v, holds := range due {
		if holds {
			found = append(found, v)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%+v: the oracle says %v", j, found)
	}
	return found[0].verdict, found[0].write
}

// build makes the record and the claim of a cell, with the end of the record's
// time at, just before or long before now.
func (j judgement) build(now time.Time, late time.Duration) (onlyonce.Record, onlyonce.ClaimRequest) {
	fp := onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s", Policy: "p"}, Sum: [32]byte{1}, Parts: []byte("a")}
	rec := onlyonce.Record{
		State: j.state, Fingerprint: fp, Fence: 9, Origin: 9, Attempt: onlyonce.Token{1}, Abandon: j.recorded,
	}
	if !j.first {
		rec.Origin = 5
	}
	end := now.Add(time.Microsecond)
	if j.over {
		end = now.Add(-late)
	}
	// The time of the other kind is set against the verdict: it may not count.
	switch j.state {
	case onlyonce.Completed, onlyonce.FailedRetryable:
		rec.ExpiresAt, rec.LeaseEnd = end, now.Add(time.Hour)
	default:
		rec.LeaseEnd, rec.ExpiresAt = end, now.Add(-time.Hour)
	}
	req := onlyonce.ClaimRequest{Fingerprint: fp, Attempt: onlyonce.Token{2}, Abandon: j.asked, Resolve: j.resolve}
	req.Fingerprint.Parts = []byte("b") // names what differs, decides nothing
	if j.own {
		req.Attempt = rec.Attempt
	}
	switch j.fingerprint {
	case "sum":
		req.Fingerprint.Sum[31]++
	case "version":
		req.Fingerprint.Version.Policy = "q"
	}
	return rec, req
}

// C1, C6, C7, F6, T2: the decision of every store about a claim, all of it.
func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, j := range allJudgements() {
		verdict, write := j.expected(t)
		for _, late := range []time.Duration{0, time.Microsecond, 24 * time.Hour} {
			rec, req := j.build(now, late)
			if got, gotWrite := onlyonce.Judge(rec, req, now); got != verdict || gotWrite != write {
				t.Errorf("%+v, %v late: %s, write %v; want %s, write %v", j, late, got, gotWrite, verdict, write)
			}
		}
	}
}

// T2: what is in progress or in doubt never expires.
func TestExpired(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for state, expires := range map[onlyonce.State]bool{
		onlyonce.Completed: true, onlyonce.FailedRetryable: true, onlyonce.InProgress: false, onlyonce.InDoubt: false,
	} {
		rec := onlyonce.Record{State: state, ExpiresAt: end}
		if rec.Expired(end.Add(-1)) {
			t.Errorf("%s: expired before its time", state)
		}
		for _, at := range []time.Time{end, end.Add(time.Hour)} {
			if rec.Expired(at) != expires {
				t.Errorf("%s at %v: expired %v, want %v", state, at, !expires, expires)
			}
		}
	}
}

// C6: whatever the clock does, a fence rises, and never lags behind the clock.
func TestNextFence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var fence int64
		for _, at := range rapid.SliceOfN(rapid.Int64Range(0, 4e15), 1, 50).Draw(t, "clock in µs") {
			next := onlyonce.NextFence(fence, time.UnixMicro(at))
			if next <= fence {
				t.Fatalf("fence %d after %d", next, fence)
			}
			if next < at {
				t.Fatalf("fence %d at %d µs", next, at)
			}
			if next != fence+1 && next != at {
				t.Fatalf("fence %d is neither one above %d nor the clock %d", next, fence, at)
			}
			fence = next
		}
	})
}

// A new life after a sweep has a higher fence than the one before, since the
// clock has moved on.
func TestNextFenceAfterASweep(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	last := onlyonce.NextFence(0, at)
	for range 1000 {
		last = onlyonce.NextFence(last, at)
	}
	if fresh := onlyonce.NextFence(0, at.Add(onlyonce.DefaultRetention)); fresh <= last {
		t.Errorf("fence %d after %d", fresh, last)
	}
}

// The verdicts' names are in logs and metrics.
func TestVerdictNames(t *testing.T) {
	t.Parallel()
	want := []string{"none", "won", "resumed", "replay", "busy", "mismatch", "doubtful", "abandoned", "resource busy", "unknown"}
	for i, name := range want {
		v := onlyonce.Verdict(i)
		if fmt.Sprint(v) != name || v.Owns() != (name == "won" || name == "resumed") {
			t.Errorf("verdict %d: %s, owns %v", i, v, v.Owns())
		}
	}
}

// A claim whose lease never ends, or that has no end to its answer, cannot be
// made (C4).
func TestClaimRequestValidate(t *testing.T) {
	t.Parallel()
	valid := onlyonce.ClaimRequest{Key: onlyonce.Key{Scope: "acct", Value: "k"}, Lease: time.Second, Retention: time.Hour}
	if err := valid.Validate(); err != nil {
		t.Errorf("a valid claim: %v", err)
	}
	for code, breaks := range map[onlyonce.Code][]func(*onlyonce.ClaimRequest){
		onlyonce.CodeConfig: {
			func(r *onlyonce.ClaimRequest) { r.Lease = 0 },
			func(r *onlyonce.ClaimRequest) { r.Lease = -1 },
			func(r *onlyonce.ClaimRequest) { r.Retention = 0 },
			func(r *onlyonce.ClaimRequest) { r.Retention = -1 },
		},
		onlyonce.CodeKeyInvalid:      {func(r *onlyonce.ClaimRequest) { r.Key.Value = "" }},
		onlyonce.CodeUnauthenticated: {func(r *onlyonce.ClaimRequest) { r.Key.Scope = "" }},
	} {
		for _, breaking := range breaks {
			r := valid
			breaking(&r)
			wantCode(t, r.Validate(), code)
		}
	}
}
