package onceclient

import "context"

// IntentOf is the intent that [WithIntent] has put into a context; empty: none. It is
// for those who do a client's operations under another interface than net/http's.
func IntentOf(ctx context.Context) string { return intentOf(ctx) }
