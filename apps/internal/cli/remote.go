package cli

import (
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/server"
	"github.com/onlyonce-go/onlyonce/provider"
)

// promiseFlags say how the processor is called and what it promises: what may be
// done when an answer is lost follows from that.
type promiseFlags struct {
	ProcessorTimeout time.Duration `default:"10s" help:"How long one call of the processor may take."`
	ProcessorMemory  time.Duration `default:"23h" help:"How long the processor honours an idempotency key, less a margin. Within it the same request is sent again under the same key. 0: it honours none, and nothing is ever sent twice."`
	ProcessorLookup  bool          `default:"true" negatable:"" help:"The processor can be asked by our reference what became of a request."`
	ProcessorVisible time.Duration `default:"0s" help:"How long the processor may take to show a request that it has carried out. That it does not find one proves something later than that. 0: never."`
}

// promises are the flags as the service takes them.
func (f promiseFlags) promises() provider.Traits {
	return provider.Traits{Memory: f.ProcessorMemory, Lookup: f.ProcessorLookup, Visible: f.ProcessorVisible}
}

// remote is a processor at a URL.
func (f promiseFlags) remote(url string) *server.Remote {
	return &server.Remote{URL: url, Timeout: f.ProcessorTimeout, Promises: f.promises()}
}
