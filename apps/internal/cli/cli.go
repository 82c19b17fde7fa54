package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/apps/internal/server"
)

// The exit codes.
const (
	exitDone    = 0
	exitWrong   = 1
	exitUsage   = 2
	exitUnknown = 3
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer

	secrets []string // that no error may show
}

// grammar is all commands and their flags.
type grammar struct {
	Serve     serveCmd       `cmd:"" help:"Run the payments service."`
	Processor processorGroup `cmd:"" help:"Run the simulated card processor alone, or print its report."`
	Keys      keysCmd        `cmd:"" help:"Look at idempotency keys, and settle those in doubt."`
	Inbox     inboxCmd       `cmd:"" help:"Look at messages that consumers have parked; try them again, or drop them."`
	Reconcile reconcileCmd   `cmd:"" help:"Compare books and keys with a provider's report, and settle what it proves."`
	Call      callCmd        `cmd:"" help:"Send a request that has its effect once, however often the command is run."`
	Sweep     sweepCmd       `cmd:"" help:"Delete what has expired and decide abandoned attempts, once."`
	Estimate  estimateCmd    `cmd:"" help:"Say how much room keys will take, and measure a store."`
	Balances  balancesCmd    `cmd:"" help:"Keep merchants' balances from the service's events, and print them."`
	Merchants merchantsCmd   `cmd:"" help:"Make API keys for merchants."`
	Migrate   migrateCmd     `cmd:"" help:"Bring the tables up to date, say which migrations are pending, or print the statements."`
	Version   versionCmd     `cmd:"" help:"Print the version."`
}

const description = `Safe retries for APIs that move money.

Every flag can be given in the environment, as ONLYONCE_ and its name; serve and
processor also read a YAML file. Exit codes: 0 done, 1 found something wrong,
2 usage, 3 unknown outcome; those of call are in its help.`

// usageError is a command that cannot be understood, and what to write instead.
type usageError struct{ text, hint string }

func (e *usageError) Error() string { return e.text }

// exited stops kong where it would end the process.
type exited int

// Run runs one command and returns its exit code. It ends soon after ctx does.
func Run(ctx context.Context, args []string, std Streams) (code int) {
	defer func() {
		if v := recover(); v != nil {
			e, ok := v.(exited)
			if !ok {
				panic(v)
			}
			code = int(e)
		}
	}()
	std.secrets = secretsOf(append([]string{os.Getenv("ONLYONCE_STORE"), os.Getenv("ONLYONCE_EVENTS")}, args...))
	parser, err := kong.New(&grammar{},
		kong.Name("onlyonce"), kong.Description(description),
		kong.Configuration(loadConfig), kong.DefaultEnvars("ONLYONCE"),
		kong.Writers(std.Out, std.Err), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(std),
	)
	if err != nil {
		return std.fail(fmt.Errorf("set up commands: %w", err))
	}
	command, err := parser.Parse(args)
	if err != nil {
		return std.misused(err, args)
	}
	return std.fail(command.Run())
}

// misused reports a command line that was not understood.
func (s Streams) misused(err error, args []string) int {
	hint := "onlyonce --help lists the commands"
	if p, ok := errors.AsType[*kong.ParseError](err); ok && p.Context != nil {
		if node := p.Context.Selected(); node != nil {
			if node.Name == "call" {
				return s.fail(misusedCall(err, args))
			}
			hint = "onlyonce " + node.Path() + " --help explains the command"
			if node.Name == "migrate" {
				hint = "say up, status or print, and then the flags: onlyonce migrate status --store URL"
			}
		}
	}
	if strings.Contains(err.Error(), "--per-day") {
		hint = "say how many operations a day there are: onlyonce estimate --per-day 2000000 --retention 7d --row 1KB"
	}
	for _, arg := range args {
		if keystore.Known(arg) && strings.Contains(err.Error(), arg) {
			hint = "did you mean --store? A store is named with --store URL"
		}
	}
	return s.fail(&usageError{err.Error(), hint})
}

// fail reports an error, if it is one, and gives the exit code for it.
func (s Streams) fail(err error) int {
	if err == nil {
		return exitDone
	}
	text, hint, code := err.Error(), "", exitWrong
	if e, ok := errors.AsType[*onlyonce.Error](err); ok {
		hint, code = "", exitOf(e.Code)
	}
	if e, ok := errors.AsType[*server.Error](err); ok {
		hint, code = e.Hint, exitUsage
		if e.Taken {
			code = exitWrong
		}
	}
	if e, ok := errors.AsType[*usageError](err); ok {
		hint, code = e.hint, exitUsage
	}
	if e, ok := errors.AsType[*callError](err); ok {
		hint, code = e.hint, e.code
	}
	fmt.Fprintf(s.Err, "onlyonce: %s\n", masked(text, s.secrets))
	if hint != "" {
		fmt.Fprintf(s.Err, "hint: %s\n", masked(hint, s.secrets))
	}
	return code
}

func exitOf(code onlyonce.Code) int {
	switch code {
	case onlyonce.CodeConfig:
		return exitUsage
	case onlyonce.CodeUncertain, onlyonce.CodeOutcomeUnknown, onlyonce.CodeLeaseLost:
		return exitUnknown
	default:
		return exitWrong
	}
}
