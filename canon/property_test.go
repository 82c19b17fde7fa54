package canon_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
)

// change draws a tree that is like another but for a place or two.
func change(t *rapid.T, tree any) any {
	switch v := tree.(type) {
	case map[string]any:
		changed := map[string]any{}
		for name, value := range v {
			if rapid.IntRange(0, 9).Draw(t, "drop") > 0 {
				changed[name] = change(t, value)
			}
		}
		return changed
	case []any:
		changed := []any{}
		for _, value := range v {
			if rapid.IntRange(0, 9).Draw(t, "drop") > 0 {
				changed = append(changed, change(t, value))
			}
		}
		if rapid.Bool().Draw(t, "shuffle") {
			changed = rapid.Permutation(changed).Draw(t, "order")
		}
		return changed
	}
	if rapid.IntRange(0, 4).Draw(t, "change") == 0 {
		return drawTree(t, 1)
	}
	return tree
}

// F2: two spellings of one value are one request.
func TestSpellings(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tree := drawTree(t, 4)
		a, b := spelling(t, tree), spelling(t, tree)
		canonical, err := canon.JSON([]byte(a), nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := canon.JSON([]byte(b), nil)
		if err != nil || string(canonical) != string(again) {
			t.Fatalf("%s is %s\n%s is %s (%v)", a, canonical, b, again, err)
		}
	})
}

// F4: a policy leaves two bodies equal exactly when a plain reading of its rules
// does, and what differs is named whichever of them was recorded.
func TestPolicies(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		c, err := canon.Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		a := []byte(spelling(t, drawTree(t, 4)))
		tree, err := readTree(a)
		if err != nil {
			t.Fatal(err)
		}
		b := []byte(spelling(t, spellable(change(t, tree))))
		other, err := readTree(b)
		if err != nil {
			t.Fatal(err)
		}
		want := treeText(applyPolicy(tree, p)) == treeText(applyPolicy(other, p))
		x, y := c.Form(jsonRequest(a)), c.Form(jsonRequest(b))
		if got := x.Sum() == y.Sum(); got != want {
			ax, _ := canon.JSON(a, c)
			bx, _ := canon.JSON(b, c)
			t.Fatalf("policy %s\n%s\n%s\nsame = %v, want %v\n%s\n%s", p.Marshal(), a, b, got, want, ax, bx)
		}
		checkParts(t, x)
		checkNamed(t, x, y)
	})
}

// spellable turns the values of numbers back into numbers.
func spellable(tree any) any {
	tree, _ = edit(tree, nil, func(_ []step, tree any) (any, bool) {
		if n, ok := tree.(number); ok {
			tree = n.literal()
		}
		return tree, true
	})
	return tree
}

// F6: without a policy the names are those that a plain walk through both trees
// finds, as long as there are few, and as long as they are likely names.
func TestNames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tree := drawTree(t, 2)
		a := []byte(spelling(t, tree))
		b := []byte(spelling(t, change(t, tree)))
		x, _ := readTree(a)
		y, _ := readTree(b)
		var want []string
		namesOf(x, y, "", func(pointer string) {
			if pointer == "" {
				pointer = "body"
			}
			want = append(want, pointer)
		})
		slices.Sort(want)
		var c *canon.Compiled
		got := differs(t, c.Form(jsonRequest(a)), c.Form(jsonRequest(b)))
		if !slices.Equal(want, got) {
			t.Fatalf("%s\n%s\ndiffers %q, want %q", a, b, got, want)
		}
	})
}

// namesOf calls name for what differs between two trees.
func namesOf(a, b any, at string, name func(string)) {
	x, isObject := childrenOf(a)
	y, alsoObject := childrenOf(b)
	_, array := a.([]any)
	_, alsoArray := b.([]any)
	if !isObject || !alsoObject || array != alsoArray {
		if treeText(a) != treeText(b) {
			name(at)
		}
		return
	}
	if !array && (unlikely(x) || unlikely(y)) {
		if treeText(a) != treeText(b) {
			name(at)
		}
		return
	}
	for key := range x {
		to := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
		if other, ok := y[key]; ok {
			namesOf(x[key], other, to, name)
		} else {
			name(to)
		}
	}
	for key := range y {
		if _, ok := x[key]; !ok {
			name(at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key))
		}
	}
}

// unlikely tells whether an object has members that no field is called like, of those
// that drawTree draws.
func unlikely(members map[string]any) bool {
	for name := range members {
		if name == "*" || strings.Contains(name, "\n") {
			return true
		}
	}
	return false
}

// childrenOf are the members of an object or the items of an array, by token.
func childrenOf(tree any) (map[string]any, bool) {
	switch t := tree.(type) {
	case map[string]any:
		return t, true
	case []any:
		items := map[string]any{}
		for i, item := range t {
			items[strconv.Itoa(i)] = item
		}
		return items, true
	}
	return nil, false
}

// checkParts checks what holds for the parts of any form.
func checkParts(t rapid.TB, f onlyonce.Form) {
	t.Helper()
	parts := f.Parts()
	size, names := 0, map[string]bool{}
	for _, p := range parts {
		size += len(p.Name) + 8
		if names[p.Name] {
			t.Errorf("part %q comes twice", p.Name)
		}
		names[p.Name] = true
	}
	if len(parts) > 64 || size > 2048 {
		t.Errorf("%d parts of %d bytes", len(parts), size)
	}
}

// checkNamed checks that something is named exactly when two forms differ.
func checkNamed(t rapid.TB, a, b *canon.Form) {
	t.Helper()
	for _, pair := range [][2]*canon.Form{{a, b}, {b, a}, {a, a}} {
		var names []string
		parts := pair[0].Parts()
		for _, p := range parts {
			names = append(names, p.Name)
		}
		got := pair[1].Differs(names, func(i int, sum [32]byte) bool { return parts[i].Sum == sum })
		if (len(got) == 0) != (pair[0].Sum() == pair[1].Sum()) {
			t.Errorf("same sum: %v, but differs %q", pair[0].Sum() == pair[1].Sum(), got)
		}
	}
}
