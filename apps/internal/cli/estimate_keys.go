package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// estimateScope is the scope of the keys that estimate writes. It is of nobody: no
// merchant's name has a dot.
const estimateScope = "onlyonce.estimate"

// The keys of estimate are held for a moment. One that a crash leaves is freed by a
// sweep, for nothing is done under it.
const (
	estimateLease     = 30 * time.Second
	estimateRetention = time.Second
)

// keyWriter makes keys and completes them with an answer that does not compress.
type keyWriter struct {
	store     onlyonce.Store
	run       string
	made      int
	body      []byte
	retention time.Duration
}

func newKeyWriter(s onlyonce.Store, size int) *keyWriter {
	body := make([]byte, size)
	_, _ = rand.Read(body) // never fails
	return &keyWriter{store: s, run: rand.Text(), body: body, retention: day}
}

// next is the claim of a key that nobody has had, with a fingerprint as long as that
// of a small JSON request.
func (w *keyWriter) next() onlyonce.ClaimRequest {
	w.made++
	parts := make([]byte, 100)
	_, _ = rand.Read(parts) // never fails
	return onlyonce.ClaimRequest{
		Key:         onlyonce.Key{Scope: estimateScope, Value: fmt.Sprintf("%s-%d", w.run, w.made)},
		Operation:   "estimate",
		Fingerprint: onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "estimate"}, Parts: parts},
		Attempt:     onlyonce.NewToken(), Lease: estimateLease, Retention: w.retention, Abandon: onlyonce.AbandonRerun,
	}
}

// answer is what keys are completed with.
func (w *keyWriter) answer() onlyonce.Answer {
	return onlyonce.Answer{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: w.body}
}

// claim claims a key, which must be free.
func (w *keyWriter) claim(ctx context.Context, req onlyonce.ClaimRequest, want onlyonce.Verdict) (onlyonce.Owner, error) {
	c, err := w.store.Claim(ctx, req)
	if err != nil {
		return onlyonce.Owner{}, err
	}
	if c.Verdict != want {
		return onlyonce.Owner{}, fmt.Errorf("a key of the measurement is %s, not %s", c.Verdict, want)
	}
	return c.Record.Owner(), nil
}

// complete completes a key of ours.
func (w *keyWriter) complete(ctx context.Context, owner onlyonce.Owner) error {
	settled, err := w.store.Complete(ctx, owner, w.answer())
	if err == nil && !settled.Held {
		err = errors.New("a key of the measurement was taken by somebody else")
	}
	return err
}

// write makes and completes n keys more; of is how many there will be.
func (w *keyWriter) write(ctx context.Context, n int, p *progress, of int) error {
	for range n {
		owner, err := w.claim(ctx, w.next(), onlyonce.Won)
		if err == nil {
			err = w.complete(ctx, owner)
		}
		if err != nil {
			return err
		}
		p.say(func(time.Duration) string { return w.line("writing", of) })
	}
	return nil
}

// line is how far the writer is.
func (w *keyWriter) line(what string, of int) string {
	return fmt.Sprintf("%s %s %s of %s keys", what, barText(float64(w.made)/float64(of)), count(w.made), count(of))
}
