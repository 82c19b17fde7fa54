package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// keysPage is how many keys are read at a time.
const keysPage = 200

// intents looks at every key that may have an effect nobody has written down: in
// doubt, abandoned, or free behind a finished step. A key that is freed here was
// in doubt: these come last, so that none is looked at twice.
func (r *run) intents(ctx context.Context) error {
	for _, state := range []onlyonce.State{onlyonce.FailedRetryable, onlyonce.InProgress, onlyonce.InDoubt} {
		err := r.eachPage(ctx, state, func(ctx context.Context, records []onlyonce.Record) error {
			at, err := r.clock(ctx)
			if err != nil {
				return err
			}
			for _, rec := range records {
				if rec.State == onlyonce.InProgress && rec.LeaseEnd.After(at) {
					err = r.alive(ctx, rec)
				} else {
					err = r.consider(ctx, rec)
				}
				if err != nil {
					return err
				}
			}
			return r.flush(ctx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) eachPage(ctx context.Context, state onlyonce.State, fn func(ctx context.Context, records []onlyonce.Record) error) error {
	filter := onlyonce.ListFilter{State: state, Limit: keysPage}
	for {
		page, err := r.cfg.DB.Keys().List(ctx, filter)
		if err != nil {
			return fmt.Errorf("list keys: %w", err)
		}
		if err := fn(ctx, page.Records); err != nil {
			return err
		}
		if page.Next == "" {
			return nil
		}
		filter.After = page.Next
		r.cfg.Progress(Progress{Phase: Intents})
	}
}

// alive leaves an attempt alone that is under way. What the report has of it, it
// is about to write.
func (r *run) alive(ctx context.Context, rec onlyonce.Record) error {
	r.result.InProgress++
	for _, book := range payments.Books() {
		reference := r.referenceOf(rec.Key, book)
		rows, err := r.lookUp(ctx, report.Type(book.Type), reference)
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			if err := r.explain(ctx, Finding{Type: book.Type, Reference: reference}); err != nil {
				return err
			}
		}
	}
	return nil
}

// referenceOf is our name for the effect of a key's step.
func (r *run) referenceOf(key onlyonce.Key, b payments.Book) string {
	return onlyonce.Derivation{Key: key, Step: b.Step, Provider: r.cfg.Provider.Name}.Reference()
}

// consider judges a key, and settles it if it may.
func (r *run) consider(ctx context.Context, rec onlyonce.Record) error {
	in, err := r.intentOf(ctx, rec)
	if err != nil {
		return err
	}
	for _, v := range in.verdicts {
		if v.row.id == "" {
			continue
		}
		if err := r.explain(ctx, in.finding("", v)); err != nil {
			return err
		}
	}
	unbegun, err := r.unbegun(ctx, in)
	if err != nil {
		return err
	}
	if said, err := r.disputed(ctx, in); said || unbegun || err != nil {
		return err
	}
	p := in.plan()
	switch p {
	case planNothing:
		return nil
	case planElsewhere:
		r.result.Others++
		return nil
	case planUnknown:
		return r.unknown(ctx, in, "")
	case planApply, planNotApplied, planAnswer:
	}
	if !r.cfg.Heal {
		f := in.healable(p)
		f.Detail += "; healing (--heal) settles it"
		return r.found(ctx, f)
	}
	return r.heal(ctx, in, p)
}

// unbegun reports effects of a key that has no record of a step which could have
// had them.
func (r *run) unbegun(ctx context.Context, in intent) (said bool, err error) {
	for _, book := range payments.Books() {
		v := verdict{typ: report.Type(book.Type), step: onlyonce.StepRecord{Intent: onlyonce.Intent{Reference: r.referenceOf(in.rec.Key, book)}}}
		if slices.ContainsFunc(in.verdicts, func(o verdict) bool { return o.step.Reference == v.step.Reference }) {
			continue
		}
		rows, err := r.lookUp(ctx, v.typ, v.step.Reference)
		if err != nil {
			return said, err
		}
		for _, row := range rows {
			v.row = row
			f := in.finding(Contradiction, v)
			f.Ours = fmt.Sprintf("key %s, no step", in.rec.State)
			f.Detail = fmt.Sprintf("line %d shows an effect under the key's reference, and the key has no record of having asked for it; nothing is healed", row.line)
			said = true
			if err := errors.Join(r.explain(ctx, f), r.found(ctx, f)); err != nil {
				return said, err
			}
		}
	}
	return said, nil
}

// disputed reports what must not be healed: it is for a person to compare.
func (r *run) disputed(ctx context.Context, in intent) (said bool, err error) {
	for _, v := range in.verdicts {
		kind := AmountDiffers
		switch v.is {
		case contrary:
			kind = Contradiction
		case differs:
		case open, applied, absent, recorded, void:
			continue
		}
		f := in.finding(kind, v)
		f.Detail = v.why + ": compare both with the provider; nothing is healed"
		said = true
		if err := r.found(ctx, f); err != nil {
			return said, err
		}
	}
	return said, nil
}

// plan is what is to be done with a key.
type plan uint8

const (
	planNothing plan = iota
	// planElsewhere: another provider has to be asked.
	planElsewhere
	planUnknown
	// planApply records the results that the report proves, planNotApplied that
	// it proves there are none, and planAnswer lets the handler answer of what is
	// recorded.
	planApply
	planNotApplied
	planAnswer
)

// plan decides. A key with several unfinished steps is settled by those that are
// proved to have happened; what is left is for another run.
func (in intent) plan() plan {
	n := map[judgement]int{}
	for _, v := range in.verdicts {
		n[v.is]++
	}
	switch {
	case n[applied] > 0:
		return planApply
	case n[open] > 0:
		return planUnknown
	case in.others:
		return planElsewhere
	case n[absent] > 0 && in.rec.State != onlyonce.FailedRetryable:
		return planNotApplied
	case n[absent] > 0:
		return planUnknown // a freed key is its caller's to go on with
	case n[recorded] > 0:
		return planAnswer
	case in.unsent():
		return planNotApplied
	case in.rec.State == onlyonce.InDoubt:
		return planUnknown
	}
	return planNothing
}

// unsent tells whether the key's own steps prove that nothing is out: no request
// leaves before its step is recorded, so a key in doubt without such a step has sent
// nothing whose end is not known. What its handler declared, or a deploy has changed,
// is for a person.
func (in intent) unsent() bool {
	if in.rec.State != onlyonce.InDoubt || in.rec.Abandon != onlyonce.AbandonResume ||
		in.rec.Reason == onlyonce.ReasonDeclared || strings.HasPrefix(in.rec.Reason, onlyonce.ReasonChangedSteps) {
		return false
	}
	return !slices.ContainsFunc(in.steps, func(s onlyonce.StepRecord) bool {
		return s.State != onlyonce.StepNotApplied && s.Provider != onlyonce.ProviderStore
	})
}

// finding is about one step of a key.
func (in intent) finding(kind Kind, v verdict) Finding {
	return Finding{
		Kind: kind, Type: string(v.typ), ProviderID: v.row.id, Reference: v.step.Reference,
		Merchant: in.rec.Key.Scope, Operation: in.rec.Key.Operation(),
		Ours: fmt.Sprintf("key %s, step %s", in.rec.State, v.step.State), Theirs: v.row.shown,
	}
}

// chief is the verdict that a key's finding is about: the first that is not
// settled, else the first.
func (in intent) chief() verdict {
	for _, v := range in.verdicts {
		if v.is != recorded && v.is != void {
			return v
		}
	}
	if len(in.verdicts) > 0 {
		return in.verdicts[0]
	}
	// A key without steps is known by its own reference.
	return verdict{step: onlyonce.StepRecord{Intent: onlyonce.Intent{Reference: in.rec.Key.Operation()}}}
}

// unknown reports a key that the report does not settle.
func (r *run) unknown(ctx context.Context, in intent, also string) error {
	var whys []string
	for _, v := range in.verdicts {
		if v.why != "" {
			whys = append(whys, v.why)
		}
	}
	if also != "" {
		whys = append(whys, also)
	}
	if len(whys) == 0 {
		whys = append(whys, "no step at this provider is unfinished: "+in.rec.Reason)
	}
	f := in.finding(StillUnknown, in.chief())
	f.ProviderID, f.Detail = "", strings.Join(whys, "; ")
	return r.found(ctx, f)
}

// healable is the finding of a key that can be settled.
func (in intent) healable(p plan) Finding {
	f := in.finding(Healable, in.chief())
	f.ProviderID = ""
	f.Detail = in.proof(p)
	return f
}

// proof says what is known, for findings and audits.
func (in intent) proof(p plan) string {
	var whys []string
	for _, v := range in.verdicts {
		switch {
		case (p == planApply && v.is == applied) || (p == planNotApplied && v.is == absent):
			whys = append(whys, v.why)
		case p == planAnswer && v.is == recorded:
			whys = append(whys, "step "+v.step.Name+" is done, and the operation was never answered")
		}
	}
	if p == planNotApplied && len(whys) == 0 {
		whys = append(whys, "the key has recorded no request that could be out, and none leaves before it is recorded")
	}
	text := strings.Join(whys, "; ")
	if p == planNotApplied {
		text = "not applied: " + text
	}
	return text
}

// completed finds out about rows whose reference belongs to a key that has been
// answered: the books should have them.
func (r *run) completed(ctx context.Context) error {
	n, err := r.unmatched(ctx)
	if err != nil || n == 0 {
		return err
	}
	return r.eachPage(ctx, onlyonce.Completed, func(ctx context.Context, records []onlyonce.Record) error {
		for _, book := range payments.Books() {
			if err := r.completedIn(ctx, book, records); err != nil {
				return fmt.Errorf("look completed keys up: %w", err)
			}
		}
		return nil
	})
}

func (r *run) completedIn(ctx context.Context, book payments.Book, records []onlyonce.Record) error {
	keys := map[string]onlyonce.Record{}
	args := []any{r.lock.run, book.Type}
	for _, rec := range records {
		reference := r.referenceOf(rec.Key, book)
		keys[reference] = rec
		args = append(args, reference)
	}
	if len(keys) == 0 {
		return nil
	}
	type hit struct {
		row shownRow
		rec onlyonce.Record
	}
	var hits []hit
	err := r.each(ctx, fmt.Sprintf(selectMany, marks(len(keys))), args, func(_ context.Context, row db.Row) error {
		var h hit
		var reference string
		err := row.Scan(&h.row.line, &h.row.id, &h.row.amount, &h.row.currency, &h.row.shown, &reference)
		h.rec = keys[reference]
		hits = append(hits, h)
		return err
	})
	if err != nil {
		return err
	}
	for _, h := range hits {
		if err := r.answered(ctx, book, h.rec, h.row); err != nil {
			return err
		}
	}
	return nil
}

// written is a row of the books.
type written struct {
	seq, amount                  int64
	id, theirs, currency, status string
}

// writtenBy is what an operation has written; false: nothing.
func (r *run) writtenBy(ctx context.Context, book payments.Book, key onlyonce.Key) (written, bool, error) {
	var w written
	err := r.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, selectByOperation(book), key.Scope, key.Operation()).Scan(&w.seq, &w.id, &w.theirs, &w.amount, &w.currency, &w.status)
	})
	if errors.Is(err, db.ErrNoRows) {
		return w, false, nil
	}
	return w, err == nil, err
}

// answered judges a row whose key has its answer.
func (r *run) answered(ctx context.Context, book payments.Book, rec onlyonce.Record, row shownRow) error {
	w, found, err := r.writtenBy(ctx, book, rec.Key)
	if err != nil || (found && w.theirs == row.id) {
		return err
	}
	f := Finding{
		Type: book.Type, ProviderID: row.id, Reference: r.referenceOf(rec.Key, book), Merchant: rec.Key.Scope, Operation: rec.Key.Operation(), Theirs: row.shown,
	}
	switch {
	case found && w.status == payments.StatusSucceeded && !r.cfg.Provider.names(report.Type(book.Type), row.id):
		return r.sameByReference(ctx, f, w, row)
	case found:
		twice, err := r.shownBefore(ctx, book, w)
		if err != nil || twice {
			return err // a duplicate effect, found by itself
		}
		f.Kind, f.Ours = Contradiction, fmt.Sprintf("%s, %s, %s", w.id, w.theirs, w.status)
		f.Detail = fmt.Sprintf("line %d: the key was completed with another effect than the report shows under its reference", row.line)
	case rec.Answer.Status >= 400:
		f.Kind, f.Ours = Contradiction, fmt.Sprintf("answered with %d", rec.Answer.Status)
		f.Detail = fmt.Sprintf("line %d: the key was answered as if nothing had happened: give the money back, or let the caller know", row.line)
	default:
		f.Kind, f.Ours = MissingHere, fmt.Sprintf("answered with %d", rec.Answer.Status)
		f.Detail = fmt.Sprintf("line %d: the key is completed, settled by hand perhaps, and its %s was never written: write it down", row.line, book.Type)
	}
	if err := r.explain(ctx, f); err != nil {
		return err
	}
	return r.found(ctx, f)
}

// sameByReference matches a row that names the effect otherwise than the books do.
func (r *run) sameByReference(ctx context.Context, f Finding, w written, row shownRow) error {
	err := r.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		_, err := tx.Exec(ctx, insertOneReconciled, f.Type, w.seq, f.Reference, r.lock.run)
		return err
	})
	if err != nil {
		return err
	}
	if err := r.explain(ctx, f); err != nil {
		return err
	}
	if row.amount == w.amount && row.currency == w.currency {
		r.result.Matched[f.Type]++
		return nil
	}
	f.Kind, f.Ours = AmountDiffers, shown(w.amount, w.currency)
	f.Detail = fmt.Sprintf("line %d: compare %s with the provider's record; the books are corrected by a contrary entry, never changed", row.line, w.id)
	return r.found(ctx, f)
}

// shownBefore tells whether a report has shown a row of the books.
func (r *run) shownBefore(ctx context.Context, book payments.Book, w written) (bool, error) {
	var n int64
	err := r.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, countReconciled, book.Type, w.seq).Scan(&n)
	})
	return n > 0, err
}
