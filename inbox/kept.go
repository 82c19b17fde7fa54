package inbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// kept is a message as it lies in the store. Fields are only ever added: what an older
// program kept must be read by a newer one. Names and values may be any bytes.
type kept struct {
	Version    int         `json:"version"`
	ID         []byte      `json:"id"`
	Payload    []byte      `json:"payload"`
	Attributes [][2][]byte `json:"attributes,omitempty"`
	// Error is why it was parked.
	Error string `json:"error,omitempty"`
	// Other: it came with another payload than was handled under its id.
	Other bool `json:"other,omitempty"`
	// Waits: its source has forgotten it, so it is tried until it is parked.
	Waits bool `json:"waits,omitempty"`
}

const keptVersion = 1

// keep makes the stored form of a message, with what k says beside it.
func keep(msg Message, k kept) ([]byte, error) {
	k.Version, k.ID, k.Payload = keptVersion, []byte(msg.ID), msg.Payload
	k.Error = short(k.Error, maxKeptError)
	for _, name := range slices.Sorted(maps.Keys(msg.Attributes)) {
		k.Attributes = append(k.Attributes, [2][]byte{[]byte(name), []byte(msg.Attributes[name])})
	}
	text, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("keep message: %w", err)
	}
	return text, nil
}

// decode reads the stored form of a message.
func decode(text []byte) (kept, error) {
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return kept{}, fmt.Errorf("read kept message: %w", err)
	}
	if k.Version != keptVersion {
		return kept{}, fmt.Errorf("read kept message: version %d is not known, only %d is", k.Version, keptVersion)
	}
	return k, nil
}

// message is the message that was kept.
func (k kept) message() Message {
	msg := Message{ID: string(k.ID), Payload: k.Payload}
	for _, a := range k.Attributes {
		if msg.Attributes == nil {
			msg.Attributes = map[string]string{}
		}
		msg.Attributes[string(a[0])] = string(a[1])
	}
	return msg
}

const (
	// maxKeptError is the longest error that is kept with a message, in bytes.
	maxKeptError = 4096
	// maxReasonError is the longest error in a key's reason, in bytes.
	maxReasonError = 200
)

// short is a text of one line and at most so many bytes.
func short(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= most {
		return text
	}
	cut := most - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
