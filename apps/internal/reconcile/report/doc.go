// Package report reads what a payment provider says has moved: a settlement
// report in CSV, one line after the other, in bounded memory.
//
// A [Format] says what the columns are called, what the types of rows mean and
// in which units amounts stand. [Reader] gives the rows that move customers'
// money; it counts what it passes over, and stops at the first line that is
// broken, with its line and column. Nothing is guessed: an amount is exact or an
// error, a time is unmistakable or an error.
package report
