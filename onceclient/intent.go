package onceclient

import "context"

type intentKey struct{}

// WithIntent names the operation that the request of a context is, for
// [Client.Transport].
func WithIntent(ctx context.Context, intent string) context.Context {
	return context.WithValue(ctx, intentKey{}, intent)
}

// IntentOf is the intent that [WithIntent] has put into a context; empty: none. It is
// for those who do a client's operations under another interface than net/http's.
func IntentOf(ctx context.Context) string {
	intent, _ := ctx.Value(intentKey{}).(string)
	return intent
}
