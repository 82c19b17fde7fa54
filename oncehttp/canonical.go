package oncehttp

import (
	"bytes"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
)

// canonical makes the canonical forms of one request.
type canonical struct {
	request canon.Request
	// compiled and text are the route's present policy.
	compiled *canon.Compiled
	text     []byte
}

// Version is the present version of the canonical form.
func (c canonical) Version() int { return canon.Version }

// Form canonicalises the request under a policy's text, which is that of an
// earlier deploy if it is not the route's.
func (c canonical) Form(version int, policy []byte) (onlyonce.Form, error) {
	if version != canon.Version {
		return nil, fmt.Errorf("canonicalise request: version %d is not known, only %d is", version, canon.Version)
	}
	if bytes.Equal(policy, c.text) {
		return c.compiled.Form(c.request), nil
	}
	parsed, err := canon.ParsePolicy(policy)
	if err != nil {
		return nil, fmt.Errorf("read recorded policy: %w", err)
	}
	compiled, err := canon.Compile(parsed)
	if err != nil {
		return nil, fmt.Errorf("read recorded policy: %w", err)
	}
	return compiled.Form(c.request), nil
}

// canonical is the request as it is fingerprinted: the resolved path as it was
// sent, the raw query, and the decoded body.
func (c *call) canonical() canonical {
	return canonical{
		request: canon.Request{
			Method: c.r.Method, Path: c.r.URL.EscapedPath(), Query: c.r.URL.RawQuery,
			Header: c.r.Header, Body: c.body,
		},
		compiled: c.door.compiled,
		text:     c.door.op.Policy,
	}
}
