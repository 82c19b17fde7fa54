package canon

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
)

// emit appends the text that has been read, in order. It goes as deep as the
// body is nested, which is no deeper than [MaxDepth].
func (s *scratch) emit(dst []byte) []byte {
	slices.SortFunc(s.lists, func(a, b unordered) int { return cmp.Compare(a.open, b.open) })
	return s.emitRange(dst, 0, uint32(len(s.text)), 0)
}

// emitRange appends a part of the text, in which no list before the i-th is.
func (s *scratch) emitRange(dst []byte, from, to uint32, i int) []byte {
	for i = s.nextList(i, from); i < len(s.lists) && s.lists[i].open < to; {
		l := s.lists[i]
		dst = append(dst, s.text[from:l.open]...)
		if s.text[l.open] == '[' {
			dst = s.emitSet(dst, l, i+1)
		} else {
			dst = s.emitObject(dst, l, i+1)
		}
		from = l.end
		i = s.nextList(i+1, from)
	}
	return append(dst, s.text[from:to]...)
}

// nextList is the first list from the i-th on that begins at an offset or after.
func (s *scratch) nextList(i int, offset uint32) int {
	return i + sort.Search(len(s.lists)-i, func(j int) bool { return s.lists[i+j].open >= offset })
}

// emitObject appends an object in the order of its members.
func (s *scratch) emitObject(dst []byte, l unordered, i int) []byte {
	dst = append(dst, '{')
	start := len(dst)
	for _, m := range s.listed[l.from:l.to] {
		if m.dropped() {
			continue
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(dst, s.text[m.name:m.value]...)
		dst = s.emitRange(dst, m.value, m.end, i)
	}
	return append(dst, '}')
}

// emitSet appends an array in the order of its items' canonical texts.
func (s *scratch) emitSet(dst []byte, l unordered, i int) []byte {
	// The items come out where the text will be, and are copied from there.
	start := len(dst)
	items := slices.Clone(s.listed[l.from:l.to])
	for j, m := range items {
		at := len(dst) - start
		dst = s.emitRange(dst, m.value, m.end, i)
		items[j] = span{value: uint32(at), end: uint32(len(dst) - start)}
	}
	texts := slices.Clone(dst[start:])
	slices.SortFunc(items, func(a, b span) int {
		return bytes.Compare(texts[a.value:a.end], texts[b.value:b.end])
	})
	dst = append(dst[:start], '[')
	for j, m := range items {
		if j > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, texts[m.value:m.end]...)
	}
	return append(dst, ']')
}
