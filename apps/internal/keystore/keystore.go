package keystore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// Store is an open store of keys. It is safe for concurrent use; Close it in the
// end.
type Store struct {
	onlyonce.Store
	// Kind is the scheme of its URL: "sqlite", "postgres", "memory".
	Kind string

	close  func() error
	rounds func(ctx context.Context) (int, error)
	size   func(ctx context.Context) (Size, error)
}

// Size is what the table of keys takes, as it is now: with what is expired and not
// swept yet, and with the room that is free in it.
type Size struct {
	// Keys is how many there are; of a large table an estimate.
	Keys int64
	// Table is the bytes of the rows and of their pages, Index of all indexes.
	Table, Index int64
}

// Close closes what Open opened.
func (s *Store) Close() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

// Rounds is how many sweeps in a row must leave nothing to do before nothing is
// left in the whole store (onlyonce.Sweeper's Quiet): 1, or the number of parts
// where the store looks at a part of its tables at a time.
func (s *Store) Rounds(ctx context.Context) (int, error) {
	if s.rounds == nil {
		return 1, nil
	}
	return s.rounds(ctx)
}

// Size measures the table of keys. It reads and writes nothing; on SQLite it reads
// every page of the file. A store that cannot tell returns a CodeConfig error.
func (s *Store) Size(ctx context.Context) (Size, error) {
	if s.size == nil {
		return Size{}, configError("measure store", "a store of the kind "+s.Kind+" cannot tell how large it is")
	}
	return s.size(ctx)
}

// backend is a kind of store.
type backend interface {
	// open opens a store that is there, with tables of this version.
	open(ctx context.Context, url string) (*Store, error)
}

// kind is a backend and the URLs it goes by.
type kind struct {
	schemes []string
	form    string // of its URL, for people
	backend backend
}

// kinds are all backends, in the order in which people are told of them.
func kinds() []kind {
	return []kind{
		{[]string{"sqlite"}, "sqlite:PATH", sqlite{}},
		{[]string{"postgres", "postgresql"}, "postgres://USER:PASSWORD@HOST:PORT/DATABASE", postgres{}},
		{[]string{"postgres+portable"}, "postgres+portable://USER:PASSWORD@HOST:PORT/DATABASE", portablePostgres{}},
		{[]string{"mysql", "mariadb"}, "mysql://USER:PASSWORD@HOST:PORT/DATABASE", mariadb{}},
		{[]string{"redis", "rediss", "redis+sentinel", "redis+cluster", "rediss+sentinel", "rediss+cluster"}, redisForm, redis{}},
		{[]string{"dynamodb"}, dynamoForm, dynamo{}},
		{[]string{"memory"}, "memory:", memory{}},
	}
}

// Forms are the URLs that Open knows, for messages and help.
func Forms() []string {
	var forms []string
	for _, k := range kinds() {
		forms = append(forms, k.form)
	}
	return forms
}

// Scheme is what stands before the colon of a URL.
func Scheme(url string) string {
	scheme, _, _ := strings.Cut(url, ":")
	return scheme
}

// Known tells whether a text looks like the URL of a store.
func Known(text string) bool {
	_, err := find(text)
	return err == nil
}

// HasTables tells whether a store of a URL's kind has tables that must be made.
func HasTables(url string) bool {
	k, err := find(url)
	if err != nil {
		return false
	}
	switch k.backend.(type) {
	case migrator, maker:
		return true
	}
	return false
}

// find is the backend of a URL. The URL, which may hold a password, is in no error.
func find(url string) (kind, error) {
	scheme := Scheme(url)
	for _, k := range kinds() {
		if slices.Contains(k.schemes, scheme) && scheme != url {
			return k, nil
		}
	}
	text := "the URL of a store begins with its kind"
	if scheme != url {
		text = fmt.Sprintf("there is no kind of store called %q", scheme)
	}
	return kind{}, configError("read store URL", text+": use "+strings.Join(Forms(), ", "))
}

// Open opens the store a URL names, as it is: what is not there is not made. Errors
// are *onlyonce.Error: CodeConfig for a URL that is wrong and for tables that are
// missing or of another version, else what the store says.
func Open(ctx context.Context, url string) (*Store, error) {
	k, err := find(url)
	if err != nil {
		return nil, err
	}
	if err := current(ctx, k, url); err != nil {
		return nil, err
	}
	s, err := k.backend.open(ctx, url)
	if err != nil {
		return nil, err
	}
	s.Kind = k.schemes[0]
	return s, nil
}

// take takes a parameter of ours out of a URL, which the driver would not know. It does
// not use url.Parse, which refuses several hosts.
func take(text, name string) (rest, value string, err error) {
	base, parameters, found := strings.Cut(text, "?")
	query, err := url.ParseQuery(parameters)
	if err != nil || !found || !query.Has(name) {
		return text, "", err
	}
	value = query.Get(name)
	query.Del(name)
	// A driver may take a plus sign as it stands; one that was meant is %2B here.
	return base + "?" + strings.ReplaceAll(query.Encode(), "+", "%20"), value, nil
}

// sampler is a backend that can make a store to measure.
type sampler interface {
	// scratch makes an empty store that has nothing in common with the one the URL
	// names but the server or the disk. Its Close removes it.
	scratch(ctx context.Context, url string) (*Store, error)
}

// Sampled refuses a URL of whose kind Scratch makes no store.
func Sampled(url string) error {
	k, err := find(url)
	if err != nil {
		return err
	}
	_, ok := k.backend.(sampler)
	if _, portable := k.backend.(portablePostgres); portable || !ok {
		return configError("make scratch store", "a store of the kind "+k.schemes[0]+
			" cannot be measured with a sample, only sqlite and postgres: leave --sample out; --latency measures this store itself")
	}
	return nil
}

// Scratch makes an empty store beside the one that a URL names, on the same server
// or disk, to try something out: a schema of its own in PostgreSQL, a file of its own
// for SQLite. Closing it removes it; a process that is killed before leaves it, under
// a name that begins with onlyonce_scratch.
func Scratch(ctx context.Context, url string) (*Store, error) {
	k, err := find(url)
	if err != nil {
		return nil, err
	}
	if err := Sampled(url); err != nil {
		return nil, err
	}
	b, _ := k.backend.(sampler)
	s, err := b.scratch(ctx, url)
	if err != nil {
		return nil, err
	}
	s.Kind = k.schemes[0]
	return s, nil
}

func configError(op, hint string) error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: op, Hint: hint}
}

// failed makes an error of a driver one of ours, unless it is one.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*onlyonce.Error](err); ok {
		return err
	}
	return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: op, Err: err}
}
