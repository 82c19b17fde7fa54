// Package storefault wraps a store so that it fails on a script: before a call
// happens, or after it has happened with the reply lost, which is the harder
// half. It is for tests of what stands on a store, with real stores beneath.
package storefault
