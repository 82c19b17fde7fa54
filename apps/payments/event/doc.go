// Package event is what the payments service tells others: that money was taken, or
// given back. It is all that the publishing and the consuming side share.
package event
