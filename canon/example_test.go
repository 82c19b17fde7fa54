package canon_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"log"
	"net/http"

	"github.com/onlyonce-go/onlyonce/canon"
)

// charge is a request for a charge with a JSON body.
func charge(body string) canon.Request {
	return canon.Request{
		Method: http.MethodPost,
		Path:   "/charges",
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   []byte(body),
	}
}

func Example() {
	policy, err := canon.ParsePolicy([]byte(`{
		"defaults": {"/capture": true},
		"decimal":  ["/amount"],
		"upper":    ["/currency"]
	}`))
	if err != nil {
		log.Fatal(err)
	}
	compiled, err := canon.Compile(policy)
	if err != nil {
		log.Fatal(err)
	}

	first := compiled.Form(charge(`{"amount":"50.0","currency":"usd"}`))
	retry := compiled.Form(charge(`{"currency":"USD","amount":50,"capture":true}`))
	other := compiled.Form(charge(`{"currency":"USD","amount":500}`))
	fmt.Println(first.Sum() == retry.Sum())
	fmt.Println(first.Sum() == other.Sum())
	// Output:
	// true
	// false
}

func ExampleParsePolicy() {
	policy, err := canon.ParsePolicy([]byte(`{"ignore":["/client_ts"],"headers":["api-version"]}`))
	fmt.Println(policy.Ignore, policy.Headers, err)

	_, err = canon.ParsePolicy([]byte(`{"ignored":["/client_ts"]}`))
	fmt.Println(err)
	// Output:
	// [/client_ts] [api-version] <nil>
	// parse policy: member "ignored" is not known
}

func ExampleCompile() {
	compiled, err := canon.Compile(canon.Policy{Headers: []string{"Api-Version"}})
	if err != nil {
		log.Fatal(err)
	}
	r := charge(`{"amount":1500}`)
	before := compiled.Form(r)
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	fmt.Println(before.Sum() == compiled.Form(r).Sum())
	r.Header.Set("Api-Version", "2026-06-01")
	fmt.Println(before.Sum() == compiled.Form(r).Sum())
	// Output:
	// true
	// false
}

func ExampleJSON() {
	compiled, err := canon.Compile(canon.Policy{
		Ignore:  []string{"/client_ts"},
		Decimal: []string{"/items/*/price"},
	})
	if err != nil {
		log.Fatal(err)
	}
	text, err := canon.JSON([]byte(`{"items":[{"price":"19.90"},{"price":2e1}],"client_ts":1,"id":"\u0061"}`), compiled)
	fmt.Println(string(text), err)

	_, err = canon.JSON([]byte(`{"amount":1,"amount":2}`), nil)
	fmt.Println(err)
	// Output:
	// {"id":"a","items":[{"price":19.9},{"price":20}]} <nil>
	// canonicalise JSON: object has a duplicate member name
}

func ExamplePolicy_Validate() {
	err := canon.Policy{
		Fields:  []string{"amount"},
		Headers: []string{"Authorization"},
	}.Validate()
	fmt.Println(err)
	// Output:
	// fields: "amount": pointer does not start with /
	// headers: "Authorization": credentials cannot count: a rotated one would make another request
}

func ExamplePolicy_Marshal() {
	a := canon.Policy{Headers: []string{"api-version"}, Decimal: []string{"/b", "/a"}}
	b := canon.Policy{Headers: []string{"Api-Version"}, Decimal: []string{"/a", "/b"}}
	fmt.Println(string(a.Marshal()))
	fmt.Println(a.ID() == b.ID())
	// Output:
	// {"decimal":["/a","/b"],"headers":["Api-Version"]}
	// true
}

func ExampleForm_Parts() {
	var compiled *canon.Compiled // the zero policy
	form := compiled.Form(charge(`{"amount":1500,"items":[{"sku":"a"}]}`))
	for _, part := range form.Parts() {
		fmt.Println(part.Name)
	}
	// Output:
	// m
	// p
	// c
	// Q{
	// J=/amount
	// J=/items[0/sku
}

func ExampleForm_Differs() {
	var compiled *canon.Compiled // the zero policy
	first := compiled.Form(charge(`{"amount":1500,"items":[{"sku":"a"}]}`))
	other := compiled.Form(charge(`{"amount":1500,"items":[{"sku":"b"}],"capture":false}`))

	// A store keeps the names, and a keyed hash of each digest.
	parts := first.Parts()
	var names []string
	for _, part := range parts {
		names = append(names, part.Name)
	}
	fmt.Println(other.Differs(names, func(i int, sum [32]byte) bool {
		return parts[i].Sum == sum
	}))
	// Output:
	// [/capture /items/0/sku]
}

func ExampleDecode() {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	fmt.Fprint(w, `{"amount":1500}`)
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	body, err := canon.Decode(zipped.Bytes(), "gzip", 1<<20)
	fmt.Println(string(body), err)

	_, err = canon.Decode(zipped.Bytes(), "gzip", 10)
	fmt.Println(errors.Is(err, canon.ErrTooLarge))
	// Output:
	// {"amount":1500} <nil>
	// true
}
