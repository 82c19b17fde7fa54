package money_test

import (
	"errors"
	"fmt"
	"math"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
)

func ExampleAmount() {
	price := money.Amount{Minor: 1500, Currency: "ARS"}
	fee := money.Amount{Minor: 75, Currency: "ARS"}
	total, err := price.Add(fee)
	fmt.Println(total, err)

	_, err = total.Add(money.Amount{Minor: math.MaxInt64, Currency: "ARS"})
	fmt.Println(errors.Is(err, money.ErrOverflow))
	// Output:
	// 15.75 ARS <nil>
	// true
}

func ExampleAmount_String() {
	fmt.Println(money.Amount{Minor: 1500, Currency: "EUR"})
	fmt.Println(money.Amount{Minor: 1500, Currency: "JPY"})
	fmt.Println(money.Amount{Minor: 1500, Currency: "KWD"})
	fmt.Println(money.Amount{Minor: -5, Currency: "EUR"})
	// Output:
	// 15.00 EUR
	// 1500 JPY
	// 1.500 KWD
	// -0.05 EUR
}

func ExampleParseCurrency() {
	c, err := money.ParseCurrency("CLP")
	digits, _ := c.Exponent()
	fmt.Println(c, digits, err)

	_, err = money.ParseCurrency("clp")
	fmt.Println(err)
	// Output:
	// CLP 0 <nil>
	// parse currency "clp": unknown currency
}
