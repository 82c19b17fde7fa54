package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// Limits of the HTTP server.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second
	idleTimeout       = 2 * time.Minute
)

// Server is the running service.
type Server struct {
	// URL is where the API is, ProcessorURL where the processor is.
	URL, ProcessorURL string

	cfg       Config
	db        *db.Database
	service   *payments.Service
	processor *Processor // nil: runs elsewhere
	transport *http.Transport
	http      *http.Server
	served    chan error
	stop      context.CancelFunc // ends housekeeping
	running   sync.WaitGroup
	closing   sync.Once
	closed    error
}

// Start runs the service and returns once it accepts requests. ctx is for
// starting alone. Close the server in the end.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, served: make(chan error, 1), stop: func() {}}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	listener, err := listen(ctx, s.cfg.Listen)
	if err != nil {
		return err
	}
	if err := s.assemble(ctx); err != nil {
		return errors.Join(err, listener.Close())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.running.Go(func() { s.service.Run(running) })
	s.http = &http.Server{
		Handler: s.service, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
	go func() { s.served <- s.http.Serve(listener) }()
	s.URL = "http://" + listener.Addr().String()
	return nil
}

// listen takes an address.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &Error{
			Field: "--listen", Text: fmt.Sprintf("%s cannot be used: %v", address, err), Taken: true,
			Hint: "is something else listening there? choose another port, or 0 for a free one",
		}
	}
	return listener, nil
}

// assemble opens what the service needs and makes the service.
func (s *Server) assemble(ctx context.Context) error {
	var err error
	if s.db, err = db.Open(ctx, s.cfg.Store); err != nil {
		return err // names what was opened
	}
	s.ProcessorURL = s.cfg.Processor
	if s.ProcessorURL == "" {
		s.processor, err = StartProcessor(ctx, "127.0.0.1:0", processor.Config{Path: s.cfg.ProcessorJournal})
		if err != nil {
			return err
		}
		s.ProcessorURL = s.processor.URL
	}
	s.transport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
	s.service, err = payments.New(ctx, payments.Config{
		DB: s.db,
		Processor: &processor.Client{
			BaseURL: s.ProcessorURL, Timeout: s.cfg.ProcessorTimeout, HTTP: &http.Client{Transport: s.transport},
		},
		Merchants: s.cfg.Merchants, Lease: s.cfg.Lease, Retention: s.cfg.Retention, Logger: s.cfg.Logger,
	})
	return err
}

// Failed yields the error if a listener fails, so that the process can end.
func (s *Server) Failed() <-chan error { return s.served }

// Service is the API.
func (s *Server) Service() *payments.Service { return s.service }

// Close stops accepting requests, waits for those under way as long as
// Config.DrainTimeout says, and closes everything. What is cut off leaves keys
// that are decided when their leases end. It may be called again.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() { s.closed = s.close(ctx) })
	return s.closed
}

func (s *Server) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
	defer cancel()
	var errs []error
	if s.http != nil {
		if err := s.http.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("drain requests: %w", err), s.http.Close())
		}
	}
	s.stop()
	s.running.Wait()
	if s.service != nil {
		errs = append(errs, s.service.Close(ctx))
	}
	if s.processor != nil {
		errs = append(errs, s.processor.Close(ctx))
	}
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(errs...)
}
