package cli

import (
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// next says what can be done about a key that is not settled.
func next(rec onlyonce.Record, steps []onlyonce.StepRecord, kept bool) []string {
	all, begun := calls(steps)
	switch {
	case rec.State == onlyonce.InDoubt && strings.HasPrefix(rec.Reason, onlyonce.ReasonChangedSteps):
		return []string{
			"run the version of the service that recorded the steps: a retry, or its recoverer, goes on from there",
			"or settle it: find out at the provider, by our reference, what became of it; then give an answer with keys settle --applied FILE --answer-only",
		}
	case rec.State == onlyonce.InDoubt && rec.Reason == onlyonce.ReasonDeclared:
		return []string{"the service's log says what a person has to look at; then: keys settle --applied FILE --answer-only"}
	case rec.State == onlyonce.InDoubt && len(begun) > 0:
		return append(again(kept), settling(begun[0])...)
	case rec.State == onlyonce.InDoubt && len(all) > 0:
		return append(again(kept), "its effect is recorded, only the answer is missing: keys settle --applied FILE --answer-only leaves the books without it")
	case rec.State == onlyonce.InDoubt:
		return append(again(kept), "find out what became of it, then: keys settle --applied FILE with the answer, or --not-applied")
	case rec.State == onlyonce.FailedRetryable && len(begun) > 0:
		return append(again(kept), settling(begun[0])...)
	case rec.State == onlyonce.FailedRetryable && len(all) > 0:
		return append(again(kept),
			"its effect is recorded: should the recoverer have given it up, keys recover gives it another turn, or it is settled: keys settle --applied FILE --answer-only leaves the books without it")
	}
	return []string{}
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
func again(kept bool) []string {
	if !kept {
		return []string{"a retry by its client, with the same key, goes on behind what is recorded; the request is not kept, so nobody else can"}
	}
	return []string{"a retry by its client, the service's recoverer, or keys recover --processor URL, with the promises that serve is told, goes on behind what is recorded"}
}

// settling is how a person settles a step that may have had an effect.
func settling(s onlyonce.StepRecord) []string {
	occurrence := ""
	if s.Occurrence > 0 {
		occurrence = fmt.Sprintf(`"occurrence": %d, `, s.Occurrence)
	}
	return []string{
		fmt.Sprintf("or ask %s for %s: if it was carried out, keys settle --applied FILE with", s.Provider, s.Reference) + "\n    " +
			fmt.Sprintf(`{"step": %q, %s"result": {"status": "succeeded", "id": "…"}}`, s.Name, occurrence) + "\n  (or \"declined\", with its \"code\"), and the service makes answer, rows and ledger of it",
		"if it is proved that nothing happened, keys settle --not-applied; that it is not found proves nothing while it may still be under way",
	}
}
