package cli

import (
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// situation is a key, as it is when somebody asks what can be done about it.
type situation struct {
	rec   onlyonce.Record
	steps []onlyonce.StepRecord
	// kept: the operation can be run again without its client.
	kept bool
	// payments: the key is one of the payments service, whose commands can go on with it.
	payments bool
}

// next says what can be done about a key that is not settled.
func (s situation) next() []string {
	rec := s.rec
	all, begun := calls(s.steps)
	switch {
	case rec.State == onlyonce.InDoubt && strings.HasPrefix(rec.Reason, onlyonce.ReasonChangedSteps):
		return []string{
			"run the version of the service that recorded the steps: a retry, or its recoverer, goes on from there",
			"or settle it: find out at the provider, by our reference, what became of it; then give an answer with keys settle --applied FILE --answer-only",
		}
	case rec.State == onlyonce.InDoubt && strings.HasPrefix(rec.Reason, onlyonce.ReasonHeld):
		return []string{"it is kept for a person: onlyonce inbox show says what it is, onlyonce inbox retry tries it again, onlyonce inbox drop ends it"}
	case rec.State == onlyonce.InDoubt && rec.Reason == onlyonce.ReasonDeclared:
		return []string{"the service's log says what a person has to look at; then: keys settle --applied FILE --answer-only"}
	case rec.State == onlyonce.InDoubt && len(begun) > 0:
		return append(s.again(), s.settling(begun[0])...)
	case rec.State == onlyonce.InDoubt && len(all) > 0:
		return append(s.again(), "its effect is recorded, only the answer is missing: keys settle --applied FILE --answer-only leaves the books without it")
	case rec.State == onlyonce.InDoubt && rec.Abandon != onlyonce.AbandonResume:
		return []string{"it must be settled: nothing is recorded that a retry could go on behind, so every retry is told that the outcome is unknown, unless its service has a function to find out (Op.Recover); find out what became of it, then: keys settle --applied FILE with the answer, or --not-applied"}
	case rec.State == onlyonce.InDoubt:
		return append(s.again(), "find out what became of it, then: keys settle --applied FILE with the answer, or --not-applied")
	case rec.State == onlyonce.FailedRetryable && len(begun) > 0:
		return append(s.again(), s.settling(begun[0])...)
	case rec.State == onlyonce.FailedRetryable && len(all) > 0:
		return append(s.again(), s.givenUp())
	}
	return []string{}
}

// givenUp is what is left where a recoverer may have had all its turns.
func (s situation) givenUp() string {
	turn := "its effect is recorded: should nobody come back for the answer, "
	if s.payments {
		turn = "its effect is recorded: should the recoverer have given it up, keys recover gives it another turn, or "
	}
	return turn + "it is settled: keys settle --applied FILE --answer-only leaves the books without it"
}

// reserving says what can be done about a checkout that has ended without its
// order: nothing that runs again would give the stock back.
func reserving(order string) []string {
	return []string{
		"its order " + order + " is pending and keeps its stock, and nothing ends that by itself: find out at the provider, by the step's reference, whether money moved",
		"if it did not, set the order cancelled in payments_orders, with checkout_key NULL, and add what its payments_order_lines have to the stock of payments_products, in one transaction; if it did, write charge and transfer down as well, and the order paid",
	}
}

// again is how the operation itself goes on.
func (s situation) again() []string {
	switch {
	case !s.kept:
		return []string{"a retry by its client, with the same key, goes on behind what is recorded; the request is not kept, so nobody else can"}
	case !s.payments:
		return []string{"a retry by its client, or the Recoverer of its service, goes on behind what is recorded"}
	}
	return []string{"a retry by its client, the service's recoverer, or keys recover --processor URL, with the promises that serve is told, goes on behind what is recorded"}
}

// settling is how a person settles a step that may have had an effect.
func (s situation) settling(step onlyonce.StepRecord) []string {
	occurrence := ""
	if step.Occurrence > 0 {
		occurrence = fmt.Sprintf(`"occurrence": %d, `, step.Occurrence)
	}
	result, made := `{"status": "succeeded", "id": "…"}`, `  (or "declined", with its "code"), and the service makes answer, rows and ledger of it`
	if !s.payments {
		result, made = "…", "  with the result as the service's own code would have recorded it, and its handler makes the answer of it at the next retry"
	}
	return []string{
		fmt.Sprintf("or ask %s for %s: if it was carried out, keys settle --applied FILE with", step.Provider, step.Reference) + "\n    " +
			fmt.Sprintf(`{"step": %q, %s"result": %s}`, step.Name, occurrence, result) + "\n" + made,
		"if it is proved that nothing happened, keys settle --not-applied; that it is not found proves nothing while it may still be under way",
	}
}
