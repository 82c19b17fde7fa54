package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
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

// servable tells whether a URL names a database that the payments service could use: its
// tables stand beside the keys, in the connection's own schema.
func servable(store string) bool {
	switch keystore.Scheme(store) {
	case "sqlite":
		return true
	case "postgres", "postgresql":
		_, parameters, _ := strings.Cut(store, "?")
		query, err := url.ParseQuery(parameters)
		return err != nil || !query.Has("schema")
	}
	return false
}

// opened is a store as the keys commands have it.
type opened struct {
	*keystore.Store
	// payments is the database where it has tables of the payments service, whose
	// handlers can go on with its keys; nil: another program's.
	payments *db.Database
}

// look opens the store for fn as it is: by one way in, whatever it is used by.
func (f keysFlag) look(ctx context.Context, fn func(opened) error) error {
	if keystore.Scheme(f.Store) == "memory" {
		return &usageError{"--store: what is in memory is in the process that has it", "look there, with the engine's own methods"}
	}
	if !servable(f.Store) {
		return f.with(ctx, func(s *keystore.Store) error { return fn(opened{Store: s}) })
	}
	found := false
	err := storeFlag(f).with(ctx, func(d *db.Database) error {
		o := opened{Store: &keystore.Store{Store: d.Keys(), Kind: keystore.Scheme(f.Store)}}
		version, err := d.Version(ctx)
		if err != nil {
			return err
		}
		if version > 0 {
			o.payments = d
		}
		found = true
		return fn(o)
	})
	if !found && onlyonce.CodeOf(err) == onlyonce.CodeConfig {
		// Keys are what the command is about: what they lack is named before the service's.
		if missing := f.with(ctx, func(*keystore.Store) error { return nil }); missing != nil {
			return missing
		}
	}
	return err
}

// operators are the store's powers for operators.
func (o opened) operators() (onlyonce.OperatorStore, error) {
	ops, ok := onlyonce.OperatorsOf(o.Store.Store)
	if !ok {
		return nil, &usageError{
			fmt.Sprintf("--store: a store of the kind %s cannot list its keys, and keeps no audit of who settles them", o.Kind),
			"keys show KEY --scope SCOPE reads one key; a retry by its client, with the same key, goes on with it",
		}
	}
	return ops, nil
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
