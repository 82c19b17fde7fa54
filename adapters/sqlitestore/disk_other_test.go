//go:build !linux

package sqlitestore_test

import "context"

// systemParts are the parts that only Linux can play.
func systemParts() map[string]func(ctx context.Context, path string) error { return nil }
