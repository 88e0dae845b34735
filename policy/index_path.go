package policy

// pathTable files rules by the patterns of paths, in a tree whose levels are their segments.
type pathTable struct {
	nodes []pathNode // the first one is the root
	depth int        // how many segments the longest pattern has
	// literals are the tables of nodes that can be followed by a literal.
	literals []textTable
}

// pathNode is what can follow after some segments. Nodes and tables are given as their places in the pathTable, where 0 is none.
type pathNode struct {
	literals int32
	wild     int32 // the node behind any segment
	here     slot  // of patterns that end without a slash
	end      slot  // of those that end with the slash
	rest     slot  // of those that have a rest
}

func newPathTable() *pathTable {
	return &pathTable{nodes: []pathNode{newPathNode()}, literals: make([]textTable, 1)}
}

func newPathNode() pathNode { return pathNode{here: nowhere, end: nowhere, rest: nowhere} }

// add adds a node and returns its place.
func (t *pathTable) add() int32 {
	t.nodes = append(t.nodes, newPathNode())
	return int32(len(t.nodes) - 1)
}

func (t *pathTable) put(pattern *pattern, p slot) {
	t.depth = max(t.depth, len(pattern.segments))
	n := int32(0)
	for _, s := range pattern.segments {
		switch s.kind {
		case restSegment:
			t.nodes[n].rest = p
			return
		case endSegment:
			t.nodes[n].end = p
			return
		case wildSegment:
			next := t.nodes[n].wild
			if next == 0 {
				next = t.add()
				t.nodes[n].wild = next
			}
			n = next
		case literalSegment:
			n = t.literal(n, s.text)
		}
	}
	t.nodes[n].here = p
}

// literal returns the node that follows n behind a literal, which is added if there is none.
func (t *pathTable) literal(n int32, text string) int32 {
	if t.nodes[n].literals == 0 {
		t.literals = append(t.literals, textTable{})
		t.nodes[n].literals = int32(len(t.literals) - 1)
	}
	table := &t.literals[t.nodes[n].literals]
	next, ok := table.filling[text]
	if !ok {
		next = t.add()
		table.put(text, next)
	}
	return next
}

func (t *pathTable) freeze() {
	for i := range t.literals {
		t.literals[i].freeze()
	}
}

// slashes are where the segments of a path begin, as far as they matter, and the length of the path if it has no more.
type slashes [maxSegments + 1]int

// pathWalk is what a walk through the tree needs to know.
type pathWalk struct {
	x     *index
	t     *pathTable
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
	w := pathWalk{x, n.paths, r, path, n.known | onPath, &at}
	return w.visit(0, 0, found)
}

// visit appends the rules at a node and below, to which the first segments of the path have led.
func (w *pathWalk) visit(place int32, depth int, found []int32) []int32 {
	n := &w.t.nodes[place]
	start := w.at[depth]
	if start == len(w.path) {
		return w.open(n.here, found)
	}
	// There is a slash at start.
	found = w.open(n.rest, found)
	if start+1 == len(w.path) {
		return w.open(n.end, found)
	}
	if n.literals != 0 {
		if next := w.t.literals[n.literals].get(w.path[start+1 : w.at[depth+1]]); next != nowhere {
			found = w.visit(next, depth+1, found)
		}
	}
	if n.wild != 0 && w.at[depth+1] > start+1 {
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
