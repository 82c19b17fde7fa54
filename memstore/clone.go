package memstore

import (
	"bytes"
	"maps"
	"slices"

	"github.com/onlyonce-go/onlyonce"
)

// cloneAnswer keeps what a caller may still write to out of the store.
func cloneAnswer(a onlyonce.Answer) onlyonce.Answer {
	a.Body = bytes.Clone(a.Body)
	a.Header = maps.Clone(a.Header)
	for name, values := range a.Header {
		a.Header[name] = slices.Clone(values)
	}
	return a
}

// stored is what is kept of an answer.
func stored(a onlyonce.Answer) *onlyonce.Answer {
	a = cloneAnswer(a)
	a.Outcome = onlyonce.ByStatus
	switch {
	case a.NotRetained:
		a.Body = nil
	case a.Body == nil:
		a.Body = []byte{}
	}
	return &a
}

// clone is a record that shares nothing with the store's own.
func clone(rec onlyonce.Record) onlyonce.Record {
	rec.Fingerprint = cloneFingerprint(rec.Fingerprint)
	if rec.Answer != nil {
		a := cloneAnswer(*rec.Answer)
		rec.Answer = &a
	}
	return rec
}

func cloneFingerprint(f onlyonce.Fingerprint) onlyonce.Fingerprint {
	f.Parts = bytes.Clone(f.Parts)
	return f
}
