package cachestore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A value is the version, the fields of the record in a fixed order, and the HMAC
// of both. Numbers are varints, texts and bytes stand behind their lengths, times
// are microseconds.
const (
	version = 1
	macSize = sha256.Size
)

// The flags of a record, in the order of flagsOf.
const (
	flagNotRetained = 1 << iota
	flagNoBody      // nil, not empty
	flagNoHeader    // nil, not empty
	flagNoParts     // nil, not empty
	flagHolds
)

var (
	errForeign   = errors.New("decode cached answer: not of this database, or changed")
	errMalformed = errors.New("decode cached answer: malformed")
)

// encode makes a value of a completed record; false if it cannot be told exactly.
func encode(secret []byte, r *onlyonce.Record) ([]byte, bool) {
	if slices.ContainsFunc(slices.Collect(maps.Values(r.Answer.Header)), func(v []string) bool { return v == nil }) {
		return nil, false
	}
	b := make([]byte, 0, int(weigh(r)))
	b = append(b, version, flagsOf(r))
	v := r.Fingerprint.Version
	for _, text := range []string{r.Key.Scope, r.Key.Value, r.Operation, r.Reason, r.Resource, v.Secret, v.Policy, string(r.State)} {
		b = appendText(b, text)
	}
	b = append(b, r.Fingerprint.Sum[:]...)
	b = append(b, r.Attempt[:]...)
	b = appendText(b, string(r.Fingerprint.Parts))
	for _, n := range []int64{int64(v.Form), r.Fence, r.Origin, int64(r.Attempts), int64(r.Abandon), int64(r.Retention), int64(r.Answer.Status)} {
		b = binary.AppendVarint(b, n)
	}
	for _, t := range []time.Time{r.CreatedAt, r.LeaseEnd, r.CompletedAt, r.ExpiresAt} {
		micros := t.UnixMicro()
		if !time.UnixMicro(micros).Equal(t) {
			return nil, false // a store of finer times
		}
		b = binary.AppendVarint(b, micros)
	}
	b = appendHeader(b, r.Answer.Header)
	b = appendText(b, string(r.Answer.Body))
	return append(b, sum(secret, b)...), true
}

func flagsOf(r *onlyonce.Record) byte {
	var flags byte
	for i, set := range []bool{
		r.Answer.NotRetained, r.Answer.Body == nil, r.Answer.Header == nil, r.Fingerprint.Parts == nil, r.Holds,
	} {
		if set {
			flags |= 1 << i
		}
	}
	return flags
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendHeader(b []byte, h map[string][]string) []byte {
	b = binary.AppendUvarint(b, uint64(len(h)))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		b = appendText(b, name)
		b = binary.AppendUvarint(b, uint64(len(h[name])))
		for _, v := range h[name] {
			b = appendText(b, v)
		}
	}
	return b
}

// sum authenticates a value.
func sum(secret, value []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("onlyonce cached answer\x00"))
	mac.Write(value)
	return mac.Sum(nil)
}

// decode reads what encode wrote with the same secret, and nothing else.
func decode(secret, value []byte) (onlyonce.Record, error) {
	var r onlyonce.Record
	n := len(value) - macSize
	if n < 2 || !hmac.Equal(value[n:], sum(secret, value[:n])) {
		return r, errForeign
	}
	if value[0] != version {
		return r, errMalformed
	}
	flags, d := value[1], decoder{rest: value[2:n]}
	v := &r.Fingerprint.Version
	var state string
	for _, text := range []*string{&r.Key.Scope, &r.Key.Value, &r.Operation, &r.Reason, &r.Resource, &v.Secret, &v.Policy, &state} {
		*text = string(d.bytes())
	}
	r.State = onlyonce.State(state)
	copy(r.Fingerprint.Sum[:], d.take(uint64(len(r.Fingerprint.Sum))))
	copy(r.Attempt[:], d.take(uint64(len(r.Attempt))))
	r.Fingerprint.Parts = d.blob(flags&flagNoParts != 0)
	v.Form, r.Fence, r.Origin, r.Attempts = int(d.number()), d.number(), d.number(), int(d.number())
	r.Abandon, r.Retention = onlyonce.Abandon(d.number()), time.Duration(d.number())
	r.Answer = &onlyonce.Answer{Status: int(d.number()), NotRetained: flags&flagNotRetained != 0}
	for _, t := range []*time.Time{&r.CreatedAt, &r.LeaseEnd, &r.CompletedAt, &r.ExpiresAt} {
		*t = time.UnixMicro(d.number()).UTC()
	}
	r.Answer.Header = d.header(flags&flagNoHeader != 0)
	r.Answer.Body = d.blob(flags&flagNoBody != 0)
	r.Holds = flags&flagHolds != 0
	if d.failed || len(d.rest) != 0 {
		return onlyonce.Record{}, errMalformed
	}
	return r, nil
}

// decoder reads fields one after the other. Once it has failed, all it gives is
// zero.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) fail() {
	d.failed, d.rest = true, nil
}

// take gives the next n bytes.
func (d *decoder) take(n uint64) []byte {
	if d.failed || n > uint64(len(d.rest)) {
		d.fail()
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) count() uint64 {
	n, used := binary.Uvarint(d.rest)
	if used <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[used:]
	return n
}

func (d *decoder) number() int64 {
	n, used := binary.Varint(d.rest)
	if used <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[used:]
	return n
}

func (d *decoder) bytes() []byte { return d.take(d.count()) }

// blob copies bytes, so that they do not keep the whole value.
func (d *decoder) blob(none bool) []byte {
	b := d.bytes()
	if none {
		return nil
	}
	return append([]byte{}, b...)
}

func (d *decoder) header(none bool) map[string][]string {
	names := d.count()
	if none {
		return nil
	}
	h := map[string][]string{}
	for ; names > 0 && !d.failed; names-- {
		name := string(d.bytes())
		values := []string{}
		for n := d.count(); n > 0 && !d.failed; n-- {
			values = append(values, string(d.bytes()))
		}
		h[name] = values
	}
	return h
}
