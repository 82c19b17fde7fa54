package onlyonce

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Defaults of an Op.
const (
	DefaultLease     = 30 * time.Second
	DefaultRetention = 24 * time.Hour
	DefaultDeadline  = 2 * time.Minute
)

// maxWaiting is the longest that a request may wait for somebody else's answer.
const maxWaiting = 10 * time.Minute

// On5xx says what a wrapped handler's failure (408, 5xx, error, panic) proves.
type On5xx uint8

// The choices for a wrapped handler that fails.
const (
	// Hold: it proves nothing; the key goes in doubt.
	Hold On5xx = iota
	// ReleaseKey: this handler has no effect when it fails; the key is free.
	ReleaseKey
)

// AfterCrash says what may be done when a wrapped handler's process died.
type AfterCrash uint8

// The choices for a wrapped handler that crashed.
const (
	// HoldKey: an effect may have happened; the key goes in doubt.
	HoldKey AfterCrash = iota
	// Rerun: running the handler a second time does no harm.
	Rerun
)

// Op is an operation and how it is protected. The zero value of every field
// but Name is the careful choice.
type Op struct {
	// Name is the operation's name and part of its identity: "POST /charges".
	Name string
	// Lease is how long an attempt owns its key without renewing. Default 30 s.
	Lease time.Duration
	// Deadline bounds one run in all; the lease is renewed up to it and never
	// past it. Default 2 min; in atomic mode at most, and by default, a third
	// of a lease.
	Deadline time.Duration
	// Retention is how long the answer is replayed, from completion. Default
	// 24 h. It may not be shorter than the horizon of the callers' retries.
	Retention time.Duration
	// Wait is for how long a request waits for its answer while another attempt owns
	// its key, for callers that do not repeat what was refused as busy (rule C2). It
	// then gets that answer, or the key when it was freed. However many wait, one of
	// them looks. Default 0: it is refused at once.
	Wait time.Duration
	// MaxWait bounds what a request may ask for (Request.Wait). Default: Wait. Both
	// have to be shorter than what servers and proxies in front allow an answer to take
	// (http.Server.WriteTimeout), or who waits loses the connection. Engine.Drain ends
	// waiting when a service shuts down.
	MaxWait time.Duration
	// Policy is the text of the fingerprint policy, for the Canonicalizer.
	Policy []byte
	// On5xx is for wrapped handlers; default Hold.
	On5xx On5xx
	// AfterCrash is for wrapped handlers; default HoldKey.
	AfterCrash AfterCrash
	// Recover settles a wrapped operation that crashed or is in doubt: it
	// finds out what happened and returns the answer (Final), or NotApplied,
	// after which the handler runs, or Unknown. It owns the key meanwhile. nil
	// leaves the key in doubt.
	Recover func(ctx context.Context, record Record) (Answer, error)
	// Stored makes of a handler's answer what is stored and replayed, for a
	// transport that keeps only some headers or bounds the body. It must keep
	// status and Outcome. nil stores all of it.
	Stored func(Answer) Answer
	// FailOpen runs a wrapped handler unprotected when the store says that it
	// cannot be reached (ErrUnreachable), before anything is known of the key.
	// That is an outage of network or server. A server that is there and refuses
	// (a wrong password, no such database, no TLS, too many connections) is none:
	// a bad setting must not switch the protection off. It is counted, and the
	// result says so. Default false: 503 (rule C11). Atomic and Steps cannot do
	// without the store and ignore it.
	FailOpen bool
}

// WithDefaults returns a copy with the defaults filled in.
func (o Op) WithDefaults() Op {
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Retention == 0 {
		o.Retention = DefaultRetention
	}
	return o
}

// atomic returns a copy for atomic mode, whose deadline is at most a third of
// a lease, so that a transaction cannot outlive what a takeover waits for.
func (o Op) atomic() Op {
	if o.Deadline == 0 {
		o = o.WithDefaults()
		o.Deadline = o.Lease / 3
	}
	return o.WithDefaults()
}

// Validate joins all that is wrong with the operation, naming the fields.
func (o Op) Validate() error {
	var errs []error
	if o.Name == "" || len(o.Name) > 255 || hasControl(o.Name) || !utf8.ValidString(o.Name) {
		errs = append(errs, configError("Op.Name", "must have 1 to 255 printable characters"))
	}
	if o.Lease < 0 || (o.Lease > 0 && o.Lease < 100*time.Millisecond) || o.Lease > 24*time.Hour {
		errs = append(errs, configError("Op.Lease", "must be between 100 ms and 24 h, got %v", o.Lease))
	}
	if o.Deadline < 0 {
		errs = append(errs, configError("Op.Deadline", "must not be negative, got %v", o.Deadline))
	}
	if o.Retention < 0 || o.Retention > 10*365*24*time.Hour {
		errs = append(errs, configError("Op.Retention", "must be between 0 (default) and ten years, got %v", o.Retention))
	}
	if o.Wait < 0 || o.MaxWait < 0 || o.Wait > maxWaiting || o.MaxWait > maxWaiting {
		errs = append(errs, configError("Op.Wait and MaxWait", "must be between 0 and %v, got %v and %v", maxWaiting, o.Wait, o.MaxWait))
	}
	if o.Recover != nil && o.AfterCrash == Rerun {
		errs = append(errs, configError("Op.Recover", "contradicts AfterCrash: Rerun; choose one"))
	}
	return errors.Join(errs...)
}

// ValidateAtomic is Validate for an operation in atomic mode, whose deadline is
// at most a third of its lease.
func (o Op) ValidateAtomic() error {
	err := o.Validate()
	if a := o.atomic(); a.Deadline > a.Lease/3 {
		err = errors.Join(err, configError("Op.Deadline", "in atomic mode must be at most a third of the lease (%v), got %v", a.Lease/3, a.Deadline))
	}
	return err
}

// stored is what is kept of an answer.
func (o Op) stored(a Answer) Answer {
	if o.Stored == nil {
		return a
	}
	return o.Stored(a)
}

func configError(field, format string, args ...any) *Error {
	return &Error{Code: CodeConfig, Op: "check configuration", Hint: field + " " + fmt.Sprintf(format, args...)}
}

// mode is how a handler is protected; the table of rules O2 to O5 has a column
// for each.
type mode uint8

const (
	modeWrap mode = iota
	modeSteps
	modeAtomic
)

// abandon is what a crash leaves the next attempt to do.
func (o Op) abandon(m mode) Abandon {
	switch {
	case m == modeSteps:
		return AbandonResume
	case m == modeAtomic, o.AfterCrash == Rerun:
		return AbandonRerun
	default:
		return AbandonHold
	}
}
