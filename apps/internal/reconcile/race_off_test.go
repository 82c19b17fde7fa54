//go:build !race

package reconcile_test

const race = false
