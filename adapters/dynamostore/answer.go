package dynamostore

import (
	"bytes"
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// answered is the row's record with its answer.
func (s *Store) answered(ctx context.Context, r row) (onlyonce.Record, error) {
	rec := r.shared()
	if r.answer == nil {
		return rec, nil
	}
	header, err := s.fetch(ctx, r.Key, r.answer.Header)
	if err != nil {
		return rec, err
	}
	rec.Answer = &onlyonce.Answer{Status: r.answer.Status, NotRetained: r.answer.Body == nil}
	if rec.Answer.Header, err = onlyonce.DecodeHeader(header); err != nil {
		return rec, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "read answer", Err: err}
	}
	rec.Answer.Body, err = s.fetch(ctx, r.Key, r.answer.Body)
	return rec, err
}

// shared is the row's record for a caller, who may write to it.
func (r row) shared() onlyonce.Record {
	rec := r.Record
	rec.Fingerprint.Parts = bytes.Clone(rec.Fingerprint.Parts)
	return rec
}

// storeAnswer makes an answer ready to be referred to. Its parts may go when the
// record may.
func (s *Store) storeAnswer(ctx context.Context, r row, a onlyonce.Answer) (*storedAnswer, error) {
	at := placement{key: r.Key, inline: inline, ttl: r.ttl()}
	stored := &storedAnswer{Status: a.Status}
	var err error
	if stored.Header, err = s.store(ctx, at, onlyonce.EncodeHeader(a.Header)); err != nil || a.NotRetained {
		return stored, err
	}
	if stored.Body, err = s.store(ctx, at, a.Body); err != nil {
		s.drop(ctx, r.Key, stored.Header)
	}
	return stored, err
}

// dropAnswer deletes what was stored of an answer for nothing.
func (s *Store) dropAnswer(ctx context.Context, key onlyonce.Key, a *storedAnswer) {
	if a != nil {
		s.drop(ctx, key, a.Header, a.Body)
	}
}

// asStored is the answer as a replay will have it.
func asStored(a onlyonce.Answer) (*onlyonce.Answer, error) {
	header, err := onlyonce.DecodeHeader(onlyonce.EncodeHeader(a.Header))
	if err != nil {
		return nil, err
	}
	stored := &onlyonce.Answer{Status: a.Status, Header: header, NotRetained: a.NotRetained}
	if !a.NotRetained {
		stored.Body = append([]byte{}, a.Body...)
	}
	return stored, nil
}
