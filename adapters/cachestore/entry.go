package cachestore

import (
	"bytes"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// entry is a completed record, and how long it has to live. It never changes.
type entry struct {
	rec onlyonce.Record
	// at is a moment of this process's clock, left what was left at the least,
	// by the store's clock, of the record's life then.
	at   time.Time
	left time.Duration
	// weight is about how many bytes it takes.
	weight int64
}

// entryBase is about what an entry takes besides texts and bytes.
const entryBase = 768

// headerBase is about what a header's value takes besides its text.
const headerBase = 48

func newEntry(rec onlyonce.Record, at time.Time, left time.Duration) *entry {
	return &entry{rec: rec, at: at, left: left, weight: weigh(&rec)}
}

// weigh is about how much memory a completed record takes.
func weigh(r *onlyonce.Record) int64 {
	n := entryBase + 2*(len(r.Key.Scope)+len(r.Key.Value)) + len(r.Operation) + len(r.Reason) + len(r.Resource) +
		len(r.Fingerprint.Version.Secret) + len(r.Fingerprint.Version.Policy) + len(r.Fingerprint.Parts) + len(r.Answer.Body)
	for name, values := range r.Answer.Header {
		n += headerBase + len(name)
		for _, v := range values {
			n += headerBase + len(v)
		}
	}
	return int64(n)
}

// remaining is how much is left of the record's life at the least, which is
// nothing when that cannot be told.
func (e *entry) remaining(now time.Time, maxAge time.Duration) time.Duration {
	age := elapsed(e.at, now)
	if age < 0 || age > maxAge {
		return 0
	}
	return e.left - age
}

// elapsed is how much time has passed at the most, by the monotonic clock or by
// the wall clock, of which one may have stood still while the machine slept, and
// the other have been set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// reading is what a handle knows of the store's clock: it had not passed shows at
// the moment at of this process's clock.
type reading struct {
	at    time.Time
	shows time.Time
}

// latest is a time that the store's clock has not passed now; false if the
// reading is too old to tell.
func (r *reading) latest(now time.Time, maxAge time.Duration) (time.Time, bool) {
	if r == nil {
		return time.Time{}, false
	}
	age := elapsed(r.at, now)
	return r.shows.Add(age), age >= 0 && age <= maxAge
}

// clone is a completed record that shares nothing with the given one that its
// owner may write to.
func clone(rec onlyonce.Record) onlyonce.Record {
	rec.Fingerprint.Parts = bytes.Clone(rec.Fingerprint.Parts)
	a := *rec.Answer
	a.Body = bytes.Clone(a.Body)
	a.Header = cloneHeader(a.Header)
	rec.Answer = &a
	return rec
}

// cloneHeader copies all values into one piece of memory.
func cloneHeader(h map[string][]string) map[string][]string {
	if h == nil {
		return nil
	}
	n := 0
	for _, values := range h {
		n += len(values)
	}
	all := make([]string, 0, n)
	out := make(map[string][]string, len(h))
	for name, values := range h {
		if values == nil {
			out[name] = nil
			continue
		}
		from := len(all)
		all = append(all, values...)
		out[name] = all[from:len(all):len(all)]
	}
	return out
}
