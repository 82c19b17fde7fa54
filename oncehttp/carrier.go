package oncehttp

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// headerKey finds the key in the headers that may carry it. present is true
// when one of them was sent, whatever it holds.
func (d *door) headerKey(h http.Header) (key sentKey, present bool, err error) {
	for _, name := range d.carriers {
		values := h.Values(name)
		if len(values) == 0 {
			continue
		}
		k, err := parseKey(values, d.guard.set.strict && name == HeaderKey)
		if err != nil {
			return sentKey{}, true, err
		}
		if present && k.value != key.value {
			return sentKey{}, true, keyInvalid(fmt.Sprintf("%s holds another key than a header before it", name), nil)
		}
		if !present {
			key, present = k, true
		}
	}
	return key, present, nil
}

// bodyKey finds the key in a JSON body and holds it against that of the
// headers. A body that is not JSON, or lacks the member, carries none.
func (c *call) bodyKey() error {
	pointer := c.door.route.KeyPointer
	if pointer == "" {
		return nil
	}
	var doc any
	if json.Unmarshal(c.body, &doc) != nil {
		return nil
	}
	found, ok := lookUp(doc, pointer)
	if !ok || found == nil {
		return nil
	}
	value, ok := found.(string)
	if !ok {
		return keyInvalid("the body's member "+pointer+" is not a string", nil)
	}
	if err := checkKey(value); err != nil {
		return err
	}
	if c.keyed && c.key.value != value {
		return keyInvalid("the body's member "+pointer+" holds another key than the header", nil)
	}
	if !c.keyed {
		c.key, c.keyed = sentKey{value: value, quoted: checkBare(value) != nil}, true
	}
	return nil
}

// lookUp follows a JSON Pointer (RFC 6901).
func lookUp(doc any, pointer string) (any, bool) {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		switch at := doc.(type) {
		case map[string]any:
			member, ok := at[unescape.Replace(token)]
			if !ok {
				return nil, false
			}
			doc = member
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			doc = at[i]
		default:
			return nil, false
		}
	}
	return doc, true
}
