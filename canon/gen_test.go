package canon_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce/canon"
)

// drawTree draws a small tree whose names and values are likely to meet.
func drawTree(t *rapid.T, depth int) any {
	n := rapid.IntRange(0, 7).Draw(t, "kind")
	if depth == 0 && n < 4 {
		n += 4
	}
	switch n {
	case 0, 1:
		tree := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			tree[rapid.SampledFrom([]string{"a", "b", "c", "*", "0", "1", "", "~/", "[é\n"}).Draw(t, "name")] = drawTree(t, depth-1)
		}
		return tree
	case 2, 3:
		tree := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			tree = append(tree, drawTree(t, depth-1))
		}
		return tree
	case 4, 5:
		return rapid.SampledFrom([]string{"usd", "USD", "50.0", "50", "5e1", "+50", " 50", "050", "é", "ı", "", "-0"}).Draw(t, "string")
	case 6:
		return rapid.SampledFrom([]number{"50", "50.00", "5e1", "0", "-0.0", "1e400", "0.001", "9007199254740993", "12e-9"}).Draw(t, "number")
	default:
		return rapid.SampledFrom([]any{true, false, nil}).Draw(t, "literal")
	}
}

// spelling draws one of the many texts of a tree.
func spelling(t *rapid.T, tree any) string {
	space := func() string { return rapid.SampledFrom([]string{"", "", "", " ", "\n\t"}).Draw(t, "space") }
	switch v := tree.(type) {
	case map[string]any:
		var members []string
		for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(v))).Draw(t, "order") {
			members = append(members, space()+spellString(t, name)+space()+":"+space()+spelling(t, v[name]))
		}
		return "{" + strings.Join(members, space()+",") + space() + "}"
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, space()+spelling(t, item))
		}
		return "[" + strings.Join(items, space()+",") + space() + "]"
	case string:
		return spellString(t, v)
	case number:
		return string(v)
	case bool:
		return fmt.Sprint(v)
	default:
		return "null"
	}
}

func spellString(t *rapid.T, text string) string {
	escape := rapid.Bool().Draw(t, "escape")
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		if escape || r < ' ' || r == '"' || r == '\\' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// drawPolicy draws a valid policy.
func drawPolicy(t *rapid.T) canon.Policy {
	token := rapid.SampledFrom([]string{"a", "b", "c", "*", "*", "0", "1", "~0~1"})
	pointer := rapid.Custom(func(t *rapid.T) string {
		return "/" + strings.Join(rapid.SliceOfN(token, 1, 3).Draw(t, "tokens"), "/")
	})
	pointers := func(name string) []string { return rapid.SliceOfN(pointer, 0, 3).Draw(t, name) }
	p := canon.Policy{
		Decimal: pointers("decimal"), Upper: pointers("upper"), Sets: pointers("sets"), Sensitive: pointers("sensitive"),
		Defaults: map[string]jsontext.Value{},
	}
	if rapid.Bool().Draw(t, "choose") {
		p.Fields = pointers("fields")
	} else {
		p.Ignore = pointers("ignore")
	}
	for _, at := range pointers("defaults") {
		if !strings.HasSuffix(at, "*") {
			p.Defaults[at] = jsontext.Value(rapid.SampledFrom([]string{`"usd"`, `"50.0"`, `{}`, `[]`, `{"b":1}`, `[{},{"a":2}]`, `true`}).Draw(t, "default"))
		}
	}
	return p
}
