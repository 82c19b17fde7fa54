package redisstore

import "testing"

// said is an error that a server gave.
type said string

func (s said) Error() string { return string(s) }
func (s said) RedisError()   {}

// C10: what the server says to a connection proves nothing about the command that was
// sent on the one before.
func TestFateOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		sent int
		want fate
	}{
		{said("OOM command not allowed"), 0, unsent},
		{said("OOM command not allowed"), 1, refused},
		{said("OOM command not allowed"), 2, open},
		{said("NOPERM no permissions to run evalsha"), 1, refused},
		{said("ERR no such thing"), 1, refused},
		{said("WRONGPASS invalid username-password pair"), 0, unsent},
		{said("WRONGPASS invalid username-password pair"), 1, open},
		{said("NOAUTH Authentication required."), 1, open},
		{said("ERR invalid password"), 1, open},
		{said("ERR max number of clients reached"), 1, open},
	} {
		if got := fateOf(c.err, c.sent); got != c.want {
			t.Errorf("%v, sent %d times: %d, want %d", c.err, c.sent, got, c.want)
		}
	}
}
