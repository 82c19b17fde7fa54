package canon

import "strings"

// recordedNode is a value in a document of which only parts survive: a leaf, or
// a container with all its members or items.
type recordedNode struct {
	leaf     bool
	part     int  // of a leaf
	open     byte // of a container
	children map[string]*recordedNode
}

// insert adds the part with a path. It fails for a path that does not fit the
// others, which no form makes.
func (n *recordedNode) insert(path string, mark byte, part int) bool {
	for path != "" {
		open := byte('[')
		if path[0] == '/' {
			open = '{'
		} else if path[0] != '[' {
			return false
		}
		end := strings.IndexAny(path[1:], "/[") + 1
		if end == 0 {
			end = len(path)
		}
		token := unescapeSegment(path[1:end])
		if n.leaf || n.open != 0 && n.open != open {
			return false
		}
		n.open = open
		if n.children == nil {
			n.children = map[string]*recordedNode{}
		}
		if n.children[token] == nil {
			n.children[token] = &recordedNode{}
		}
		n, path = n.children[token], path[end:]
	}
	if n.leaf || n.open != 0 {
		return false
	}
	if mark == leafPart {
		n.leaf, n.part = true, part
	} else {
		n.open = mark
	}
	return true
}

// unescapeSegment undoes the escapes of [node.appendSegment].
func unescapeSegment(token string) string {
	if !strings.Contains(token, "~") {
		return token
	}
	return strings.NewReplacer("~0", "~", "~1", "/", "~2", "[").Replace(token)
}
