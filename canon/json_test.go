package canon_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/canon"
)

// F2; B44: one text for each exact value.
func TestNumbers(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("9", 18)
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "0.000": "0", "-0e5": "0", "0e999999999999999999": "0",
		"10": "10", "10.0": "10", "1e1": "10", "1E+1": "10", "100e-1": "10", "-10.00": "-10",
		"1500": "1500", "999999999999999": "999999999999999", "100000000000000": "100000000000000",
		"1000000000000000": "1e15", "1e15": "1e15", "-1000000000000000": "-1e15", "-100000000000000": "-100000000000000",
		"9007199254740993": "9007199254740993", "12345678901234567890123": "12345678901234567890123",
		"12345678901234567890": "1234567890123456789e1", "0.1": "0.1", "1e-1": "0.1", "0.00001": "0.00001", "1e-5": "0.00001",
		"0.000001": "1e-6", "12.5e-7": "125e-8", "50.001": "50.001", "50.00100": "50.001", "5000.1e-2": "50.001", "0.5e3": "500", "12.345e2": "1234.5",
		"1e400": "1e400", "10e399": "1e400", "0.1e401": "1e400", "1e1000000000": "1e1000000000",
		"1e00000000000000007": "10000000", "1e" + huge: "1e" + huge, "1e-" + huge: "1e-" + huge,
		// An exponent of more than 18 digits is compared by its bytes.
		"1e" + huge + "0": "1e" + huge + "0", "10e" + huge + "0": "10e" + huge + "0", "1e0000000000000000001": "1e0000000000000000001",
	} {
		got, err := canon.JSON([]byte(in), nil)
		if err != nil || string(got) != want {
			t.Errorf("%s is %s, want %s (%v)", in, got, want, err)
		}
	}
}

// F2, F3; B39.
func TestJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, want string }{
		{` { "b" : [ 1 , { } ] , "a" : null } `, `{"a":null,"b":[1,{}]}`},
		{`{"c":{"y":1,"x":{"n":1,"m":2}},"b":2,"a":{"q":[{"l":1,"k":2}]}}`, `{"a":{"q":[{"k":2,"l":1}]},"b":2,"c":{"x":{"m":2,"n":1},"y":1}}`},
		{`"\u0041\/\ud83d\ude00\u000a\u2028"`, "\"A/\U0001f600\\n\u2028\""},
		{`{"\u0062":1,"a":2}`, `{"a":2,"b":1}`},
		{`"{\"b\":1,\"a\":2}"`, `"{\"b\":1,\"a\":2}"`}, // JSON in a string is a string
		{`[[],{},"",0,true,false,null]`, `[[],{},"",0,true,false,null]`},
		{`{"a":1,"a":1}`, ""},
		{`{"a":1,"\u0061":2}`, ""},
		{`{"x":[{"b":1,"a":1,"c":2,"a":3}]}`, ""},
		{"", ""},
		{" ", ""},
		{"{", ""},
		{"{}{}", ""},
		{"[1,]", ""},
		{`{"a"}`, ""},
		{"01", ""},
		{"+1", ""},
		{"1.", ""},
		{"NaN", ""},
		{"nul", ""},
		{`"\ud800"`, ""},
		{"\"\xff\"", ""},
		{"\ufeff{}", ""},
		{"\"\n\"", ""},
		{"{}\x00", ""},
	} {
		got, err := canon.JSON([]byte(test.in), nil)
		if (err == nil) != (test.want != "") || string(got) != test.want {
			t.Errorf("%s is %s, want %s (%v)", test.in, got, test.want, err)
		}
	}
}

// F4; B42: the policy, in its order.
func TestPolicyOnJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, policy, in, want string }{
		{"default in items", `{"defaults":{"/items/*/n":1}}`, `{"items":[{},{"n":2},3,[]]}`, `{"items":[{"n":1},{"n":2},3,[]]}`},
		{"null is not the default", `{"defaults":{"/n":1}}`, `{"n":null}`, `{"n":null}`},
		{"default needs its parent", `{"defaults":{"/o/n":1}}`, `{}`, `{}`},
		{"default is the parent of another", `{"defaults":{"/o":{},"/o/n":1}}`, `{}`, `{"o":{"n":1}}`},
		{"default in a default's items", `{"defaults":{"/o":[{},{"n":2}],"/o/*/n":1}}`, `{}`, `{"o":[{"n":1},{"n":2}]}`},
		{"default of a scalar document", `{"defaults":{"/n":1}}`, `[1]`, `[1]`},
		{"default, then decimal", `{"defaults":{"/n":"1.50"},"decimal":["/n"]}`, `{}`, `{"n":1.5}`},
		{"default, then upper", `{"defaults":{"/n":"usd"},"upper":["/n"]}`, `{"z":1}`, `{"n":"USD","z":1}`},
		{"default, then ignore", `{"defaults":{"/n":"usd"},"ignore":["/n"]}`, `{}`, `{}`},
		{"default that is not chosen", `{"defaults":{"/n":"usd"},"fields":["/m"]}`, `{"m":1}`, `{"m":1}`},
		{"default, then sets", `{"defaults":{"/n":[2,1]},"sets":["/n"]}`, `{}`, `{"n":[1,2]}`},
		{"index before every item", `{"defaults":{"/*/n":1,"/0/n":2}}`, `[{},{}]`, `[{"n":2},{"n":1}]`},
		{"ignore", `{"ignore":["/a/b","/c"]}`, `{"c":{"d":1},"a":{"b":1,"e":[]},"f":0}`, `{"a":{"e":[]},"f":0}`},
		{"ignore items", `{"ignore":["/*"]}`, `[1,{"b":1,"a":1}]`, `[]`},
		{"ignore one item", `{"ignore":["/1"]}`, `[1,2,3]`, `[1,3]`},
		{"ignore does not hide duplicates", `{"ignore":["/a"]}`, `{"a":1,"a":2}`, ""},
		{"ignore does not hide duplicates within", `{"ignore":["/a"]}`, `{"a":{"b":1,"b":1}}`, ""},
		{"star is a name in an object", `{"ignore":["/*"]}`, `{"*":1,"a":1}`, `{"a":1}`},
		{"index is a name in an object", `{"ignore":["/0","/01"]}`, `{"0":1,"01":1,"1":1}`, `{"1":1}`},
		{"fields", `{"fields":["/a/b","/c/*/d"]}`, `{"z":1,"c":[{"e":1,"d":{"y":1,"x":2}},{}],"a":{"b":[1],"z":1}}`, `{"a":{"b":[1]},"c":[{"d":{"x":2,"y":1}},{}]}`},
		{"fields, a scalar on the way counts", `{"fields":["/a/b"]}`, `{"a":"acct_1"}`, `{"a":"acct_1"}`},
		{"fields, the whole body", `{"fields":[""]}`, `{"a":1}`, `{"a":1}`},
		{"decimal", `{"decimal":["/*"]}`, `["1.0","+1","1 ","01","","1e","-","-0","1E2","\u0031",1.0,true]`, `[1,"+1","1 ","01","","1e","-",0,100,1,1,true]`},
		{"decimal on a container", `{"decimal":[""]}`, `["1.0"]`, `["1.0"]`},
		{"upper", `{"upper":["/*"]}`, `["usd","ß","ı","\u0061",{"a":"b"}]`, `["USD","ß","ı","A",{"a":"b"}]`},
		{"sets", `{"sets":["","/*"]}`, `[[3,1.0,1],[1,1,3.0],{"b":1,"a":2},[]]`, `[[1,1,3],[1,1,3],[],{"a":2,"b":1}]`},
		{"set of what is left", `{"sets":["/s"],"ignore":["/s/*/t"]}`, `{"s":[{"t":1,"v":2},{"v":1,"t":2}]}`, `{"s":[{"v":1},{"v":2}]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := canon.JSON([]byte(test.in), compile(t, test.policy))
			if (err == nil) != (test.want != "") {
				t.Errorf("error is %v", err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

// F3: up to 10,000 levels are compared by meaning, more by bytes.
func TestDepth(t *testing.T) {
	t.Parallel()
	c := compile(t, hostilePolicy)
	for _, levels := range []int{1, 9_999, 10_000, 10_001, 100_000} {
		for _, shape := range [][2]string{{"[", "]"}, {`{"b":1,"a":`, "}"}, {`[0,{"a":`, "}]"}} {
			n := levels
			if strings.Contains(shape[0], "[0") {
				n /= 2
			}
			body := strings.Repeat(shape[0], n) + "0" + strings.Repeat(shape[1], n)
			_, err := canon.JSON([]byte(body), nil)
			if deep := levels > canon.MaxDepth && strings.Count(body, "[")+strings.Count(body, "{") > canon.MaxDepth; (err != nil) != deep {
				t.Errorf("%d levels of %s: %v", levels, shape[0], err)
			}
			for _, c := range []*canon.Compiled{nil, c} {
				a, b := c.Form(jsonRequest([]byte(body))), c.Form(jsonRequest([]byte(body+" ")))
				if want := err == nil; (a.Sum() == b.Sum()) != want {
					t.Errorf("%d levels of %s: same = %v, want %v", levels, shape[0], !want, want)
				}
				checkParts(t, a)
			}
		}
	}
}

// Time stays near linear, whatever is in a body: eight times the bytes may not
// take fifty times as long. The bound is wide, for other tests run beside.
func TestHostileTime(t *testing.T) {
	t.Parallel()
	c := compile(t, hostilePolicy)
	run := func(body []byte) time.Duration {
		start := time.Now()
		f := c.Form(jsonRequest(body))
		checkParts(t, f)
		checkNamed(t, f, c.Form(jsonRequest(append([]byte(" "), body...))))
		return time.Since(start)
	}
	small, large := hostileBodies(1<<13), hostileBodies(1<<16)
	for name := range small {
		base := max(run(small[name]), 4*time.Millisecond)
		took := run(large[name])
		for range 3 { // another process may have had the processor
			if took > 50*base {
				took = run(large[name])
			}
		}
		if took > 50*base {
			t.Errorf("%s: %v, and %v for an eighth", name, took, base)
		}
	}
}

// Defaults in every item must not make a huge text of a short body: it is then
// compared by its bytes.
func TestDefaultsGrowth(t *testing.T) {
	t.Parallel()
	c := compile(t, `{"defaults":{"/*/n":"`+strings.Repeat("x", 1000)+`"}}`)
	body := []byte("[" + strings.Repeat("{},", 100_000) + "{}]")
	if _, err := canon.JSON(body, c); err == nil {
		t.Error("no error")
	}
	if c.Form(jsonRequest(body)).Sum() == c.Form(jsonRequest(append(body, ' '))).Sum() {
		t.Error("not compared by bytes")
	}
}
