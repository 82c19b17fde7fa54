package onlyonce

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// PanicError is a handler's panic as an error.
type PanicError struct {
	// Value is what the handler panicked with.
	Value any
	// Stack is where.
	Stack []byte
}

// Error gives the value, not the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// Unwrap gives the value if it is an error, so that errors.Is finds
// http.ErrAbortHandler.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

var errGoexit = errors.New("handler ended its goroutine")

// guard runs fn on a goroutine of its own and waits for it, so that a panic and
// runtime.Goexit become errors and no exit escapes accounting.
func guard[T any](fn func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = errGoexit
		defer func() {
			if v := recover(); v != nil {
				err = &PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
		value, err = fn()
	}()
	<-done
	return value, err
}
