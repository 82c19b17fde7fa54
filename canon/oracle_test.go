package canon_test

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/onlyonce-go/onlyonce/canon"
)

// The oracle reads JSON into trees of Go values and applies a policy to them
// pointer by pointer. It is slow and simple, and shares no code with the package.

// number is the value of a JSON number, as a key: two have the same exactly when
// they are equal.
type number string

// readTree reads JSON as a strict reader does: map[string]any, []any, string,
// number, bool and nil.
func readTree(text []byte) (any, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	tree, err := readNode(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("trailing text")
	}
	return tree, nil
}

func readNode(dec *jsontext.Decoder) (any, error) {
	t, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '{':
		tree := map[string]any{}
		for dec.PeekKind() != '}' {
			t, err := dec.ReadToken()
			if err != nil {
				return nil, err
			}
			name := t.String()
			if tree[name], err = readNode(dec); err != nil {
				return nil, err
			}
		}
		_, err := dec.ReadToken()
		return tree, err
	case '[':
		tree := []any{}
		for dec.PeekKind() != ']' {
			item, err := readNode(dec)
			if err != nil {
				return nil, err
			}
			tree = append(tree, item)
		}
		_, err := dec.ReadToken()
		return tree, err
	case '"':
		return t.String(), nil
	case '0':
		return numberOf(t.String()), nil
	case 't', 'f':
		return t.Bool(), nil
	default:
		return nil, nil
	}
}

// numberOf is the value of a valid number, computed with math/big.
func numberOf(text string) number {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if len(strings.TrimLeft(exponent, "+-")) > 18 || len(mantissa) > 4000 {
		return number("raw " + text)
	}
	e := new(big.Int)
	if exponent != "" {
		e.SetString(strings.TrimPrefix(exponent, "+"), 10)
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	m, _ := new(big.Int).SetString(whole+fraction, 10)
	if m.Sign() == 0 {
		return "0"
	}
	e.Sub(e, big.NewInt(int64(len(fraction))))
	ten, one, rest := big.NewInt(10), big.NewInt(1), new(big.Int)
	for q := new(big.Int); ; {
		if q.QuoRem(m, ten, rest); rest.Sign() != 0 {
			return number(m.String() + " " + e.String())
		}
		m.Set(q)
		e.Add(e, one)
	}
}

// literal is a number as JSON.
func (n number) literal() number {
	m, e, ok := strings.Cut(string(n), " ")
	if !ok || m == "raw" {
		return number(strings.TrimPrefix(string(n), "raw "))
	}
	return number(m + "e" + e)
}

// step is one step of the way to a value.
type step struct {
	name  string
	index bool
}

// matches tells whether a pointer leads along a way, as far as both go.
func matches(tokens []string, way []step) bool {
	for i := range min(len(tokens), len(way)) {
		if tokens[i] != way[i].name && (tokens[i] != "*" || !way[i].index) {
			return false
		}
	}
	return true
}

func tokensOf(pointer string) []string {
	if pointer == "" {
		return nil
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, t := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return tokens
}

// edit calls f for every value of a tree from the leaves up, and puts what it
// returns in the value's place, or leaves the value out.
func edit(tree any, way []step, f func(way []step, tree any) (any, bool)) (any, bool) {
	switch t := tree.(type) {
	case map[string]any:
		edited := map[string]any{}
		for name, value := range t {
			if v, ok := edit(value, append(slices.Clip(way), step{name: name}), f); ok {
				edited[name] = v
			}
		}
		tree = edited
	case []any:
		edited := []any{}
		for i, value := range t {
			if v, ok := edit(value, append(slices.Clip(way), step{strconv.Itoa(i), true}), f); ok {
				edited = append(edited, v)
			}
		}
		tree = edited
	}
	return f(way, tree)
}

// pointedAt tells whether one of the pointers leads to the value at a way.
func pointedAt(pointers []string, way []step) bool {
	return slices.ContainsFunc(pointers, func(pointer string) bool {
		tokens := tokensOf(pointer)
		return len(tokens) == len(way) && matches(tokens, way)
	})
}

// applyPolicy is what is left of a tree under a policy.
func applyPolicy(tree any, p canon.Policy) any {
	tree, ok := edit(applyDefaults(tree, p), nil, func(way []step, tree any) (any, bool) {
		tree = applyMarks(tree, way, p)
		for _, pointer := range p.Fields {
			if matches(tokensOf(pointer), way) {
				return tree, true
			}
		}
		return tree, len(p.Fields) == 0 && !pointedAt(p.Ignore, way)
	})
	if !ok {
		panic("the document was left out")
	}
	return tree
}

// applyMarks applies the decimal, upper and set fields to one value.
func applyMarks(tree any, way []step, p canon.Policy) any {
	if s, ok := tree.(string); ok && pointedAt(p.Decimal, way) && s != "" && strings.Trim(s, " \t\r\n") == s {
		if v, err := readTree([]byte(s)); err == nil {
			if n, ok := v.(number); ok {
				return n
			}
		}
	}
	if s, ok := tree.(string); ok && pointedAt(p.Upper, way) {
		return strings.Map(func(r rune) rune {
			if 'a' <= r && r <= 'z' {
				return r - 'a' + 'A'
			}
			return r
		}, s)
	}
	if items, ok := tree.([]any); ok && pointedAt(p.Sets, way) {
		slices.SortFunc(items, func(a, b any) int { return cmp.Compare(treeText(a), treeText(b)) })
	}
	return tree
}

// applyDefaults adds what is missing, parents first.
func applyDefaults(tree any, p canon.Policy) any {
	pointers := slices.SortedFunc(maps.Keys(p.Defaults), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(tokensOf(a)), len(tokensOf(b))), -cmp.Compare(a, b))
	})
	for _, pointer := range pointers {
		tokens := tokensOf(pointer)
		parent, name := tokens[:len(tokens)-1], tokens[len(tokens)-1]
		tree, _ = edit(tree, nil, func(way []step, tree any) (any, bool) {
			object, ok := tree.(map[string]any)
			if ok && len(way) == len(parent) && matches(parent, way) {
				if _, ok := object[name]; !ok {
					object[name], _ = readTree(p.Defaults[pointer])
				}
			}
			return tree, true
		})
	}
	return tree
}

// treeText is a text for a tree, the same for equal trees only.
func treeText(tree any) string {
	var b strings.Builder
	writeTree(&b, tree)
	return b.String()
}

func writeTree(b *strings.Builder, tree any) {
	switch t := tree.(type) {
	case map[string]any:
		b.WriteString("{")
		for _, name := range slices.Sorted(maps.Keys(t)) {
			b.WriteString(strconv.Quote(name) + ":")
			writeTree(b, t[name])
		}
		b.WriteString("}")
	case []any:
		b.WriteString("[")
		for _, item := range t {
			writeTree(b, item)
			b.WriteString(",")
		}
		b.WriteString("]")
	case string:
		b.WriteString(strconv.Quote(t))
	case number:
		b.WriteString("#" + string(t))
	case bool:
		b.WriteString(strconv.FormatBool(t))
	case nil:
		b.WriteString("null")
	}
}
