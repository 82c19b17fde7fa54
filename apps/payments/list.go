package payments

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// The size of a page.
const (
	defaultLimit = 20
	maxLimit     = 100
)

// pageQuery asks for one page of a merchant's rows, the newest first.
type pageQuery struct {
	merchant string
	before   int64 // seq
	limit    int
	// statement lists the rows; it ends like pageOf.
	statement string
}

// of is the query with its statement.
func (q pageQuery) of(statement string) pageQuery {
	q.statement = statement
	return q
}

// pageOf is the end of a statement that lists rows.
const pageOf = " WHERE merchant = ? AND seq < ? ORDER BY seq DESC LIMIT ?"

// item is a listed row and its place.
type item struct {
	seq   int64
	value any
}

// collect reads one row more than the page has, to know whether there is more.
func collect(ctx context.Context, tx db.Tx, q pageQuery, scan func(db.Row) (item, error)) ([]item, error) {
	var items []item
	err := tx.Each(ctx, q.statement, []any{q.merchant, q.before, q.limit + 1}, func(row db.Row) error {
		i, err := scan(row)
		items = append(items, i)
		return err
	})
	return items, err
}

// page is the body of a list.
type page struct {
	Data []any `json:"data"`
	// NextCursor asks for the page behind; null on the last.
	NextCursor *string `json:"next_cursor"`
}

// listing serves a list in pages.
func listing(s *Service, name string, list func(context.Context, db.Tx, pageQuery) ([]item, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, fault := readPageQuery(r, name)
		if fault != nil {
			refuse(w, fault)
			return
		}
		var items []item
		err := s.cfg.DB.Read(r.Context(), func(ctx context.Context, tx db.Tx) error {
			var err error
			items, err = list(ctx, tx, q)
			return err
		})
		if err != nil {
			s.broken(w, r, fmt.Errorf("list %s: %w", name, err))
			return
		}
		p := page{Data: []any{}}
		if len(items) > q.limit {
			items = items[:q.limit]
			next := writeCursor(name, items[q.limit-1].seq)
			p.NextCursor = &next
		}
		for _, i := range items {
			p.Data = append(p.Data, i.value)
		}
		send(w, oncehttp.JSON(http.StatusOK, p))
	}
}

func readPageQuery(r *http.Request, name string) (pageQuery, *oncehttp.Problem) {
	q := pageQuery{merchant: merchantOf(r.Context()), before: math.MaxInt64, limit: defaultLimit}
	for field, values := range r.URL.Query() {
		if len(values) != 1 || (field != "limit" && field != "cursor") {
			return q, fieldProblem(field, "is not a parameter that this list knows, or stands there more than once")
		}
	}
	if text := r.URL.Query().Get("limit"); r.URL.Query().Has("limit") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxLimit {
			return q, fieldProblem("limit", fmt.Sprintf("must be from 1 to %d", maxLimit))
		}
		q.limit = n
	}
	if text := r.URL.Query().Get("cursor"); r.URL.Query().Has("cursor") {
		seq, ok := readCursor(name, text)
		if !ok {
			return q, fieldProblem("cursor", "must be the next_cursor of a page of this list")
		}
		q.before = seq
	}
	return q, nil
}

// A cursor names its list, so that it fits no other, and means nothing to
// clients.
func writeCursor(name string, seq int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(name + " " + strconv.FormatInt(seq, 10)))
}

func readCursor(name, cursor string) (int64, bool) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, false
	}
	number, ok := strings.CutPrefix(string(text), name+" ")
	seq, err := strconv.ParseInt(number, 10, 64)
	return seq, ok && err == nil && seq > 0
}

// one serves a single resource by its id.
func one(s *Service, find func(ctx context.Context, tx db.Tx, merchant, id string) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		if !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
			refuse(w, problem(codeNotFound, "There is nothing under this id.")) // no database could hold it
			return
		}
		var found any
		err := s.cfg.DB.Read(r.Context(), func(ctx context.Context, tx db.Tx) error {
			var err error
			found, err = find(ctx, tx, merchantOf(ctx), id)
			return err
		})
		switch {
		case errors.Is(err, db.ErrNoRows):
			refuse(w, problem(codeNotFound, "There is nothing under this id."))
		case err != nil:
			s.broken(w, r, fmt.Errorf("find %s: %w", r.URL.Path, err))
		default:
			send(w, oncehttp.JSON(http.StatusOK, found))
		}
	}
}
