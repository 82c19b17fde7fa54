package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/provider"
)

// judgement is what the report says of a step.
type judgement uint8

const (
	// open: nothing that settles it.
	open judgement = iota
	// applied: the report has it, as it was asked for.
	applied
	// absent: it is proved that it had no effect.
	absent
	// recorded: its result is recorded, and the report does not say otherwise.
	recorded
	// void: it is recorded as not applied, and the report does not have it.
	void
	// differs: the report has it with another amount or currency.
	differs
	// contrary: the report says otherwise than what is recorded.
	contrary
)

// shownRow is a row of the report that no book has.
type shownRow struct {
	line         int64
	id, currency string
	amount       int64 // -1: the currency is unknown
	shown        string
}

// verdict is the judgement of one step, and why.
type verdict struct {
	step onlyonce.StepRecord
	typ  report.Type
	is   judgement
	why  string
	// row is the one the report has; empty where it has none, or several.
	row shownRow
}

// intent is a key with what it has asked this provider for.
type intent struct {
	rec      onlyonce.Record
	steps    []onlyonce.StepRecord
	verdicts []verdict
	// others: it has unfinished steps that this report does not speak of.
	others bool
}

// intentOf reads and judges the steps of a key.
func (r *run) intentOf(ctx context.Context, rec onlyonce.Record) (intent, error) {
	in := intent{rec: rec}
	steps, err := r.cfg.DB.Keys().Steps(ctx, rec.Key)
	if err != nil {
		return in, fmt.Errorf("read steps: %w", err)
	}
	in.steps = steps
	// The clock is read behind the steps, so that their sends seem later than
	// they were, never earlier.
	at, err := r.clock(ctx)
	if err != nil {
		return in, err
	}
	for _, s := range steps {
		book, ours := bookOf(s)
		if s.Provider != r.cfg.Provider.Name || !ours {
			in.others = in.others || s.State == onlyonce.StepBegun
			continue
		}
		v := verdict{step: s, typ: report.Type(book.Type)}
		if err := r.judge(ctx, rec, &v, at); err != nil {
			return in, err
		}
		in.verdicts = append(in.verdicts, v)
	}
	return in, nil
}

// bookOf is the book of a step's effect.
func bookOf(s onlyonce.StepRecord) (payments.Book, bool) {
	for _, b := range payments.Books() {
		if b.Step == s.Name {
			return b, true
		}
	}
	return payments.Book{}, false
}

// clock is the database's.
func (r *run) clock(ctx context.Context) (time.Time, error) {
	var us int64
	err := r.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error { return tx.QueryRow(ctx, selectNow).Scan(&us) })
	if err != nil {
		return time.Time{}, fmt.Errorf("read clock: %w", err)
	}
	return time.UnixMicro(us), nil
}

// lookUp finds the unmatched rows with a reference.
func (r *run) lookUp(ctx context.Context, t report.Type, reference string) ([]shownRow, error) {
	if !r.shows {
		return nil, nil
	}
	var rows []shownRow
	err := r.read(ctx, func(ctx context.Context, tx db.Tx) error {
		rows = nil
		return tx.Each(ctx, selectShown, []any{r.lock.run, string(t), reference}, func(row db.Row) error {
			var s shownRow
			err := row.Scan(&s.line, &s.id, &s.amount, &s.currency, &s.shown)
			rows = append(rows, s)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("look reference up: %w", err)
	}
	return rows, nil
}

// judge says what the report makes of a step. at is a moment not earlier than its
// record was read.
func (r *run) judge(ctx context.Context, rec onlyonce.Record, v *verdict, at time.Time) error {
	rows, err := r.lookUp(ctx, v.typ, v.step.Reference)
	if err != nil {
		return err
	}
	if len(rows) == 1 {
		v.row = rows[0]
	}
	switch v.step.State {
	case onlyonce.StepNotApplied:
		v.is = void
		if len(rows) > 0 {
			v.row, v.is = rows[0], contrary
			v.why = fmt.Sprintf("line %d shows %s, and step %s is recorded as not applied", rows[0].line, rows[0].id, v.step.Name)
		}
		return nil
	case onlyonce.StepDone:
		r.judgeDone(v, rows)
		return nil
	case onlyonce.StepBegun:
	}
	switch {
	case len(rows) > 1:
		v.why = fmt.Sprintf("the report has it more than once, in lines %d and %d", rows[0].line, rows[1].line)
		return nil
	case len(rows) == 1:
		return r.judgeShown(ctx, v)
	}
	return r.judgeAbsent(ctx, rec, v, at)
}

// judgeDone compares a recorded result with what the report has under the step's
// reference and the books do not.
func (r *run) judgeDone(v *verdict, rows []shownRow) {
	v.is = recorded
	var out provider.Outcome
	if json.Unmarshal(v.step.Result, &out) != nil {
		return // its handler will say so
	}
	for _, row := range rows {
		switch {
		case out.Status != provider.Succeeded:
			v.why = fmt.Sprintf("line %d shows %s, and step %s is recorded as %s", row.line, row.id, v.step.Name, out.Status)
		case out.ID != row.id && r.cfg.Provider.names(v.typ, row.id):
			v.why = fmt.Sprintf("line %d shows %s, and step %s is recorded as %s", row.line, row.id, v.step.Name, out.ID)
		case row.amount != out.Amount || row.currency != out.Currency:
			v.row, v.is = row, differs
			v.why = fmt.Sprintf("line %d shows another amount than is recorded of step %s", row.line, v.step.Name)
			return
		default:
			continue
		}
		v.row, v.is = row, contrary
		return
	}
}

// judgeShown compares the one row of a begun step with what it asked for.
func (r *run) judgeShown(ctx context.Context, v *verdict) error {
	asked, err := r.asked(ctx, v)
	switch {
	case err != nil && onlyonce.CodeOf(err) == onlyonce.CodeStoreUnavailable:
		return err
	case err != nil:
		v.why = fmt.Sprintf("line %d shows %s, and what step %s asked for cannot be compared with it: %v", v.row.line, v.row.id, v.step.Name, err)
	case v.row.amount < 0:
		v.why = fmt.Sprintf("line %d shows %s in a currency that is none", v.row.line, v.row.id)
	case asked.Amount != v.row.amount || asked.Currency != v.row.currency:
		v.is = differs
		v.why = fmt.Sprintf("line %d shows %s, and step %s asked for %s", v.row.line, v.row.shown, v.step.Name, shown(asked.Amount, asked.Currency))
	case !r.cfg.Provider.names(v.typ, v.row.id):
		v.why = fmt.Sprintf("line %d shows it as %s, which is not the name that is kept: take a report that has the provider's own id of the %s", v.row.line, v.row.id, v.typ)
	default:
		v.is = applied
		v.why = fmt.Sprintf("line %d shows %s, %s", v.row.line, v.row.id, v.row.shown)
	}
	return nil
}

// asked is what the step asked for; for a refund that does not say, the currency is
// that of its charge.
func (r *run) asked(ctx context.Context, v *verdict) (Asked, error) {
	asked, err := r.cfg.Provider.Decode(v.typ, v.step.Request)
	if err != nil || asked.Currency != "" {
		return asked, err
	}
	err = r.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, selectChargeCurrency, asked.Charge).Scan(&asked.Currency)
	})
	switch {
	case errors.Is(err, db.ErrNoRows):
		return asked, fmt.Errorf("its charge %s is not in the books", asked.Charge)
	case err != nil:
		return asked, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "read charge of refund", Hint: "nothing was changed; start again", Err: err}
	}
	return asked, nil
}

// judgeAbsent decides whether it proves something that the report does not have a
// step. It does if the report is whole over all the time in which the step may
// have been sent, names our references, and has no row that could be it.
func (r *run) judgeAbsent(ctx context.Context, rec onlyonce.Record, v *verdict, at time.Time) error {
	book, _ := bookOf(v.step)
	if w, found, err := r.writtenBy(ctx, book, rec.Key); err != nil {
		return fmt.Errorf("look the operation up: %w", err)
	} else if found {
		v.why = "an earlier life of the key has written " + w.id + ": whether this one was carried out too is for the provider to say"
		return nil
	}
	const notThere = "the report does not have it, which proves nothing: "
	if seen, err := r.earlier(ctx, v); err != nil || seen != "" {
		v.why = notThere + seen
		return err
	}
	// Its oldest row does not say where the report begins: a straggler is older.
	from, until := r.cfg.From, r.cfg.CompleteUntil
	last := at.Add(-v.step.Idle).Add(v.step.SendWithin)
	switch {
	case from.IsZero() || until.IsZero():
		v.why = notThere + "nobody says from when until when it is complete (--from, --complete-until)"
		return nil
	case !r.reader.Has(v.typ):
		v.why = notThere + "it has no column with our references of " + v.step.Name + "s"
		return nil
	case rec.CreatedAt.Before(from.Add(r.cfg.Visible)):
		v.why = notThere + "it may have been sent before the report begins (--from)"
		return nil
	case !last.Add(r.cfg.Visible).Before(until):
		v.why = notThere + "it may have been sent until " + last.UTC().Format(time.RFC3339) + ", and reported after --complete-until"
		return nil
	}
	line, err := r.unnamed(ctx, v)
	if err != nil {
		return err
	}
	if line > 0 {
		v.why = fmt.Sprintf("%sline %d has no reference, and could be it", notThere, line)
		return nil
	}
	v.is, v.why = absent, fmt.Sprintf("the report is complete from %s to %s and does not have it",
		from.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))
	return nil
}

// earlier says what an earlier report has shown of a step that this one does not
// have; empty: nothing. One of the two is not whole, and a person has to look.
func (r *run) earlier(ctx context.Context, v *verdict) (seen string, err error) {
	err = r.read(ctx, func(ctx context.Context, tx db.Tx) error {
		var id int64
		var theirs string
		err := tx.QueryRow(ctx, selectShownBefore, r.cfg.Provider.Name, string(v.typ), v.step.Reference).Scan(&id, &theirs)
		switch {
		case errors.Is(err, db.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		seen = fmt.Sprintf("an earlier report has shown it, %s (finding %d)", theirs, id)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("look through earlier findings: %w", err)
	}
	return seen, nil
}

// unnamed finds a row without a reference that could be a step's; 0 is none.
func (r *run) unnamed(ctx context.Context, v *verdict) (line int64, err error) {
	asked, err := r.asked(ctx, v)
	if onlyonce.CodeOf(err) == onlyonce.CodeStoreUnavailable {
		return 0, err
	}
	every := 0
	if err != nil { // what it asked for is not known
		every = 1
	}
	err = r.read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, selectUnnamed, r.lock.run, string(v.typ), every, asked.Amount, asked.Currency).Scan(&line)
	})
	if err != nil {
		return 0, fmt.Errorf("look for rows without reference: %w", err)
	}
	return line, nil
}
