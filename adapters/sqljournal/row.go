package sqljournal

import (
	"bytes"
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// row is an entry and who has it.
type row struct {
	onceclient.Entry
	maker, locker []byte
}

func (r row) madeBy(t onlyonce.Token) bool   { return bytes.Equal(r.maker, t[:]) }
func (r row) lockedBy(t onlyonce.Token) bool { return bytes.Equal(r.locker, t[:]) }

// scan reads a row of selectEntry.
func scan(from *sql.Row) (row, error) {
	var r row
	var header, answerHeader, answerBody []byte
	var created int64
	var status, ended sql.NullInt64
	err := from.Scan(&r.Intent, &r.Key, &r.Method, &r.Target, &header, &r.Body, &created,
		&r.State, &r.Attempts, &status, &answerHeader, &answerBody, &r.Note, &ended, &r.maker, &r.locker)
	if err != nil {
		return row{}, err
	}
	r.CreatedAt = fromMicros(created)
	if ended.Valid {
		r.EndedAt = fromMicros(ended.Int64)
	}
	if r.Header, err = decodeHeader(header); err != nil {
		return row{}, err
	}
	if !status.Valid {
		return r, nil
	}
	r.Answer = &onceclient.Answer{Status: int(status.Int64), Body: answerBody}
	r.Answer.Header, err = decodeHeader(answerHeader)
	return r, err
}

// columns are the values of insertEntry.
func columns(e onceclient.Entry, maker onlyonce.Token) []any {
	values := []any{e.Intent, e.Key, e.Method, e.Target, encodeHeader(e.Header), notNull(e.Body), e.CreatedAt.UnixMicro()}
	return append(append(values, standing(e)...), maker[:])
}

// standing are the values of what Save changes.
func standing(e onceclient.Entry) []any {
	var status, header, body, ended any
	if a := e.Answer; a != nil {
		status, header, body = int64(a.Status), encodeHeader(a.Header), notNull(a.Body)
	}
	if !e.EndedAt.IsZero() && e.State != onceclient.Open {
		ended = e.EndedAt.UnixMicro()
	}
	return []any{string(e.State), int64(e.Attempts), status, header, body, readable(e.Note), ended}
}

func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// readable is what PostgreSQL takes for text.
func readable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// encodeHeader keeps values byte for byte: metadata of gRPC may be binary.
func encodeHeader(h map[string][]string) []byte {
	exact := make(map[string][][]byte, len(h))
	for name, values := range h {
		exact[name] = make([][]byte, len(values))
		for i, v := range values {
			exact[name][i] = []byte(v)
		}
	}
	b, err := json.Marshal(exact)
	if err != nil {
		panic(err) // cannot be: there is nothing in it that JSON does not know
	}
	return b
}

func decodeHeader(b []byte) (map[string][]string, error) {
	var exact map[string][][]byte
	if err := json.Unmarshal(b, &exact); err != nil {
		return nil, fmt.Errorf("decode header: %w", err)
	}
	if len(exact) == 0 {
		return nil, nil
	}
	h := make(map[string][]string, len(exact))
	for name, values := range exact {
		h[name] = make([]string, len(values))
		for i, v := range values {
			h[name][i] = string(v)
		}
	}
	return h, nil
}

// checked gives the entry with its State, or refuses what no journal takes.
func checked(op string, e onceclient.Entry) (onceclient.Entry, error) {
	e.State = cmp.Or(e.State, onceclient.Open)
	if err := e.Validate(); err != nil {
		return onceclient.Entry{}, fmt.Errorf("%s: %w", op, err)
	}
	return e, nil
}
