// Package canon puts a request into canonical form, the input to a fingerprint.
//
// Two requests have the same form when they mean the same: JSON is compared by
// value (member order, white space and escapes do not count, numbers count by
// their exact decimal value), forms and multipart bodies by their fields, and
// everything else by its bytes. What cannot be read without loss (invalid JSON,
// duplicate member names, lone surrogates, invalid UTF-8, more than [MaxDepth]
// levels) is compared by its bytes as well, so that two requests which a reader
// could take for different ones are never taken for one.
//
// A [Policy] says what counts for one operation: defaults, chosen or ignored
// fields, decimal, upper-case and set fields, headers. [Compile] prepares it,
// and [Compiled.Form] applies it to a request.
//
// The package holds no secrets. Its digests are plain SHA-256 and must not be
// stored as they are, for a short value can be guessed from its digest: package
// onlyonce puts keyed hashes over them.
package canon

// Version is the version of the canonical form. It goes into every record, for
// a digest made under one version says nothing under another.
const Version = 1

// MaxDepth is how deep a JSON body may be nested to be compared by meaning: a
// scalar has depth 0, [] has depth 1. A deeper body is compared by its bytes.
const MaxDepth = 10_000

// maxBody is the largest body that is compared by meaning, for offsets are held
// in 32 bits and a number may grow when it is written out.
const maxBody = 1 << 29

// maxGrowth is how many times longer defaults may make a body, for a default in
// every item of an array must not let a short body become a huge text.
const maxGrowth = 16
