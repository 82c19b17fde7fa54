package report

import (
	"bufio"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
)

// Row is a line of a report that says that a customer's money has moved.
type Row struct {
	// Line is where it begins, from 1.
	Line int
	Type Type
	// ID is the provider's name for the effect, Reference ours; empty where the
	// report has none.
	ID, Reference string
	// Amount is in minor units, never negative. Currency is in upper case.
	Amount   int64
	Currency string
	// UnknownCurrency: there is no such currency, and Amount says nothing.
	UnknownCurrency bool
	// Shown is the amount as the report writes it.
	Shown   string
	Created time.Time
}

// Unknown counts rows of a type that has no meaning.
type Unknown struct {
	Rows int64
	// Line is that of the first.
	Line int
}

// Stats is what a reader has seen so far.
type Stats struct {
	// Rows counts those that Next has given.
	Rows int64
	// Bytes have been read from the input, which may be a little ahead.
	Bytes int64
	// Skipped counts the rows of types that are passed over, Unknown those of
	// types that have no meaning; both by the type as the report writes it.
	Skipped map[string]int64
	Unknown map[string]Unknown
	// Oldest and Newest are the first and the last moment of a row; zero without
	// rows.
	Oldest, Newest time.Time
}

// maxTypes bounds how many types one report may have.
const maxTypes = 200

// Reader reads a report. It is for one goroutine.
type Reader struct {
	format  Format
	source  *source
	csv     *csv.Reader
	columns columns
	stats   Stats
	record  []string
	line    int
}

// NewReader reads a report's header. Errors are *Error, or the input's own.
func NewReader(in io.Reader, f Format) (*Reader, error) {
	src := newSource(in)
	buffered := bufio.NewReader(src)
	r := &Reader{format: f, source: src, stats: Stats{Skipped: map[string]int64{}, Unknown: map[string]Unknown{}}}
	if err := skipMark(buffered); err != nil {
		return nil, err
	}
	r.csv = csv.NewReader(buffered)
	r.csv.ReuseRecord = true
	if f.Separator != 0 {
		r.csv.Comma = f.Separator
	}
	header, err := r.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, &Error{Line: 1, Text: "the report is empty", Hint: "a report without rows still has its header"}
	}
	if err != nil {
		return nil, r.broken(err)
	}
	if r.columns, err = f.find(header); err != nil {
		return nil, err
	}
	return r, nil
}

// Has tells whether the report can say our reference for effects of a type.
func (r *Reader) Has(t Type) bool {
	field := FieldReference
	if t == Refund && r.format.RefundReference {
		field = FieldRefundReference
	}
	_, has := r.columns.at[field]
	return has
}

// Stats is what has been seen so far. The maps are the reader's own.
func (r *Reader) Stats() Stats {
	r.stats.Bytes = r.source.read
	return r.stats
}

// Unended tells, once Next has returned io.EOF, whether the last line has no end: some
// programs write none, and a file that was cut off has none either.
func (r *Reader) Unended() bool { return r.source.last != '\n' }

// Sum is the SHA-256 of the report in hexadecimal. It is that of the whole report
// once Next has returned io.EOF.
func (r *Reader) Sum() string { return hex.EncodeToString(r.source.sum.Sum(nil)) }

// Next gives the next row that moves a customer's money, and io.EOF behind the
// last. Any other error is final: an *Error that names the place, or the input's
// own.
func (r *Reader) Next() (Row, error) {
	for {
		r.source.next()
		var err error
		r.record, err = r.csv.Read()
		if errors.Is(err, io.EOF) {
			return Row{}, io.EOF
		}
		if err != nil {
			return Row{}, r.broken(err)
		}
		r.line, _ = r.csv.FieldPos(0)
		t, known, err := r.meaning()
		if err != nil {
			return Row{}, err
		}
		if !known || t == Skip {
			continue
		}
		row, err := r.row(t)
		if err != nil {
			return Row{}, err
		}
		r.count(row)
		return row, nil
	}
}

func (r *Reader) count(row Row) {
	r.stats.Rows++
	if r.stats.Oldest.IsZero() || row.Created.Before(r.stats.Oldest) {
		r.stats.Oldest = row.Created
	}
	if row.Created.After(r.stats.Newest) {
		r.stats.Newest = row.Created
	}
}

// meaning is what the row's type means, and counts the rows that end here.
func (r *Reader) meaning() (t Type, known bool, err error) {
	text, err := r.text(FieldType)
	if err != nil {
		return "", false, err
	}
	t, known = r.format.Types[strings.ToLower(text)]
	switch {
	case text == "":
		return "", false, r.at(FieldType, faulty("every row says what it is", "is empty"))
	case !known:
		u := r.stats.Unknown[text]
		u.Rows++
		if u.Line == 0 {
			u.Line = r.line
		}
		r.stats.Unknown[strings.Clone(text)] = u
	case t == Skip:
		r.stats.Skipped[strings.Clone(text)]++
	}
	if len(r.stats.Unknown)+len(r.stats.Skipped) > maxTypes {
		return "", false, r.at(FieldType, faulty("is it the right column?", "is one of more than %d different types", maxTypes))
	}
	return t, known, nil
}

// row reads what is compared.
func (r *Reader) row(t Type) (Row, error) {
	id, reference := FieldID, FieldReference
	if t == Refund {
		if _, has := r.columns.at[FieldRefundID]; has {
			id = FieldRefundID
		}
		if r.format.RefundReference {
			reference = FieldRefundReference
		}
	}
	row := Row{Line: r.line, Type: t}
	var err error
	if row.ID, err = r.text(id); err != nil {
		return row, err
	}
	if row.ID == "" {
		return row, r.at(id, faulty("every charge and refund has the provider's id", "is empty"))
	}
	if row.Reference, err = r.text(reference); err != nil {
		return row, err
	}
	created, err := r.text(FieldCreated)
	if err != nil {
		return row, err
	}
	if row.Created, err = parseTime(created); err != nil {
		return row, r.at(FieldCreated, err)
	}
	if err := r.money(&row); err != nil {
		return row, err
	}
	// The record's memory is used again for the next.
	row.ID, row.Reference, row.Shown = strings.Clone(row.ID), strings.Clone(row.Reference), strings.Clone(row.Shown)
	return row, nil
}

// money reads the amount and its currency: what the customer was charged, where
// the report has that beside what was settled.
func (r *Reader) money(row *Row) error {
	amount, currency := FieldAmount, FieldCurrency
	if r.value(FieldPresentedAmount) != "" && r.value(FieldPresentedCurrency) != "" {
		amount, currency = FieldPresentedAmount, FieldPresentedCurrency
	}
	var err error
	if row.Currency, err = r.text(currency); err != nil {
		return err
	}
	row.Currency = strings.Clone(strings.ToUpper(row.Currency))
	if row.Shown, err = r.text(amount); err != nil {
		return err
	}
	if row.Shown == "" {
		return r.at(amount, faulty("every charge and refund has an amount", "is empty"))
	}
	minor, known, err := amountOf(row.Shown, row.Currency, r.format.Major)
	if err != nil {
		return r.at(amount, err)
	}
	row.UnknownCurrency = !known
	if row.Amount, err = signed(minor, row.Type); err != nil {
		return r.at(amount, err)
	}
	if known {
		row.Shown = money.Amount{Minor: row.Amount, Currency: money.Currency(row.Currency)}.String()
	} else {
		row.Shown += " " + row.Currency
	}
	return nil
}

// value is a field as it stands; empty where the report has none.
func (r *Reader) value(f Field) string {
	at, has := r.columns.at[f]
	if !has {
		return ""
	}
	return strings.TrimSpace(r.record[at])
}

// text is a field that can be kept.
func (r *Reader) text(f Field) (string, error) {
	value := r.value(f)
	if err := checkText(value); err != nil {
		return "", r.at(f, err)
	}
	return value, nil
}

// at says where a fault is.
func (r *Reader) at(f Field, err error) error {
	at := r.columns.at[f]
	line, column := r.csv.FieldPos(at)
	return &Error{Line: line, Column: column, Name: r.columns.names[at], Text: err.Error(), Hint: hintOf(err)}
}

// broken says where the CSV is.
func (r *Reader) broken(err error) error {
	parse, ok := errors.AsType[*csv.ParseError](err)
	switch {
	case errors.Is(err, errRecordTooLong):
		return &Error{
			Line: max(r.line, 1), Text: fmt.Sprintf("the row behind this line does not end within %d KiB", maxRecord>>10),
			Hint: "is a quote not closed? is it a CSV file?", Err: err,
		}
	case !ok:
		return fmt.Errorf("read report: %w", err)
	case errors.Is(err, csv.ErrFieldCount):
		return &Error{
			Line: parse.StartLine, Text: fmt.Sprintf("has %s, and the header has %d", plural(len(r.record), "field"), r.csv.FieldsPerRecord),
			Hint: "was the report cut off? does a field hold a comma without quotes?", Err: err,
		}
	}
	e := &Error{Line: parse.Line, Column: parse.Column, Text: "a quote stands where none may be", Hint: "a field with a quote is quoted, and the quote doubled", Err: err}
	if errors.Is(err, csv.ErrQuote) && parse.StartLine != parse.Line {
		e.Line, e.Column, e.Text = parse.StartLine, 0, fmt.Sprintf("a quote that opens in this row is not closed: see line %d, column %d", parse.Line, parse.Column)
	}
	return e
}
