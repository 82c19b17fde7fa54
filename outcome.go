package onlyonce

// action is what is done with a key once its handler has ended.
type action uint8

const (
	actComplete action = iota + 1
	actRelease
	actPark
)

// run is what is known of a handler that has ended.
type run struct {
	mode       mode
	on5xx      On5xx
	answer     Answer
	failed     bool // error, panic or Goexit: there is no answer
	outcome    Outcome
	unfinished bool // a step has begun and has no end
}

// decide is the table of rules O2 to O5: store whatever may have had an
// effect, free the key only on proof of none. reason is for people.
func decide(r run) (act action, reason string) {
	if r.mode == modeSteps && r.unfinished {
		// An unfinished step cannot be declared away.
		return actPark, ReasonUnfinishedStep
	}
	switch r.outcome {
	case Final:
		if !r.failed {
			return actComplete, ""
		}
	case NotApplied:
		return actRelease, "the handler declared that it had no effect"
	case Unknown:
		return actPark, ReasonDeclared
	case ByStatus:
	}
	switch {
	case r.failed || r.answer.Status == 408 || r.answer.Status >= 500 || r.answer.Status < 200:
		if r.mode == modeWrap && r.on5xx == Hold {
			return actPark, ReasonFailed
		}
		return actRelease, "the handler failed without effect"
	case r.answer.Status == 401, r.answer.Status == 403, r.answer.Status == 425, r.answer.Status == 429:
		return actRelease, "refused by the handler"
	default:
		return actComplete, ""
	}
}
