package report

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
)

// maxRecord is how many bytes one record may have. A quote that is never closed
// would otherwise take the rest of the file into memory.
const maxRecord = 1 << 20

// errRecordTooLong ends a record that cannot be one.
var errRecordTooLong = errors.New("record too long")

// source counts and hashes what is read of a report, and bounds how far one
// record may reach.
type source struct {
	in   io.Reader
	sum  hash.Hash
	read int64
	last byte
	// upTo is where the record that is being read must have ended.
	upTo int64
}

func newSource(in io.Reader) *source {
	return &source{in: in, sum: sha256.New(), upTo: maxRecord}
}

// Read gives what comes next.
func (s *source) Read(p []byte) (int, error) {
	if s.read > s.upTo {
		return 0, errRecordTooLong
	}
	n, err := s.in.Read(p)
	s.sum.Write(p[:n])
	s.read += int64(n)
	if n > 0 {
		s.last = p[n-1]
	}
	return n, err
}

// next lets another record begin.
func (s *source) next() { s.upTo = s.read + maxRecord }

// byte order marks.
var (
	markUTF8 = []byte("\xef\xbb\xbf")
	markLE   = []byte("\xff\xfe")
	markBE   = []byte("\xfe\xff")
)

// skipMark passes over the mark that some programs put before UTF-8.
func skipMark(r *bufio.Reader) error {
	start, err := r.Peek(len(markUTF8))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if bytes.HasPrefix(start, markLE) || bytes.HasPrefix(start, markBE) {
		return &Error{Line: 1, Text: "the report is in UTF-16", Hint: "save it as CSV in UTF-8"}
	}
	if bytes.Equal(start, markUTF8) {
		_, err := r.Discard(len(markUTF8))
		return err
	}
	return nil
}
