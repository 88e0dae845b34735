package ratelimitconfig

import (
	"slices"
	"strings"
)

// domain is a tree of descriptors.
type domain struct {
	name string
	at   string // where it stands, such as "limits.yaml:12:5"
	root node
}

// node is a descriptor. What leads to it stands in the branches of the one above.
type node struct {
	limit    *Limit
	branches map[string]*branch // by key, nil if there are none
	at       string             // where it stands
}

// branch is what there is for a key.
type branch struct {
	exact     map[string]*node // by value; those with wildcards are here as well, by the text that the file has
	wildcards *wildcards       // nil if there are none
	any       *node            // of values that are not there, nil for none
}

// branch is the one of a key, which is made if need be.
func (n *node) branch(key string) *branch {
	b := n.branches[key]
	if b == nil {
		if n.branches == nil {
			n.branches = make(map[string]*branch, 1)
		}
		b = new(branch)
		n.branches[key] = b
	}
	return b
}

// find is the descriptor below for an entry, nil if there is none: that of the value, or of the first wildcard of the file that
// matches, or of any value.
func (n *node) find(key, value string) *node {
	b := n.branches[key]
	if b == nil {
		return nil
	}
	if found := b.exact[value]; found != nil {
		return found
	}
	if b.wildcards != nil {
		if found := b.wildcards.find(value); found != nil {
			return found
		}
	}
	return b.any
}

// wildcards are values with asterisks, each of which stands for any text. They are filed by what stands before the first one, so
// that many of them are as fast as few.
type wildcards struct {
	count    int
	lengths  []int // of the beginnings, in order
	byPrefix map[string][]wildcard
}

type wildcard struct {
	order int      // in the file
	parts []string // between the asterisks, and behind the last one
	node  *node
}

func (w *wildcards) add(pattern string, n *node) {
	prefix, rest, _ := strings.Cut(pattern, "*")
	if w.byPrefix == nil {
		w.byPrefix = make(map[string][]wildcard)
	}
	if at, found := slices.BinarySearch(w.lengths, len(prefix)); !found {
		w.lengths = slices.Insert(w.lengths, at, len(prefix))
	}
	w.byPrefix[prefix] = append(w.byPrefix[prefix], wildcard{w.count, strings.Split(rest, "*"), n})
	w.count++
}

func (w *wildcards) find(value string) *node {
	var found *node
	first := w.count
	for _, length := range w.lengths {
		if length > len(value) {
			break
		}
		for _, c := range w.byPrefix[value[:length]] {
			if c.order >= first {
				break
			}
			if c.matches(value[length:]) {
				found, first = c.node, c.order
				break
			}
		}
	}
	return found
}

// matches reports whether the rest of a value, behind the beginning, is what the wildcard stands for.
func (w *wildcard) matches(rest string) bool {
	last := len(w.parts) - 1
	end := len(rest) - len(w.parts[last])
	if end < 0 || rest[end:] != w.parts[last] {
		return false
	}
	rest = rest[:end]
	for _, part := range w.parts[:last] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}
