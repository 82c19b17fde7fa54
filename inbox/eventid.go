package inbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
)

// EventIDFunc finds the id of an event, which is the same whenever it is sent again.
type EventIDFunc func(header http.Header, body []byte) (string, error)

// IDFromHeader takes the id from a header, which must be there once.
func IDFromHeader(name string) EventIDFunc {
	return func(header http.Header, _ []byte) (string, error) {
		values := header.Values(name)
		if len(values) != 1 || values[0] == "" {
			return "", fmt.Errorf("find event id: there are %d headers %s, one is needed", len(values), name)
		}
		return values[0], nil
	}
}

// IDFromJSON takes the id from the body, which must be one JSON value, by a JSON Pointer
// such as "/id" or "/event/id" to a string or a number; a number is taken as it is
// written. CodeConfig: that is no JSON Pointer.
func IDFromJSON(pointer string) (EventIDFunc, error) {
	at := jsontext.Pointer(pointer)
	if !at.IsValid() {
		return nil, configError("the pointer", "to the event's id is no JSON Pointer: %q; write it like /id", pointer)
	}
	return func(_ http.Header, body []byte) (string, error) {
		id, err := textAt(body, at)
		if err != nil {
			return "", fmt.Errorf("find event id at %q: %w", pointer, err)
		}
		return id, nil
	}, nil
}

var (
	errNoText   = errors.New("there is no string or number")
	errTwoTexts = errors.New("the body has more than one JSON value")
)

// textAt reads the string or number a pointer leads to. All of the body is read: where a
// name is there twice nobody can tell which one counts, and the decoder refuses it.
func textAt(body []byte, at jsontext.Pointer) (text string, err error) {
	dec := jsontext.NewDecoder(bytes.NewReader(body))
	for values := 0; ; {
		token, err := dec.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && text == "":
			return "", errNoText
		case errors.Is(err, io.EOF):
			return text, nil
		case err != nil:
			return "", err //nolint:wrapcheck // the caller says what was read
		}
		kind := token.Kind()
		if (kind == '"' || kind == '0') && !isName(dec) && dec.StackPointer() == at {
			text = token.String()
		}
		if dec.StackDepth() == 0 {
			values++
		}
		if values > 1 {
			return "", errTwoTexts
		}
	}
}

// isName tells whether what was read last is the name of an object's member.
func isName(dec *jsontext.Decoder) bool {
	kind, length := dec.StackIndex(dec.StackDepth())
	return kind == '{' && length%2 == 1
}
