package processor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"time"
)

const (
	maxBody = 64 << 10
	maxKey  = 255
)

// command is a validated request to move money.
type command struct {
	key, digest string
	// attempt names what is attempted, for the fault that strikes only the first
	// time: the reference, else the key.
	attempt   string
	reference string
	fault     fault
	// decide makes the entry to record, or says why there is none.
	decide func(now time.Time) (entry, *problem)
}

func (s *Server) createCharge(w http.ResponseWriter, r *http.Request) {
	create(s, w, r, func(request ChargeRequest) (command, *problem) {
		card, p := request.check()
		return command{reference: request.Reference, fault: card.fault, decide: func(now time.Time) (entry, *problem) {
			return entry{Charge: newCharge(request, card, now)}, nil
		}}, p
	})
}

func (s *Server) createRefund(w http.ResponseWriter, r *http.Request) {
	create(s, w, r, func(request RefundRequest) (command, *problem) {
		f, p := request.check()
		return command{reference: request.Reference, fault: f, decide: func(now time.Time) (entry, *problem) {
			charge, p := s.ledger.reserve(request.Charge, request.Amount)
			if p != nil {
				return entry{}, p
			}
			return entry{Refund: newRefund(request, charge, now)}, nil
		}}, p
	})
}

// create reads a request, makes a command of it and carries that out.
func create[R any](s *Server, w http.ResponseWriter, r *http.Request, understand func(R) (command, *problem)) {
	body, p := s.receive(r)
	var request R
	if p == nil {
		p = decodeInto(body, &request)
	}
	var c command
	if p == nil {
		c, p = understand(request)
	}
	if p != nil {
		refuse(w, p.status, p.code, p.message)
		return
	}
	s.execute(w, r, s.command(r, body, c))
}

// receive reads the request's body and checks its key.
func (s *Server) receive(r *http.Request) ([]byte, *problem) {
	keys := r.Header.Values(HeaderKey)
	switch {
	case len(keys) > 1:
		return nil, invalid("there is more than one %s", HeaderKey)
	case len(keys) == 1 && (keys[0] == "" || len(keys[0]) > maxKey):
		return nil, invalid("%s must have 1 to %d characters", HeaderKey, maxKey)
	case len(keys) == 0 && !s.config.KeysOptional && !s.config.IgnoreKeys:
		return nil, &problem{http.StatusBadRequest, CodeKeyRequired, HeaderKey + " is required"}
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, invalid("read body: %v", err)
	}
	if len(body) > maxBody {
		return nil, invalid("the body is longer than %d bytes", maxBody)
	}
	return body, nil
}

func decodeInto(body []byte, into any) *problem {
	if err := decodeStrictly(body, into); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// command completes c with what the request's headers and bytes say.
func (s *Server) command(r *http.Request, body []byte, c command) command {
	key := r.Header.Get(HeaderKey)
	switch {
	case c.reference != "": // a client that takes a new key for a new try keeps it
		c.attempt = "reference " + r.URL.Path + " " + c.reference
	case key != "":
		c.attempt = "key " + key
	}
	if !s.config.IgnoreKeys {
		c.key = key
	}
	sum := sha256.Sum256(append([]byte(r.URL.Path+"\n"), body...))
	c.digest = hex.EncodeToString(sum[:])
	return c
}

// execute answers a command: with what was answered before, or by carrying it
// out. The client hears nothing before it is recorded.
func (s *Server) execute(w http.ResponseWriter, r *http.Request, c command) {
	claimed, answered, p := s.ledger.claim(c.key, c.digest, s.now())
	if answered != nil {
		w.Header().Set(HeaderReplayed, "true")
		answer(w, *answered)
		return
	}
	if p != nil {
		refuse(w, p.status, p.code, p.message)
		return
	}
	e, struck, p := s.perform(r, c, claimed)
	switch {
	case p != nil:
		refuse(w, p.status, p.code, p.message)
	case struck:
		s.strike(w, r, c.fault)
	default:
		answer(w, e)
	}
}

// perform carries c out and records it, and gives the claim back at its end. It
// reports whether c's fault strikes; where that is to happen before the effect,
// nothing was charged.
func (s *Server) perform(r *http.Request, c command, claimed *inFlight) (e entry, struck bool, p *problem) {
	defer s.ledger.release(claimed)
	if c.fault.act != actNothing {
		struck = c.fault.always || s.ledger.strikes(c.attempt)
	}
	if struck && c.fault.always {
		return entry{}, true, nil
	}
	if struck && c.fault.before {
		return entry{}, true, s.record(entry{At: s.now(), Struck: c.attempt})
	}
	if s.config.Work != nil {
		s.config.Work(context.WithoutCancel(r.Context()), c.reference)
	}
	now := s.now()
	e, p = c.decide(now)
	if p != nil {
		return entry{}, false, p
	}
	e.At, e.Key, e.Digest = now, c.key, c.digest
	if struck {
		e.Struck = c.attempt
	}
	return e, struck, s.record(e)
}

// record makes e durable and known.
func (s *Server) record(e entry) *problem {
	if err := s.journal.append(e, func() { s.ledger.apply(e) }); err != nil {
		return &problem{http.StatusServiceUnavailable, CodeUnavailable, err.Error()}
	}
	return nil
}

// answer writes what a recorded entry says: the same at every replay.
func answer(w http.ResponseWriter, e entry) {
	switch {
	case e.Refund != nil:
		respond(w, http.StatusCreated, e.Refund)
	case e.Charge.Succeeded():
		respond(w, http.StatusCreated, e.Charge)
	default:
		respond(w, http.StatusPaymentRequired, e.Charge)
	}
}

// now returns the time as the journal keeps it.
func (s *Server) now() time.Time {
	return s.config.Now().UTC().Truncate(time.Microsecond)
}
