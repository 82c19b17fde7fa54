package tests_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) {
	for env, main := range map[string]func(text string) error{workerEnv: work, consumerEnv: consumeOne} {
		if text := os.Getenv(env); text != "" {
			if err := main(text); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	flag.Parse()
	// Cells of the matrices wait for leases most of the time.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	if err := fewerLists(); err != nil {
		panic(err)
	}
	code := testserver.Run(m)
	if built.dir != "" {
		if err := os.RemoveAll(built.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// fewerLists has the tests of random lists of operations, which run each on up to a
// dozen stores here, try a third of them; -rapid.checks says how many, and a soak tries all.
func fewerLists() error {
	said := os.Getenv("ONLYONCE_SOAK") != "" || os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "rapid.checks" })
	if said {
		return nil
	}
	return flag.Set("rapid.checks", "30")
}

// root is the top of the checkout: tests run in their package's folder.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
