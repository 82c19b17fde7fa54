package consume

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Process calls what handles a message. If that panics, the message must come again: a
// panic that ended the process would end the next one too, and nobody would count it.
func Process(ctx context.Context, process inbox.ProcessFunc, msg inbox.Message) (verdict inbox.Verdict, err error) {
	defer func() {
		if v := recover(); v != nil {
			verdict, err = inbox.Again, fmt.Errorf("process message: %w", &onlyonce.PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	return process(ctx, msg)
}

// ID calls what finds the id of a message as its broker delivers it. A message that it
// panics at has none.
func ID[M any](id func(M) string, message M) (found string) {
	defer func() {
		if recover() != nil {
			found = ""
		}
	}()
	return id(message)
}
