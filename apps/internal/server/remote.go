package server

import (
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/oncecall"
	"github.com/onlyonce-go/onlyonce/provider"
)

// Remote is a processor as the service calls it.
type Remote struct {
	// URL is where it is, Timeout bounds each call; 0 is the client's default.
	URL     string
	Timeout time.Duration
	// Promises is what it promises. The name is the service's own.
	Promises provider.Traits

	transport *oncecall.Transport
}

// Provider is the adapter to the processor. Nothing leaves it without a key, from
// inside a transaction, later than its intent says, or twice.
func (r *Remote) Provider() provider.Provider {
	r.transport = &oncecall.Transport{
		Base:    &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute},
		Keyless: r.Promises.Memory == 0,
	}
	promises := r.Promises
	promises.Name = processor.ProviderName // whatever its address
	return &processor.Provider{
		Client:   &processor.Client{BaseURL: r.URL, Timeout: r.Timeout, HTTP: oncecall.NewClient(r.transport)},
		Promises: promises,
	}
}

// Close closes the connections that are not in use.
func (r *Remote) Close() {
	if r.transport != nil {
		r.transport.CloseIdleConnections()
	}
}
