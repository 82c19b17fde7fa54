// Command onlyonce runs the payments service and looks after its keys.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/onlyonce-go/onlyonce/apps/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
