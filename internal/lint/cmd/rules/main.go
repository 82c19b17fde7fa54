// Command rules prints the rules of the contract that no test names.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/onlyonce-go/onlyonce/internal/lint"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	root, err := lint.Root()
	if err != nil {
		return err
	}
	rules, err := lint.ContractRules(root)
	if err != nil {
		return err
	}
	tree, err := lint.Load(root)
	if err != nil {
		return err
	}
	unproved := tree.Unproved(rules)
	for _, id := range unproved {
		fmt.Fprintln(out, id)
	}
	_, err = fmt.Fprintf(out, "%d of %d rules are named by a test\n", len(rules)-len(unproved), len(rules))
	return err
}
