package onlyonce

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Judge is the decision every store makes when it finds a record under a
// claimed key, with the time by the store's own clock. When write is true the
// store makes the claimer the owner by one conditional write, guarded by the
// record's state, fence, token and lease end being unchanged (a renewal may
// come in between): a new life with a new origin for Won, the same life for
// Resumed. When write is false nothing is
// written.
//
// The order matters. A record that has expired is absent. An attempt finds its
// own claim again. Another fingerprint is refused before anything else, so
// that no takeover lets a different request in (rule F6).
func Judge(rec Record, req ClaimRequest, now time.Time) (verdict Verdict, write bool) {
	if rec.Expired(now) {
		return Won, true
	}
	if rec.Attempt == req.Attempt && rec.State == InProgress {
		if rec.Fence == rec.Origin {
			return Won, false
		}
		return Resumed, false
	}
	if !rec.Fingerprint.Equal(req.Fingerprint) {
		return Mismatch, false
	}
	switch rec.State {
	case Completed:
		return Replay, false
	case FailedRetryable:
		if rec.Abandon == AbandonResume && req.Abandon != AbandonResume {
			return Doubtful, false // its finished steps can be continued by steps only
		}
		return Resumed, true
	case InDoubt:
		if req.Resolve && (req.Doubt == 0 || req.Doubt == rec.Fence) {
			return Resumed, true
		}
		return Doubtful, false
	default:
		return judgeOwned(rec, req, now)
	}
}

// judgeOwned decides about a key in progress by its lease.
func judgeOwned(rec Record, req ClaimRequest, now time.Time) (Verdict, bool) {
	switch {
	case now.Before(rec.LeaseEnd):
		return Busy, false
	case rec.Abandon == req.Abandon && rec.Abandon != AbandonHold:
		return Resumed, true
	default:
		return Abandoned, false
	}
}

// Expired tells whether the record is as good as absent. Only what is settled
// expires: in progress and in doubt never do (rule T2). now is the store's.
func (r Record) Expired(now time.Time) bool {
	return (r.State == Completed || r.State == FailedRetryable) && !now.Before(r.ExpiresAt)
}

// NextFence is the fence of a claim: the store's clock in microseconds, or one
// above the fence the key had (0 for a new row), whichever is greater, so that
// it never returns to an old value, not even after a sweep.
func NextFence(old int64, now time.Time) int64 {
	return max(old+1, now.UnixMicro())
}

// EncodeHeader is the form in which stores keep an answer's headers: a line
// "Name: value" each, sorted by name, values byte for byte. What no header may
// hold is mended: control characters in values become spaces, names that are no
// token of RFC 9110 are left out.
func EncodeHeader(h map[string][]string) []byte {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !isToken(name) {
			continue
		}
		for _, v := range h[name] {
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, fieldValue(v)...)
			b = append(b, '\n')
		}
	}
	return b
}

// isToken tells whether a header may have this name.
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
	})
}

// fieldValue is the value as a header may have it.
func fieldValue(v string) string {
	b := []byte(v)
	for i, c := range b {
		if (c < ' ' && c != '\t') || c == 0x7f {
			b[i] = ' '
		}
	}
	return string(b)
}

// DecodeHeader reads what EncodeHeader wrote. No headers are a nil map.
func DecodeHeader(b []byte) (map[string][]string, error) {
	var h map[string][]string
	for line := range bytes.Lines(b) {
		name, value, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(": "))
		if !ok || !isToken(string(name)) {
			return nil, fmt.Errorf("decode stored headers: a line of %d bytes has no name", len(line))
		}
		if h == nil {
			h = map[string][]string{}
		}
		h[string(name)] = append(h[string(name)], string(value))
	}
	return h, nil
}
