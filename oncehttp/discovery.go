package oncehttp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// discovery is the document that tells a client what is promised (rule T5).
type discovery struct {
	// Header carries the key; Carriers are other headers that do so too.
	Header   string   `json:"header"`
	Carriers []string `json:"carriers,omitempty"`
	// Docs explains the problems.
	Docs       string                `json:"docs"`
	Operations []discoveredOperation `json:"operations"`
	Problems   []discoveredProblem   `json:"problems"`
}

// discoveredOperation is what a client needs to know of one operation. Durations are
// of ISO 8601.
type discoveredOperation struct {
	Operation string   `json:"operation"`
	Key       string   `json:"key"` // required, optional, off
	Methods   []string `json:"methods"`
	// KeyPointer is a JSON Pointer to where the body may carry the key.
	KeyPointer string `json:"key_pointer,omitempty"`
	// Retention is for how long an answer is replayed, from completion: no retry may
	// come later.
	Retention string `json:"retention"`
	// MaxWait is for how long a duplicate may wait with "Prefer: wait".
	MaxWait string `json:"max_wait,omitempty"`
}

type discoveredProblem struct {
	Type      string    `json:"type"`
	Error     string    `json:"error"`
	Status    int       `json:"status"`
	Title     string    `json:"title"`
	RetryWith RetryWith `json:"retry_with"`
}

// DiscoveryHandler serves what clients have to know, as JSON: the operations, for how
// long their answers are replayed, the problems. Mount it at its well-known place:
// mux.Handle("GET /.well-known/idempotency", g.DiscoveryHandler()). It lists the
// operations that have an Op.Name, those that are made later too. It shows nothing that
// depends on the caller.
func (g *Guard) DiscoveryHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		doc := discovery{Header: HeaderKey, Carriers: g.set.carriers, Docs: g.set.docs, Operations: []discoveredOperation{}}
		g.mu.Lock()
		for _, d := range g.doors {
			if d.op.Name != "" {
				doc.Operations = append(doc.Operations, d.discovered())
			}
		}
		g.mu.Unlock()
		slices.SortFunc(doc.Operations, func(a, b discoveredOperation) int { return strings.Compare(a.Operation, b.Operation) })
		for _, k := range kinds() {
			doc.Problems = append(doc.Problems, discoveredProblem{g.set.docs + string(k.code), string(k.code), k.status, k.title, k.with})
		}
		body, err := json.MarshalIndent(doc, "", "  ")
		if err != nil {
			g.log(r.Context(), err)
			http.Error(w, "the document cannot be shown", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=3600")
		w.Write(append(body, '\n')) //nolint:errcheck // the caller is gone
	})
}

// discovered is the operation as its clients see it.
func (d *door) discovered() discoveredOperation {
	op := d.op.WithDefaults()
	o := discoveredOperation{
		Operation: op.Name, Key: d.route.Key.String(), Methods: d.route.Methods, KeyPointer: d.route.KeyPointer,
		Retention: isoDuration(op.Retention),
	}
	if most := max(op.MaxWait, op.Wait); most > 0 {
		o.MaxWait = isoDuration(most)
	}
	return o
}

// isoDuration writes a duration as ISO 8601 has it: P1DT2H3M4.5S.
func isoDuration(d time.Duration) string {
	var b strings.Builder
	b.WriteByte('P')
	if days := d / (24 * time.Hour); days > 0 {
		fmt.Fprintf(&b, "%dD", days)
		d %= 24 * time.Hour
	}
	if d == 0 && b.Len() > 1 {
		return b.String()
	}
	b.WriteByte('T')
	if h := d / time.Hour; h > 0 {
		fmt.Fprintf(&b, "%dH", h)
	}
	if m := d % time.Hour / time.Minute; m > 0 {
		fmt.Fprintf(&b, "%dM", m)
	}
	if s := d % time.Minute; s > 0 || d == 0 {
		b.WriteString(strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%09d", s/time.Second, s%time.Second), "0"), "."))
		b.WriteByte('S')
	}
	return b.String()
}
