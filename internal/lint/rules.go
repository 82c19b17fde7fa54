package lint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// contractFile lists the rules of the contract.
const contractFile = "docs/PROTOCOL.md"

var (
	// A rule stands at the start of a table's row or of a list's item.
	ruleDefinition = regexp.MustCompile("(?m)^\\s*[|\\-*]\\s*[`*]*([A-Z]{1,2}[0-9]{1,2}[a-z]?)\\b")
	ruleComment    = regexp.MustCompile(`//.*`)
	ruleID         = regexp.MustCompile(`\b[A-Z]{1,2}[0-9]{1,2}[a-z]?\b`)
)

// ContractRules returns the ids of the contract's rules in their order. A tree
// without a contract has none.
func ContractRules(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(contractFile)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read contract: %w", err)
	}
	return definedRules(string(text)), nil
}

func definedRules(text string) []string {
	var rules []string
	for _, match := range ruleDefinition.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(rules, match[1]) {
			rules = append(rules, match[1])
		}
	}
	return rules
}

// Unproved returns those of the rules that no comment in a test names, as in
// "// C3".
func (t *Tree) Unproved(rules []string) []string {
	named := map[string]bool{}
	for _, f := range t.goFiles((*File).Test) {
		for _, comment := range ruleComment.FindAllString(f.Text, -1) {
			for _, id := range ruleID.FindAllString(comment, -1) {
				named[id] = true
			}
		}
		// A contract suite names the rule in a table, as a string.
		for _, id := range rules {
			if strings.Contains(f.Text, `"`+id+`"`) {
				named[id] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(rules), func(id string) bool { return named[id] })
}
