package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// storeFlag is for commands that work on the store of a service.
type storeFlag struct {
	Store string `default:"sqlite:onlyonce.db" placeholder:"URL" help:"The store: sqlite:PATH or postgres://…"`
}

// with opens the store for fn as it is. What is not there is not made: it would
// be an empty store, and all its answers wrong.
func (f storeFlag) with(ctx context.Context, fn func(*db.Database) error) (err error) {
	if path, ok := strings.CutPrefix(f.Store, "sqlite:"); ok {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return &usageError{fmt.Sprintf("--store: there is no file %s", path), "name the file that `onlyonce serve` uses: --store sqlite:PATH"}
		}
	}
	d, err := db.OpenExisting(ctx, f.Store)
	return use(d, err, fn)
}

// open opens the store for fn, and makes or updates its tables.
func (f storeFlag) open(ctx context.Context, fn func(*db.Database) error) (err error) {
	d, err := db.Open(ctx, f.Store)
	return use(d, err, fn)
}

func use(d *db.Database, failed error, fn func(*db.Database) error) (err error) {
	if failed != nil {
		return failed // names what was opened
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return fn(d)
}

// printJSON writes a value for programs.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
