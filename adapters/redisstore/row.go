package redisstore

import (
	"fmt"
	"strconv"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// decoder reads a script's reply from the front. After the first thing that is
// not as it should be the rest is empty, and err says so.
type decoder struct {
	values []any
	err    error
}

func decode(v any) *decoder {
	values, ok := v.([]any)
	d := &decoder{values: values}
	if !ok {
		d.fail("%T in place of a list", v)
	}
	return d
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("read the server's reply: "+format, args...)
	}
}

// next is the next value; nil if it is not there.
func (d *decoder) next() any {
	if len(d.values) == 0 {
		d.fail("it is too short")
	}
	if d.err != nil {
		return nil
	}
	v := d.values[0]
	d.values = d.values[1:]
	return v
}

// optional is a text that may be absent.
func (d *decoder) optional() (string, bool) {
	v := d.next()
	if v == nil {
		return "", false
	}
	s, ok := v.(string)
	if !ok {
		d.fail("%T in place of a text", v)
	}
	return s, ok
}

func (d *decoder) text() string {
	s, ok := d.optional()
	if !ok {
		d.fail("a field is missing")
	}
	return s
}

func (d *decoder) int() int64 { return d.parse(d.text()) }

func (d *decoder) parse(s string) int64 {
	if d.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		d.fail("%q is no number", s)
	}
	return n
}

func (d *decoder) time() time.Time { return time.UnixMicro(d.int()).UTC() }

func (d *decoder) optionalTime() time.Time {
	s, ok := d.optional()
	if !ok {
		return time.Time{}
	}
	return time.UnixMicro(d.parse(s)).UTC()
}

// bytes fills a field of a fixed length.
func (d *decoder) bytes(into []byte) {
	s := d.text()
	if d.err == nil && len(s) != len(into) {
		d.fail("%d bytes in place of %d", len(s), len(into))
	}
	copy(into, s)
}

// keyRow is a record and the state that its present attempt took it over from.
type keyRow struct {
	onlyonce.Record
	from onlyonce.State
}

// record reads the fields that the scripts call RECORD, in that order.
func (d *decoder) record() keyRow {
	var r keyRow
	r.Key.Scope, r.Key.Value, r.Operation = d.text(), d.text(), d.text()
	r.Fingerprint.Version.Form = int(d.int())
	r.Fingerprint.Version.Secret, r.Fingerprint.Version.Policy = d.text(), d.text()
	d.bytes(r.Fingerprint.Sum[:])
	if parts := d.text(); parts != "" {
		r.Fingerprint.Parts = []byte(parts)
	}
	r.State, r.Fence, r.Origin = onlyonce.State(d.text()), d.int(), d.int()
	d.bytes(r.Attempt[:])
	r.Attempts, r.Abandon = int(d.int()), onlyonce.Abandon(d.int())
	r.Reason, r.from = d.text(), onlyonce.State(d.text())
	r.Retention, r.CreatedAt, r.LeaseEnd = duration(d.int()), d.time(), d.time()
	r.CompletedAt, r.ExpiresAt = d.optionalTime(), d.optionalTime()
	r.Answer = d.answer()
	return r
}

// answer reads what is stored of an answer; nil if the key is not completed.
func (d *decoder) answer() *onlyonce.Answer {
	status, completed := d.optional()
	header, _ := d.optional()
	body, retained := d.optional()
	if !completed {
		return nil
	}
	a := &onlyonce.Answer{Status: int(d.parse(status)), NotRetained: !retained}
	if retained {
		a.Body = []byte(body)
	}
	var err error
	if a.Header, err = onlyonce.DecodeHeader([]byte(header)); err != nil && d.err == nil {
		d.err = err
	}
	return a
}
