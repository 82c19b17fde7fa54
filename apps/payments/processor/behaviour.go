package processor

import (
	"net/http"
	"strings"
)

// fault is one way to misbehave. The zero value is none.
type fault struct {
	// before says that it strikes instead of the effect, not after it.
	before bool
	// always says that it strikes at every attempt, not only at the first.
	always bool
	act    action
}

// action is what the client sees of a fault.
type action int

const (
	actNothing action = iota
	actError
	actGatewayTimeout
	actBusy
	actRateLimit
	actHang
	actReset
)

// behaviour is what a source stands for: a card that pays, one that is
// declined, or a fault on a card that pays.
type behaviour struct {
	declineCode, message string
	fault                fault
}

// Sources returns the tokens that a charge may name.
func Sources() []string {
	tokens := []string{
		"tok_visa", "tok_mastercard", "tok_amex", "tok_discover", "tok_diners", "tok_jcb", "tok_unionpay",
		"tok_chargeDeclined", "tok_chargeDeclinedInsufficientFunds",
	}
	for _, name := range Faults() {
		tokens = append(tokens, "tok_"+name)
	}
	return tokens
}

// Faults returns the names that "simulate" may have; each is a source too, with
// "tok_" before it. The first attempt with a reference, else with a key, suffers;
// later ones do not:
//
//	error_before           500, nothing was done
//	error_before_always    500, nothing was done, at every attempt
//	rate_limited           429, nothing was done
//	in_progress            409, nothing was done
//	error_after            done, then 500
//	gateway_timeout_after  done, then 504
//	reset_after            done, then the connection is reset
//	timeout                done, then silence until the client gives up
func Faults() []string {
	return []string{
		"error_before", "error_before_always", "rate_limited", "in_progress",
		"error_after", "gateway_timeout_after", "reset_after", "timeout",
	}
}

// faultNamed returns the fault called name.
func faultNamed(name string) (fault, bool) {
	switch name {
	case "error_before":
		return fault{before: true, act: actError}, true
	case "error_before_always":
		return fault{before: true, always: true, act: actError}, true
	case "rate_limited":
		return fault{before: true, act: actRateLimit}, true
	case "in_progress":
		return fault{before: true, act: actBusy}, true
	case "error_after":
		return fault{act: actError}, true
	case "gateway_timeout_after":
		return fault{act: actGatewayTimeout}, true
	case "reset_after":
		return fault{act: actReset}, true
	case "timeout":
		return fault{act: actHang}, true
	default:
		return fault{}, false
	}
}

// behaviourOf returns what the card with the token source does.
func behaviourOf(source string) (behaviour, bool) {
	name, ok := strings.CutPrefix(source, "tok_")
	if !ok {
		return behaviour{}, false
	}
	switch name {
	case "visa", "mastercard", "amex", "discover", "diners", "jcb", "unionpay":
		return behaviour{}, true
	case "chargeDeclined":
		return behaviour{declineCode: "card_declined", message: "the card was declined"}, true
	case "chargeDeclinedInsufficientFunds":
		return behaviour{declineCode: "insufficient_funds", message: "the card has insufficient funds"}, true
	}
	f, ok := faultNamed(name)
	return behaviour{fault: f}, ok
}

// strike lets the client feel f. It does not return where the client is to get
// no answer at all.
func (s *Server) strike(w http.ResponseWriter, r *http.Request, f fault) {
	switch f.act {
	case actNothing:
	case actError:
		refuse(w, http.StatusInternalServerError, CodeInternal, "something broke")
	case actGatewayTimeout:
		refuse(w, http.StatusGatewayTimeout, CodeGatewayTimeout, "the answer did not arrive in time")
	case actBusy:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusConflict, CodeInProgress, "a request with this key is in progress")
	case actRateLimit:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, CodeRateLimited, "too many requests")
	case actHang:
		s.hang(r)
		panic(http.ErrAbortHandler)
	case actReset:
		reset(w)
	}
}
