package lint

import (
	"slices"
	"testing"
)

func TestCheckDocumented(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, source string
		want         []string
	}{
		{"function", "func F() {}", []string{"exported F"}},
		{"documented", "// F does.\nfunc F() {}", nil},
		{"unexported", "func f() {}", nil},
		{"method", "// T is.\ntype T int\nfunc (t *T) M() {}", []string{"exported M"}},
		{"method_of_generic", "// T is.\ntype T[E any] []E\nfunc (t *T[E]) M() {}", []string{"exported M"}},
		{"method_of_unexported", "type t int\nfunc (t) M() {}", nil},
		{"type", "type T int", []string{"exported T"}},
		{"types_in_group", "// Types.\ntype (\n\tT int\n\t// U is.\n\tU int\n)", []string{"exported T"}},
		{"constants_in_group", "// States.\nconst (\n\tA = 1\n\tB = 2\n)", nil},
		{"constant_in_bare_group", "const (\n\tA = 1 // first\n\tB = 2\n)", []string{"exported B"}},
		{"variable", "var V, w int", []string{"exported V"}},
		{"interface", "// I is.\ntype I interface {\n\t// A does.\n\tA()\n\tB()\n}", []string{"exported B"}},
		{"config", "// Config is.\ntype Config struct {\n\tA int // is\n\tB int\n\tc int\n}", []string{"exported B"}},
		{"plain_struct", "// T is.\ntype T struct {\n\tA int\n}", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree := parse(t, map[string]string{"a.go": "package a\n\n" + tt.source + "\n"})
			wantFaults(t, CheckDocumented(tree), tt.want...)
		})
	}
	wantFaults(t, CheckDocumented(parse(t, map[string]string{"a_test.go": "package a\n\nfunc TestF() {}\n"})))
}

func TestCheckSleep(t *testing.T) {
	t.Parallel()
	sleep := "package a\nfunc f() { time.Sleep(1) }\n"
	bubble := "package a\nfunc f() { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }\n"
	marked := "package a\nfunc f() { time.Sleep(1) } // runs in synctest\n"
	tree := parse(t, map[string]string{
		"a_test.go": sleep, "storetest/b.go": sleep, "c.go": sleep, "d_test.go": bubble, "e_test.go": marked,
	})
	wantFaults(t, CheckSleep(tree), "a_test.go:2: a test sleeps", "storetest/b.go:2: a test sleeps")
}

func TestCheckInit(t *testing.T) {
	t.Parallel()
	tree := parse(t, map[string]string{
		"a.go": "package a\nfunc init() {}\n",
		"b.go": "package a\nfunc (T) init() {}\nfunc initialise() {}\n",
	})
	wantFaults(t, CheckInit(tree), "a.go:2: init function")
}

// The forbidden words are put together, so that this file may stay in the tree.
func TestCheckWords(t *testing.T) {
	t.Parallel()
	const w, o = "wo", "on"
	tests := []struct {
		name, text string
		check      func(*Tree) []Fault
		want       []string
	}{
		{"unfinished", "a\n// TO" + "DO: later", CheckUnfinished, []string{"x.md:2: unfinished"}},
		{"unfinished_too", "FIX" + "ME", CheckUnfinished, []string{"x.md:1"}},
		{"finished", "MASTO" + "DON todo", CheckUnfinished, nil},
		{"absolute_path", "see `/" + w + "rk/main`", CheckElsewhere, []string{"x.md:1: a path"}},
		{"path_at_start", "/" + w + "rk/x", CheckElsewhere, []string{"x.md:1"}},
		{"path_below_ours", "internal/" + w + "rk/x and http://a.b/" + w + "rk/", CheckElsewhere, nil},
		{"neighbour", "../sha" + "red/x", CheckElsewhere, []string{"x.md:1"}},
		{"promise", "runs exactly " + o + "ce", CheckPromise, []string{"x.md:1: a promise"}},
		{"promise_with_hyphen", "Exactly-" + o + "ce delivery", CheckPromise, []string{"x.md:1"}},
		{"promise_over_lines", "// exactly\n// " + o + "ce", CheckPromise, []string{"x.md:1"}},
		{"denied", "it is not exactly " + o + "ce", CheckPromise, nil},
		{"denied_in_short", "it isn't exactly " + o + "ce", CheckPromise, nil},
		{"another_is_no_denial", "another exactly " + o + "ce", CheckPromise, []string{"x.md:1"}},
		{"denied_over_lines", "// exactly\n// " + o + "ce is never", CheckPromise, nil},
		{"denied_elsewhere", "never\nexactly " + o + "ce", CheckPromise, []string{"x.md:2"}},
		{"other_word", "exactly on" + " time", CheckPromise, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantFaults(t, tt.check(parse(t, map[string]string{"x.md": tt.text})), tt.want...)
		})
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	const contract = "# C\n\n| rule | text |\n|---|---|\n| C1 | a |\n| `C2` | see C9 |\n- K1 one\n- **K2** two, C1\ntext K3\n"
	rules := definedRules(contract)
	if want := []string{"C1", "C2", "K1", "K2"}; !slices.Equal(rules, want) {
		t.Fatalf("rules %v, want %v", rules, want)
	}
	tree := parse(t, map[string]string{
		"a_test.go":      "package a\n\n// C1, K1: both\nfunc f() {}\n",
		"b.go":           "package a\n\n// C2 in code proves nothing.\nfunc g() {}\n",
		"storetest/c.go": "package a\n\nvar rule = \"K2\"\n",
	})
	if got, want := tree.Unproved(rules), []string{"C2"}; !slices.Equal(got, want) {
		t.Errorf("unproved %v, want %v", got, want)
	}
}
