package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
)

// keysFlag is for commands that work on keys alone, in any store of the library's.
type keysFlag struct {
	Store string `default:"sqlite:onlyonce.db" placeholder:"URL" help:"The store: sqlite:PATH, postgres://…?schema=NAME (the schema may be left out), postgres+portable://…, mysql://…, redis://…?prefix=NAME or dynamodb://TABLE?region=…"`
}

// with opens the store for fn as it is. What is not there is not made.
func (f keysFlag) with(ctx context.Context, fn func(*keystore.Store) error) error {
	if err := f.there(); err != nil {
		return err
	}
	s, err := keystore.Open(ctx, f.Store)
	if err != nil {
		return err
	}
	return errors.Join(fn(s), s.Close())
}

// there tells a file that is missing from one without tables.
func (f keysFlag) there() error {
	if path, ok := strings.CutPrefix(f.Store, "sqlite:"); ok {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return &usageError{fmt.Sprintf("--store: there is no file %s", path), "name the file that your service uses: --store sqlite:PATH"}
		}
	}
	return nil
}
