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
	case rec.State == onlyonce.FailedRetryable && len(all) > 0:
		return append(again(kept), "its effect is recorded: nothing has to be settled")
	}
	return []string{}
}

// again is how the operation itself goes on.
func again(kept bool) []string {
	if !kept {
		return []string{"a retry by its client, with the same key, goes on behind what is recorded; the request is not kept, so nobody else can"}
	}
	return []string{"a retry by its client, the service's recoverer, or keys recover --processor URL goes on behind what is recorded"}
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
