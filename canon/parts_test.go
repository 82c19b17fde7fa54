package canon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// groups is an object of n objects of m members each, with the changed-th
// changed in its last member.
func groups(n, m int, name string, changed int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%s%d":`, name, i)
		if i == changed {
			b.WriteString(members(m, "m", m-1))
		} else {
			b.WriteString(members(m, "m", -1))
		}
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// F6: there are at most 64 parts in 2 KiB, and as many as fit.
func TestParts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 80)
	for _, test := range []struct {
		name        string
		groups      int
		members     int
		prefix      string
		least, most int // parts, of which 4 are not in the body
		want        []string
	}{
		{"all fit", 20, 3, "g", 64, 64, []string{"/g19/m2"}},
		{"some fit", 30, 5, "g", 58, 64, []string{"/g29"}},
		{"none fits", 61, 2, "g", 1, 64, []string{"body"}},
		{"groups only", 60, 6, "g", 64, 64, []string{"/g59"}},
		{"names fit", 18, 1, long, 22, 22, []string{"/" + long + "17/m0"}},
		{"some names fit", 18, 2, long, 23, 30, []string{"/" + long + "17"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := compile(t, `{}`)
			a := c.Form(jsonRequest([]byte(groups(test.groups, test.members, test.prefix, -1))))
			b := c.Form(jsonRequest([]byte(groups(test.groups, test.members, test.prefix, test.groups-1))))
			checkParts(t, a)
			if n := len(a.Parts()); n < test.least || n > test.most {
				t.Errorf("%d parts, want %d to %d", n, test.least, test.most)
			}
			if diff := cmp.Diff(test.want, differs(t, a, b)); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}
