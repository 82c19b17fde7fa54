package processor

import (
	"fmt"
	"net/http"
	"sync"
)

// Server is the simulated processor: an [http.Handler], safe for concurrent
// use. Make one with [NewServer] and close it when its HTTP server has stopped.
type Server struct {
	config  Config
	ledger  *ledger
	journal *journal
	mux     *http.ServeMux
	closing chan struct{}
	close   sync.Once
}

// NewServer returns a processor as config describes it, with everything that
// its journal remembers. An error means that config is faulty, or that the
// journal cannot be opened or is damaged before its last line.
//
// A crash, kill -9 included, loses nothing that was answered. What was being
// answered is either in the journal or did not happen.
func NewServer(config Config) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("new processor: %w", err)
	}
	config = config.WithDefaults()
	s := &Server{
		config:  config,
		ledger:  newLedger(config.KeyMemory),
		mux:     http.NewServeMux(),
		closing: make(chan struct{}),
	}
	journal, err := openJournal(config.Path, s.ledger.load)
	if err != nil {
		return nil, fmt.Errorf("new processor: %w", err)
	}
	s.journal = journal
	s.mux.HandleFunc("POST /v1/charges", s.createCharge)
	s.mux.HandleFunc("POST /v1/refunds", s.createRefund)
	s.mux.HandleFunc("GET /v1/charges", s.listCharges)
	s.mux.HandleFunc("GET /v1/refunds", s.listRefunds)
	s.mux.HandleFunc("GET /v1/report.csv", s.getReport)
	s.mux.HandleFunc("GET /v1/stats", s.getStats)
	s.mux.HandleFunc("GET /healthz", s.getHealth)
	return s, nil
}

// ServeHTTP answers the API described in the package documentation.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mux.ServeHTTP(w, r)
}

// Close ends the waiting of those whom a "timeout" keeps hanging and closes the
// journal. Requests that come later are refused with 503. It may be called
// again.
func (s *Server) Close() error {
	s.close.Do(func() { close(s.closing) })
	if err := s.journal.close(); err != nil {
		return fmt.Errorf("close processor: %w", err)
	}
	return nil
}

// respond writes v as JSON. The caller has made everything durable before.
func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error here means that the client is gone; there is nobody to tell.
	_, _ = w.Write(append(encode(v), '\n'))
}

// refuse writes a refusal.
func refuse(w http.ResponseWriter, status int, code, message string) {
	respond(w, status, refusal{Code: code, Message: message})
}
