package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// Processor is a simulated processor that listens.
type Processor struct {
	// URL is where.
	URL string

	server *processor.Server
	http   *http.Server
	unlock func() error
	served chan error
}

// StartProcessor runs a simulated processor on an address. Close it in the end.
func StartProcessor(ctx context.Context, address string, cfg processor.Config) (*Processor, error) {
	p := &Processor{unlock: func() error { return nil }, served: make(chan error, 1)}
	if cfg.Path != "" {
		unlock, err := lockJournal(cfg.Path)
		if err != nil {
			return nil, err
		}
		p.unlock = unlock
	}
	server, err := processor.NewServer(cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start processor: %w", err), p.unlock())
	}
	listener, err := listen(ctx, address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start processor: %w", err), server.Close(), p.unlock())
	}
	p.server, p.URL = server, "http://"+listener.Addr().String()
	p.http = &http.Server{Handler: server, ReadHeaderTimeout: readHeaderTimeout}
	go func() { p.served <- p.http.Serve(listener) }()
	return p, nil
}

// Failed yields the error if the listener fails.
func (p *Processor) Failed() <-chan error { return p.served }

// Close stops it: who still waits for an answer gets none.
func (p *Processor) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := p.server.Close() // ends the waiting of "timeout"
	if p.http.Shutdown(ctx) != nil {
		err = errors.Join(err, p.http.Close())
	}
	return errors.Join(err, p.unlock())
}
