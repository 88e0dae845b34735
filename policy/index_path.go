package policy

// pathTable files rules by the patterns of paths, in a tree whose levels are their segments.
type pathTable struct {
	root  pathNode
	depth int // how many segments the longest pattern has
}

// pathNode is what can follow after some segments.
type pathNode struct {
	literals map[string]*pathNode
	longest  int       // of literals
	wild     *pathNode // any segment
	here     slot      // of patterns that end without a slash
	end      slot      // of those that end with the slash
	rest     slot      // of those that have a rest
}

func newPathNode() *pathNode { return &pathNode{here: nowhere, end: nowhere, rest: nowhere} }

func newPathTable() *pathTable { return &pathTable{root: *newPathNode()} }

func (t *pathTable) put(pattern *pattern, p slot) {
	t.depth = max(t.depth, len(pattern.segments))
	n := &t.root
	for _, s := range pattern.segments {
		switch s.kind {
		case restSegment:
			n.rest = p
			return
		case endSegment:
			n.end = p
			return
		case wildSegment:
			if n.wild == nil {
				n.wild = newPathNode()
			}
			n = n.wild
		case literalSegment:
			n = n.literal(s.text)
		}
	}
	n.here = p
}

func (n *pathNode) literal(text string) *pathNode {
	next := n.literals[text]
	if next == nil {
		if n.literals == nil {
			n.literals = map[string]*pathNode{}
		}
		next = newPathNode()
		n.literals[text] = next
		n.longest = max(n.longest, len(text))
	}
	return next
}

// slashes are where the segments of a path begin, as far as they matter, and the length of the path if it has no more.
type slashes [maxSegments + 1]int

// pathWalk is what a walk through the tree needs to know.
type pathWalk struct {
	x     *index
	r     *Request
	path  string
	known conditions
	at    *slashes
}

func (x *index) lookPath(n *node, r *Request, found []int32) []int32 {
	path := r.matchPath()
	if path[0] != '/' { // "*"
		return found
	}
	var at slashes
	end := 0
	for i := 1; i <= n.paths.depth && end < len(path); i++ {
		_, end = nextSegment(path, end)
		at[i] = end
	}
	w := pathWalk{x, r, path, n.known | onPath, &at}
	return w.visit(&n.paths.root, 0, found)
}

// visit appends the rules at n and below, to which the first segments of the path have led.
func (w *pathWalk) visit(n *pathNode, depth int, found []int32) []int32 {
	start := w.at[depth]
	if start == len(w.path) {
		return w.open(n.here, found)
	}
	// There is a slash at start.
	found = w.open(n.rest, found)
	if start+1 == len(w.path) {
		return w.open(n.end, found)
	}
	if n.wild == nil && len(n.literals) == 0 {
		return found
	}
	text := w.path[start+1 : w.at[depth+1]]
	if len(text) <= n.longest {
		if next := n.literals[text]; next != nil {
			found = w.visit(next, depth+1, found)
		}
	}
	if n.wild != nil {
		found = w.visit(n.wild, depth+1, found)
	}
	return found
}

func (w *pathWalk) open(p slot, found []int32) []int32 {
	if p == nowhere {
		return found
	}
	return w.x.open(p, w.r, w.known, found)
}
