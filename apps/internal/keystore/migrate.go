package keystore

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Migration is one step of a store's tables.
type Migration struct {
	// Version counts from 1.
	Version int
	// Name is what it is about; empty for one that this program does not know.
	Name string
	// Applied tells whether the store has had it, At when, by the store's clock;
	// zero: the store does not note when.
	Applied bool
	At      time.Time
}

// Known tells whether this program has it. One that it has not was applied by a
// newer program.
func (m Migration) Known() bool { return m.Name != "" }

// migrator is a backend that has tables to make.
type migrator interface {
	// files are the migrations, NNNN_name.up.sql.
	files() fs.FS
	// applied says which versions were applied, and when; a zero time stands for one
	// that is not noted. It makes nothing.
	applied(ctx context.Context, url string) (map[int]time.Time, error)
	// migrate brings the tables up to date.
	migrate(ctx context.Context, url string) error
}

// maker is a backend whose tables have no versions: they are there, or they are not.
type maker interface {
	// make makes them where they are not.
	make(ctx context.Context, url string) error
}

// Migrate makes the tables of keys, or brings them up to date; a store that needs
// none is opened, which checks it. Each migration is a transaction where the engine has such: a
// crash leaves a whole version, and what is up to date is only read. Several processes
// may migrate at once; one does, the others find it done. Keys and answers that are
// there stay.
func Migrate(ctx context.Context, url string) error {
	k, err := find(url)
	if err != nil {
		return err
	}
	switch b := k.backend.(type) {
	case migrator:
		return b.migrate(ctx, url)
	case maker:
		return b.make(ctx, url)
	}
	s, err := Open(ctx, url)
	if err != nil {
		return err
	}
	return s.Close()
}

// Status lists the migrations of the tables of keys in their order: those that this
// program has, and behind them those that a newer one has applied. It makes nothing;
// of a store that is not there all are pending. A kind of store without migrations is
// opened instead, which checks it, and the list is empty.
func Status(ctx context.Context, url string) ([]Migration, error) {
	k, err := find(url)
	if err != nil {
		return nil, err
	}
	if m, ok := k.backend.(migrator); ok {
		return status(ctx, m, url)
	}
	s, err := Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return nil, s.Close()
}

func status(ctx context.Context, m migrator, url string) ([]Migration, error) {
	list, err := ups(m.files())
	if err != nil {
		return nil, err
	}
	applied, err := m.applied(ctx, url)
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, up := range list {
		at, done := applied[up.version]
		all = append(all, Migration{up.version, up.name, done, at})
		delete(applied, up.version)
	}
	for version, at := range applied {
		all = append(all, Migration{Version: version, Applied: true, At: at})
	}
	slices.SortFunc(all, func(a, b Migration) int { return a.Version - b.Version })
	return all, nil
}

// current makes sure that a store's tables are those of this program.
func current(ctx context.Context, k kind, url string) error {
	m, ok := k.backend.(migrator)
	if !ok {
		return nil
	}
	list, err := status(ctx, m, url)
	if err != nil {
		return err
	}
	for _, mig := range list {
		switch {
		case !mig.Known():
			return configError("open store", fmt.Sprintf("the tables are of version %d, which this program does not know: use a newer program", mig.Version))
		case !mig.Applied:
			return configError("open store", fmt.Sprintf(
				"migration %d (%s) is still to be applied; is it the store that your service uses? `onlyonce migrate up --keys-only` applies it", mig.Version, mig.Name))
		}
	}
	return nil
}

// Print writes the statements of all migrations of a kind of store, for people with
// a tool of their own. It opens nothing. Each notes its version itself, so that
// Migrate and Status see what such a tool has done, unless its comments say otherwise;
// each is to be applied in one transaction, where the engine has such.
func Print(w io.Writer, url string) error {
	k, err := find(url)
	if err != nil {
		return err
	}
	m, ok := k.backend.(migrator)
	if !ok {
		return configError("print migrations", "a store of the kind "+k.schemes[0]+" has none")
	}
	list, err := ups(m.files())
	if err != nil {
		return err
	}
	for _, up := range list {
		text, err := fs.ReadFile(m.files(), up.file)
		if err != nil {
			return fmt.Errorf("read migration: %w", err)
		}
		if _, err := fmt.Fprintf(w, "-- %s\n%s\n", up.file, text); err != nil {
			return fmt.Errorf("print migrations: %w", err)
		}
	}
	return nil
}

// up is a file that brings tables to a version.
type up struct {
	version    int
	name, file string
}

// ups are the migrations of a folder, in order.
func ups(files fs.FS) ([]up, error) {
	names, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var list []up
	for _, file := range names {
		number, name, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".up.sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != len(list)+1 {
			return nil, fmt.Errorf("list migrations: %s is not number %d", file, len(list)+1)
		}
		list = append(list, up{version, name, file})
	}
	return list, nil
}
