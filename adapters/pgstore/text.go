package pgstore

import "strings"

// form is one of the two forms that the tables may have.
type form int32

const (
	// inRow: answers and kept requests stand in the key's row.
	inRow form = iota
	// beside: they stand beside it, in partitions (Config.Partition).
	beside
)

// text is one statement in both forms. Its parameters and its results are the
// same in both, so that the form need be known only when it is sent.
type text struct{ inRow, beside string }

func (t text) in(f form) string {
	if f == beside {
		return t.beside
	}
	return t.inRow
}

// newText puts schema and form into a statement. In a statement {s} stands for the
// schema; the other names in braces are where the forms differ.
func newText(schema, ofRow, ofBeside string) text {
	named := strings.NewReplacer("{s}", schema).Replace // last: what the names stand for has it too
	return text{
		inRow:  named(strings.NewReplacer(inRowNames()...).Replace(ofRow)),
		beside: named(strings.NewReplacer(besideNames()...).Replace(ofBeside)),
	}
}

func inRowNames() []string {
	return []string{
		// What is read with a key.
		"{keys}", `{s}onlyonce_keys`, "{header}", `header`, "{body}", `body`,
		// What is kept: the columns, and whether there is something.
		"{keep}", `keep`, "{kept}", `keep`, "{request}", `keep`, "{requests}", ``,
		// What becomes of it and of the answer.
		"{keep_fresh}", `$18::bytea`,
		"{keep_taken}", `keep = CASE WHEN $18::boolean THEN $21::bytea ELSE coalesce(keep, $21::bytea) END`,
		"{keep_behind}", `CASE WHEN b.behind THEN k.keep END`,
		"{keep_stays}", `keep = CASE WHEN d.stays THEN k.keep END`,
		"{no_answer}", `header = NULL, body = NULL`,
	}
}

func besideNames() []string {
	const taken = `CASE WHEN $21::bytea IS NOT NULL AND ($18::boolean OR keep_claim IS NULL) THEN `
	return []string{
		"{keys}", `{s}onlyonce_keys LEFT JOIN {s}onlyonce_answers ON slot = answer_slot AND until = expires_at AND of_key = digest`,
		"{header}", `coalesce(answer_header, inline_header)`, "{body}", `coalesce(answer_body, inline_body)`,
		"{keep}", `keep_slot, keep_claim`, "{kept}", `keep_claim`, "{request}", `request`,
		"{requests}", ` LEFT JOIN {s}onlyonce_requests ON slot = keep_slot AND claim = keep_claim AND of_key = digest`,
		"{keep_fresh}", `CASE WHEN $18::bytea IS NOT NULL THEN ` + slotFor(`c.now + $2::bigint * interval '1 microsecond'`) + ` END,
	CASE WHEN $18::bytea IS NOT NULL THEN c.us END`,
		"{keep_taken}", `keep_slot = ` + taken + slotFor(`c.now + $3::bigint * interval '1 microsecond'`) + ` WHEN NOT $18::boolean THEN keep_slot END,
	keep_claim = ` + taken + `greatest(fence + 1, c.us) WHEN NOT $18::boolean THEN keep_claim END`,
		"{keep_behind}", `CASE WHEN b.behind THEN k.keep_slot END, CASE WHEN b.behind THEN k.keep_claim END`,
		"{keep_stays}", `keep_slot = CASE WHEN d.stays THEN k.keep_slot END, keep_claim = CASE WHEN d.stays THEN k.keep_claim END`,
		"{slot_done}", slotFor(`c.now + retention * interval '1 microsecond'`), "{slot_until}", slotFor(`c.until`),
		"{no_answer}", `answer_slot = NULL, inline_header = NULL, inline_body = NULL`,
	}
}

// slotFor is the partition for what is wanted until a moment: the one in whose period
// that is, or 0, where there is none yet or no longer one. By the time something is
// written there the partition may have been emptied and given a later period: then it
// goes with that, and what is wanted by then is moved.
func slotFor(moment string) string {
	return `coalesce((SELECT p.slot FROM {s}onlyonce_partitions p WHERE p.since <= ` + moment + ` AND ` + moment + ` < p.upto LIMIT 1), 0)`
}
