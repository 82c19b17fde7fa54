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
	unfinished string // why it cannot be declared away: a step has begun and has no end, or has changed
	recovering bool   // it was the Recover function that ran
}

// decide is the table of rules O2 to O5: store whatever may have had an
// effect, free the key only on proof of none. reason is for people.
func decide(r run) (act action, reason string) {
	if r.mode == modeSteps && r.unfinished != "" {
		return actPark, r.unfinished
	}
	if r.recovering {
		return decideRecovered(r)
	}
	switch r.outcome {
	case Final:
		if !r.failed && r.answer.Status >= 200 && r.answer.Status <= 599 {
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
		return actRelease, "the handler failed"
	case refusing(r.answer.Status):
		return actRelease, "refused by the handler"
	default:
		return actComplete, ""
	}
}

// refusing are the statuses of a handler that has turned the caller away.
func refusing(status int) bool {
	return status == 401 || status == 403 || status == 425 || status == 429
}

// decideRecovered judges a Recover function. It was asked what happened: only
// its explicit word frees the key, and whatever is no answer leaves it in
// doubt. On5xx speaks of the handler, not of it.
func decideRecovered(r run) (act action, reason string) {
	status := r.answer.Status
	final := r.outcome == Final && status >= 200 && status <= 599
	byStatus := r.outcome == ByStatus && status >= 200 && status < 500 && status != 408 && !refusing(status)
	switch {
	case !r.failed && r.outcome == NotApplied:
		return actRelease, "recovering it proved that it had no effect"
	case !r.failed && (final || byStatus):
		return actComplete, ""
	default:
		return actPark, ReasonNotRecovered
	}
}
