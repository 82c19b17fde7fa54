package keystore

import (
	"context"

	"github.com/onlyonce-go/onlyonce/memstore"
)

// memory keeps keys in this process alone, and loses them with it: each Open is a new,
// empty store (Features().SingleProcess).
type memory struct{}

func (memory) open(_ context.Context, url string) (*Store, error) {
	if url != "memory:" {
		return nil, configError("open store", "memory: takes nothing behind the colon")
	}
	s, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		return nil, err
	}
	return &Store{Store: s}, nil
}
