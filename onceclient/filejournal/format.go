package filejournal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

// An entry's file is one line with the format's name, its version, the length and
// the SHA-256 of what follows it: the head, a line of JSON. Behind the head are the
// body and the answer's body, byte for byte; the head has their lengths and sums. So
// a list can be made from heads, and yet nothing is believed that is not whole.
const (
	formatName    = "onlyonce-journal"
	formatVersion = 1
	// longestHead bounds what is read because a damaged first line says so.
	longestHead = 64 << 20
)

// head is all of an entry but the bodies.
type head struct {
	Intent   text             `json:"intent"`
	Key      text             `json:"key"`
	Method   text             `json:"method"`
	Target   text             `json:"target"`
	Header   [][]text         `json:"header,omitempty"` // a name and its values each
	Created  time.Time        `json:"created"`
	State    onceclient.State `json:"state"`
	Attempts int              `json:"attempts"`
	Note     text             `json:"note,omitempty"`
	Ended    time.Time        `json:"ended,omitzero"`
	Body     part             `json:"body"`
	Answer   *answer          `json:"answer,omitempty"`
}

type answer struct {
	Status int      `json:"status"`
	Header [][]text `json:"header,omitempty"`
	Body   part     `json:"body"`
}

// part is bytes behind the head.
type part struct {
	Length int64  `json:"length"`
	SHA256 string `json:"sha256"`
}

func partOf(b []byte) part {
	sum := sha256.Sum256(b)
	return part{Length: int64(len(b)), SHA256: hex.EncodeToString(sum[:])}
}

// text is a string that JSON gives back byte for byte: what is not UTF-8 is written
// as a list of one string, in base64.
type text string

// MarshalJSON implements [json.Marshaler].
func (s text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(s)) {
		return json.Marshal(string(s))
	}
	return json.Marshal([][]byte{[]byte(s)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *text) UnmarshalJSON(b []byte) error {
	if !bytes.HasPrefix(b, []byte("[")) {
		return json.Unmarshal(b, (*string)(s))
	}
	var list [][]byte
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*s = text(bytes.Join(list, nil))
	return nil
}

func headerLines(h map[string][]string) [][]text {
	var lines [][]text
	for _, name := range slices.Sorted(maps.Keys(h)) {
		line := []text{text(name)}
		for _, value := range h[name] {
			line = append(line, text(value))
		}
		lines = append(lines, line)
	}
	return lines
}

func headerOf(lines [][]text) map[string][]string {
	if len(lines) == 0 {
		return nil
	}
	h := make(map[string][]string, len(lines))
	for _, line := range lines {
		if len(line) == 0 {
			continue
		}
		values := make([]string, len(line)-1)
		for i, value := range line[1:] {
			values[i] = string(value)
		}
		h[string(line[0])] = values
	}
	return h
}

// encode gives the pieces of an entry's file, in order.
func encode(e onceclient.Entry) ([][]byte, error) {
	h := head{
		Intent: text(e.Intent), Key: text(e.Key), Method: text(e.Method), Target: text(e.Target), Header: headerLines(e.Header),
		Created: e.CreatedAt.UTC(), State: e.State, Attempts: e.Attempts, Note: text(e.Note), Body: partOf(e.Body),
	}
	if !e.EndedAt.IsZero() && e.State != onceclient.Open {
		h.Ended = e.EndedAt.UTC()
	}
	pieces := [][]byte{nil, nil, e.Body}
	if a := e.Answer; a != nil {
		h.Answer = &answer{Status: a.Status, Header: headerLines(a.Header), Body: partOf(a.Body)}
		pieces = append(pieces, a.Body)
	}
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	pieces[1] = append(line, '\n')
	pieces[0] = fmt.Appendf(nil, "%s %d %d %x\n", formatName, formatVersion, len(pieces[1]), sha256.Sum256(pieces[1]))
	return pieces, nil
}

// decodeHead reads a head from the beginning of a file of that size, and leaves the
// reader behind it. The entry that it gives has no bodies.
func decodeHead(r io.Reader, size int64) (head, error) {
	first, err := readLine(r)
	if err != nil {
		return head{}, err
	}
	var name, sum string
	var version, length int64
	if _, err := fmt.Sscanf(first, "%s %d", &name, &version); err != nil || name != formatName {
		return head{}, errors.New("the first line is none of a journal's")
	}
	if version != formatVersion {
		return head{}, fmt.Errorf("it is of version %d, and this program knows %d: run a later program", version, formatVersion)
	}
	if _, err := fmt.Sscanf(first, formatName+" %d %d %s\n", &version, &length, &sum); err != nil || length < 0 || length > longestHead {
		return head{}, errors.New("the first line cannot be read")
	}
	line, err := readPart(r, part{Length: length, SHA256: sum})
	if err != nil {
		return head{}, fmt.Errorf("head: %w", err)
	}
	var h head
	if err := json.Unmarshal(line, &h); err != nil {
		return head{}, fmt.Errorf("head: %w", err)
	}
	whole := int64(len(first)) + length + h.Body.Length
	if h.Answer != nil {
		whole += h.Answer.Body.Length
	}
	if h.Body.Length < 0 || h.Answer != nil && h.Answer.Body.Length < 0 || size != whole {
		return head{}, fmt.Errorf("it has %d bytes instead of %d", size, whole)
	}
	return h, nil
}

// readLine reads one short line and nothing behind it.
func readLine(r io.Reader) (string, error) {
	const longest = 200
	var line []byte
	b := make([]byte, 1)
	for len(line) < longest {
		if _, err := io.ReadFull(r, b); err != nil {
			return "", fmt.Errorf("read first line: %w", err)
		}
		line = append(line, b[0])
		if b[0] == '\n' {
			return string(line), nil
		}
	}
	return "", errors.New("the first line is too long")
}

// readPart reads bytes and compares their sum.
func readPart(r io.Reader, p part) ([]byte, error) {
	b := make([]byte, p.Length)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	if partOf(b) != p {
		return nil, errors.New("it does not fit its checksum")
	}
	return b, nil
}

// decode reads a file of that size.
func decode(r io.Reader, size int64) (onceclient.Entry, error) {
	h, err := decodeHead(r, size)
	if err != nil {
		return onceclient.Entry{}, err
	}
	e := onceclient.Entry{
		Intent: string(h.Intent), Key: string(h.Key), Method: string(h.Method), Target: string(h.Target), Header: headerOf(h.Header),
		CreatedAt: h.Created, State: h.State, Attempts: h.Attempts, Note: string(h.Note), EndedAt: h.Ended,
	}
	if e.Body, err = readPart(r, h.Body); err != nil {
		return onceclient.Entry{}, fmt.Errorf("body: %w", err)
	}
	if h.Answer == nil {
		return e, nil
	}
	e.Answer = &onceclient.Answer{Status: h.Answer.Status, Header: headerOf(h.Answer.Header)}
	if e.Answer.Body, err = readPart(r, h.Answer.Body); err != nil {
		return onceclient.Entry{}, fmt.Errorf("answer: %w", err)
	}
	return e, nil
}
