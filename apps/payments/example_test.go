package payments_test

import (
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce/apps/payments"
)

// A merchant's API key is kept as a hash; a second one replaces it without a
// gap.
func ExampleParseMerchants() {
	key, stored := payments.NewAPIKey()
	_, next := payments.NewAPIKey()
	merchants, err := payments.ParseMerchants(map[string][]string{"acme": {stored, next}})
	fmt.Println(strings.HasPrefix(key, "sk_"), strings.HasPrefix(stored, "sha256:"), merchants.Empty(), err)
	// Output: true true false <nil>
}
