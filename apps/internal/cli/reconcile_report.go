package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// processorGroup is the simulated processor: it runs, or is asked for its report.
type processorGroup struct {
	Run    processorCmd       `cmd:"" default:"withargs" help:"Run it (the default)."`
	Report processorReportCmd `cmd:"" help:"Print what a running one has done, as a settlement report in CSV."`
}

// processorReportCmd prints a report for onlyonce reconcile.
type processorReportCmd struct {
	Processor string        `default:"http://127.0.0.1:9090" placeholder:"URL" help:"Where the processor is; serve says it when it starts."`
	Out       string        `default:"-" env:"-" placeholder:"FILE" help:"File to write it to; - is standard output."`
	Timeout   time.Duration `default:"1m" env:"-" help:"How long it may take."`
}

// Run prints. A file is there when the report is whole, and not before.
func (c *processorReportCmd) Run(ctx context.Context, std Streams) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := processor.Client{BaseURL: c.Processor, Timeout: c.Timeout, HTTP: &http.Client{Transport: transport}}
	write := func(w io.Writer) error {
		if err := client.Report(ctx, w); err != nil {
			return fmt.Errorf("processor report: %w", err)
		}
		return nil
	}
	if c.Out == "-" {
		return write(std.Out)
	}
	return writeWhole(c.Out, write)
}

// writeWhole writes a file beside its name first, so that half of it is never
// taken for all.
func writeWhole(name string, write func(io.Writer) error) error {
	part := name + ".part"
	file, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return &usageError{fmt.Sprintf("--out: %v", err), "name a file in a folder that can be written"}
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return nil
}
