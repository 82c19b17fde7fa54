package memstore

import (
	"maps"
	"slices"

	"github.com/onlyonce-go/onlyonce"
)

// cloneAnswer keeps what a caller may still write to out of the store.
func cloneAnswer(a onlyonce.Answer) onlyonce.Answer {
	a.Body = append([]byte{}, a.Body...)
	a.Header = maps.Clone(a.Header)
	for name, values := range a.Header {
		a.Header[name] = slices.Clone(values)
	}
	a.Outcome = onlyonce.ByStatus
	if a.NotRetained {
		a.Body = nil
	}
	return a
}
