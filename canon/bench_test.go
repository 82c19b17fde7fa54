package canon_test

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/canon"
)

// smallBody is a payment of about 200 bytes.
const smallBody = `{"amount":1500,"currency":"ARS","destination":"acct_1Hq3eK2eZvKYlo2C","capture":true,` +
	`"description":"order 8812, three books","metadata":{"order":"8812","cart":"c_77120","source":"web"},"retries":0}`

func jsonRequest(body []byte) canon.Request {
	return canon.Request{
		Method: http.MethodPost, Path: "/charges",
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body,
	}
}

// hostileBodies are bodies of about n bytes that are bad for something.
func hostileBodies(n int) map[string][]byte {
	repeat := func(head, item, tail string) []byte {
		return []byte(head + strings.Repeat(item, n/len(item)) + tail)
	}
	var names, deep bytes.Buffer
	names.WriteString(`{"":0`)
	for i := n / 12; i > 0; i-- {
		fmt.Fprintf(&names, `,"%07d":0`, i)
	}
	names.WriteByte('}')
	levels := min(9_000, n/20)
	deep.WriteString(strings.Repeat(`{"b":0,"a":`, levels))
	fmt.Fprintf(&deep, `"%s"`, strings.Repeat("x", n/2))
	deep.WriteString(strings.Repeat(`}`, levels))
	return map[string][]byte{
		"records":  repeat(`[`, `{"sku":"book-1871","quantity":2,"price":"19.90","currency":"EUR","gift":false},`, `{}]`),
		"zeros":    repeat(`[`, `0,`, `0]`),
		"tens":     repeat(`[`, `1e14,`, `0]`),
		"empties":  repeat(`[`, `{},`, `{}]`),
		"unsorted": repeat(`[`, `{"b":0,"a":0},`, `{}]`),
		"escapes":  repeat(`["`, `\u0041`, `"]`),
		"string":   repeat(`"`, `abcdefgh`, `"`),
		"number":   repeat(`1`, `0`, ``),
		"names":    names.Bytes(),
		"deep":     deep.Bytes(),
		"brackets": repeat(``, `[`, ``),
	}
}

// hostilePolicy puts every mark on the bodies above.
const hostilePolicy = `{"ignore":["/*/sku","/b"],"decimal":["/*/price"],"upper":["/*/currency"],` +
	`"sets":["","/*"],"defaults":{"/*/capture":true,"/*/options":{},"/*/options/auto":1}}`

func BenchmarkForm(b *testing.B) {
	for _, policy := range []string{
		`{}`, `{"defaults":{"/capture":true,"/description":""},"decimal":["/amount"],"upper":["/currency"]}`,
	} {
		b.Run(fmt.Sprintf("%dB/%dB policy", len(smallBody), len(policy)), func(b *testing.B) {
			c, r := compile(b, policy), jsonRequest([]byte(smallBody))
			b.ReportAllocs()
			for b.Loop() {
				c.Form(r)
			}
		})
	}
	for name, body := range hostileBodies(1 << 20) {
		b.Run("1MiB "+name, func(b *testing.B) {
			c, r := compile(b, `{}`), jsonRequest(body)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				c.Form(r)
			}
		})
	}
}

func BenchmarkParts(b *testing.B) {
	f := compile(b, `{}`).Form(jsonRequest([]byte(smallBody)))
	b.ReportAllocs()
	for b.Loop() {
		f.Parts()
	}
}

// allocated is how many bytes f allocates. Not parallel: it counts for the whole
// process.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Memory stays within a few times the input, whatever is in it. A policy may add
// to a body, but no more than maxGrowth times its length.
func TestMemory(t *testing.T) { // not parallel, see allocated
	for _, test := range []struct {
		policy string
		size   int
		times  uint64
	}{
		{`{}`, 1 << 20, 14},
		{hostilePolicy, 1 << 16, 300},
	} {
		for name, body := range hostileBodies(test.size) {
			c, r := compile(t, test.policy), jsonRequest(body)
			got := allocated(func() { c.Form(r) })
			t.Logf("%s, %d bytes of policy: %.1f bytes for each of the input", name, len(test.policy), float64(got)/float64(len(body)))
			if got > test.times*uint64(len(body)) {
				t.Errorf("%s: %d bytes for an input of %d", name, got, len(body))
			}
		}
	}
}

// Allocations for a small request are counted, for they are on every path.
func TestAllocations(t *testing.T) { // not parallel: testing.AllocsPerRun refuses it
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	c, r := compile(t, fuzzPolicies[0]), jsonRequest([]byte(smallBody))
	if got := testing.AllocsPerRun(100, func() { c.Form(r) }); got > 4 {
		t.Errorf("%v allocations for a form, want at most 4", got)
	}
	f := c.Form(r)
	if got := testing.AllocsPerRun(100, func() { f.Parts() }); got > 8 {
		t.Errorf("%v allocations for its parts, want at most 8", got)
	}
}
