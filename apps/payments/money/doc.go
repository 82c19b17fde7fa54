// Package money holds amounts of money as whole numbers of minor units.
//
// An [Amount] is a count of the smallest unit of a [Currency]: 1500 with "ARS"
// is fifteen pesos, 1500 with "JPY" is fifteen hundred yen, and 1500 with
// "BHD" is one and a half dinars. There are no floats and no rounding anywhere;
// arithmetic that does not fit, or that mixes currencies, is an error.
//
// The currencies are those of ISO 4217 that have a minor unit, as the list
// stood on 1 January 2026. Codes for which the standard gives none (precious
// metals, bond market units, special drawing rights, testing, no currency)
// cannot be charged and are therefore unknown here.
//
// All types are plain values and safe for concurrent use.
package money
