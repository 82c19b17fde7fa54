// Package reach tells servers that cannot be reached from servers that are there and
// let nobody in. Only the former may have an operation run without its store: a wrong
// password must not switch the protection off.
package reach

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
)

// Failed tells whether a connection could not be made, or broke before anybody had
// said anything, because of the network: refused, timed out, reset, closed, no such
// name. It is false for whatever is not known to be that: errors of TLS, addresses
// that are none, sockets that may not be opened, or cannot be since this process or
// machine has no more files or memory for them. It looks at the first error of a
// chain that says something, and at nothing behind it.
func Failed(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return ofNetwork(e)
	}
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

// ofNetwork tells whether an operation failed because of the network. Alerts of TLS are
// errors of this type, too, as the operations "local error" and "remote error".
func ofNetwork(e *net.OpError) bool {
	if !slices.Contains([]string{"dial", "read", "write"}, e.Op) {
		return false
	}
	for _, own := range []error{syscall.EACCES, syscall.EPERM, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(e, own) {
			return false
		}
	}
	_, address := errors.AsType[*net.AddrError](e)
	_, network := errors.AsType[net.UnknownNetworkError](e)
	return !address && !network
}

// Each is the errors that were joined into one, at whatever depth: those of several
// servers, or of several ways to one. An error that joins none is all there is.
func Each(err error) []error {
	for at := err; at != nil; {
		if e, ok := at.(interface{ Unwrap() []error }); ok {
			var all []error
			for _, one := range e.Unwrap() {
				all = append(all, Each(one)...)
			}
			return all
		}
		at = errors.Unwrap(at)
	}
	return []error{err}
}
