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

	"github.com/onlyonce-go/onlyonce/apps/internal/broker"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/outbox"
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
	remote    *Remote
	events    broker.Publisher // nil: nobody is told
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
	s.catchUp(ctx, running)
	s.running.Go(func() { s.service.Run(running) })
	if err := s.publish(running); err != nil {
		return errors.Join(err, listener.Close())
	}
	s.http = &http.Server{
		Handler: s.service, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
	go func() { s.served <- s.http.Serve(listener) }()
	s.URL = "http://" + listener.Addr().String()
	return nil
}

// publish publishes events until running ends, where there is a broker for them. It need
// not be reached now, or ever: events wait.
func (s *Server) publish(running context.Context) error {
	if s.cfg.Events == "" {
		return nil
	}
	address, err := broker.Parse(s.cfg.Events)
	if err != nil {
		return fmt.Errorf("--events: %w", err)
	}
	s.events = broker.NewPublisher(address)
	relay, err := outbox.New(outbox.Config{DB: s.db, Publisher: s.events, Logger: s.cfg.Logger})
	if err != nil {
		return err
	}
	s.running.Go(func() { relay.Run(running) })
	return nil
}

// catchUp looks at what a crash has left before new requests are taken, but not
// for ever: what takes longer goes on behind them, until running ends.
func (s *Server) catchUp(ctx, running context.Context) {
	caught := make(chan struct{})
	s.running.Go(func() {
		defer close(caught)
		if err := s.service.CatchUp(running); err != nil && running.Err() == nil {
			s.cfg.Logger.LogAttrs(running, slog.LevelWarn, "operations that a crash has left were not looked at; it is tried again",
				slog.String("error", err.Error()))
		}
	})
	late := time.NewTimer(s.cfg.CatchUpTimeout)
	defer late.Stop()
	select {
	case <-caught:
	case <-ctx.Done():
	case <-late.C:
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "catching up with abandoned operations takes long; it goes on while requests are served")
	}
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
		s.processor, err = StartProcessor(ctx, "127.0.0.1:0", s.cfg.simulated())
		if err != nil {
			return err
		}
		s.ProcessorURL = s.processor.URL
	}
	remote := Remote{URL: s.ProcessorURL, Timeout: s.cfg.ProcessorTimeout, Promises: *s.cfg.Promises}
	s.remote = &remote
	s.service, err = payments.New(ctx, payments.Config{
		DB: s.db, Provider: remote.Provider(),
		Merchants: s.cfg.Merchants, Lease: s.cfg.Lease, Retention: s.cfg.Retention, RecoverGrace: s.cfg.RecoverGrace,
		Logger: s.cfg.Logger,
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
	if s.remote != nil {
		s.remote.Close()
	}
	if s.events != nil {
		errs = append(errs, s.events.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(errs...)
}
