//go:build !linux

package filejournal_test

import "context"

func systemParts() map[string]func(ctx context.Context, dir string) error { return nil }
