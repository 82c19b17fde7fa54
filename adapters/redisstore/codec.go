package redisstore

import (
	"encoding/binary"
	"fmt"
)

// join puts texts one behind the other, each behind its length. No script looks
// inside.
func join(parts ...string) []byte {
	var b []byte
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

// split reads n texts that join wrote.
func split(s string, n int) ([]string, error) {
	rest := []byte(s)
	parts := make([]string, n)
	for i := range parts {
		size, used := binary.Uvarint(rest)
		if used <= 0 || size > uint64(len(rest)-used) {
			return nil, fmt.Errorf("read a stored entry: its part %d is damaged", i+1)
		}
		parts[i], rest = string(rest[used:used+int(size)]), rest[used+int(size):]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("read a stored entry: %d bytes are left over", len(rest))
	}
	return parts, nil
}
