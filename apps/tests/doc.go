// Package tests drives the built program from outside: real processes, real
// sockets, real databases, processes that are really killed.
package tests
