// Package cli is the command onlyonce: one file for each of its commands.
//
// Exit codes: 0 done, 1 found something wrong, 2 usage, 3 unknown outcome.
package cli
