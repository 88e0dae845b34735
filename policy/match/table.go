package match

import (
	"hash/maphash"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirhq/weir/clientip"
)

// textTable finds numbers by texts. It is filled by put, and after freeze it is only read. For an answer it reads less memory
// than a map: with thousands of rules, memory that is not at hand is most of what a lookup costs. A text must be shorter than
// 4 GB, as those of a configuration are.
type textTable struct {
	filling map[string]int32 // until freeze
	entries []textEntry      // a power of two, at most half of them in use
	texts   string           // those that are long, one after the other
	longest int
}

// textEntry is one text. A short one is its words and its size; of a long one last is where it begins in texts. The number of an
// unused entry is nowhere.
type textEntry struct {
	first, last uint64
	size        uint32
	number      int32
}

// textSeed and textKeys keep clients from choosing texts that meet in one place.
var textSeed, textKeys = maphash.MakeSeed(), [2]uint64{rand.Uint64(), rand.Uint64()} //nolint:gosec // told to nobody

// longText is the least size of a text of which two words have not all bytes.
const longText = 17

// textWords returns all bytes of a short text, or a hash of a long one, and the place that begins a search for it.
func textWords(s string) (first, last uint64, place int) {
	switch n := len(s); {
	case n >= longText:
		first, last = maphash.String(textSeed, s), math.MaxUint64 // where no text begins
	case n >= 8:
		first, last = word(s), word(s[n-8:])
	case n >= 4:
		first, last = uint64(half(s)), uint64(half(s[n-4:]))
	case n > 0:
		first = uint64(s[0]) | uint64(s[n/2])<<8 | uint64(s[n-1])<<16
	}
	high, low := bits.Mul64(first^textKeys[0], last^textKeys[1]^uint64(len(s)))
	return first, last, int(high ^ low)
}

// word is the first 8 bytes of s as a number, and half the first 4.
func word(s string) uint64 { return uint64(half(s)) | uint64(half(s[4:]))<<32 }

func half(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func (t *textTable) put(s string, number int32) {
	if t.filling == nil {
		t.filling = map[string]int32{}
	}
	t.filling[s] = number
	t.longest = max(t.longest, len(s))
}

func (t *textTable) empty() bool { return len(t.entries) == 0 }

func (t *textTable) freeze() {
	if len(t.filling) == 0 {
		return
	}
	size := 2
	for size < 2*len(t.filling) {
		size *= 2
	}
	t.entries = slices.Repeat([]textEntry{{number: nowhere}}, size)
	var texts strings.Builder
	for _, s := range slices.Sorted(maps.Keys(t.filling)) {
		first, last, i := textWords(s)
		for i &= size - 1; t.entries[i].number != nowhere; {
			i = (i + 1) & (size - 1)
		}
		if len(s) >= longText {
			last = uint64(texts.Len())
			texts.WriteString(s)
		}
		t.entries[i] = textEntry{first, last, uint32(len(s)), t.filling[s]}
	}
	t.texts, t.filling = texts.String(), nil
}

// get returns the number of s, or nowhere. It does not read what is longer than any text of the table.
func (t *textTable) get(s string) int32 {
	if len(t.entries) == 0 || len(s) > t.longest {
		return nowhere
	}
	first, last, i := textWords(s)
	for mask := len(t.entries) - 1; ; i++ {
		e := &t.entries[i&mask]
		if e.number == nowhere || e.first == first && int(e.size) == len(s) &&
			(e.last == last || len(s) >= longText && t.texts[e.last:e.last+uint64(len(s))] == s) {
			return e.number
		}
	}
}

// headerTable files rules by the value of a field.
type headerTable struct {
	name   string
	values textTable
}

// hostTable files rules by the host.
type hostTable struct {
	exact  textTable
	below  textTable                  // by what hosts end with
	labels [(maxHost+1)/64 + 1]uint64 // how many the texts in below have
}

func (t *hostTable) empty() bool { return t.exact.empty() && t.below.empty() }

func (t *hostTable) put(h hostPattern, p slot) {
	if !h.below {
		t.exact.put(h.text, p)
		return
	}
	t.below.put(h.text, p)
	labels := strings.Count(h.text, ".")
	t.labels[labels/64] |= 1 << (labels % 64)
}

func (x *Index) lookHost(n *node, v *View, found []int32) []int32 {
	host := v.CleanHost()
	if p := n.hosts.exact.get(host); p != nowhere {
		found = x.open(p, v, n.known|Host, found)
	}
	below := &n.hosts.below
	if below.empty() {
		return found
	}
	// Nothing that is looked for begins before low, and something must stand before the dot.
	low := max(1, len(host)-below.longest)
	end := len(host)
	for labels := 1; end > low; labels++ {
		dot := strings.LastIndexByte(host[low:end], '.')
		if dot < 0 {
			break
		}
		end = low + dot
		if n.hosts.labels[labels/64]&(1<<(labels%64)) == 0 {
			continue
		}
		if p := below.get(host[end:]); p != nowhere {
			found = x.open(p, v, n.known|Host, found)
		}
	}
	return found
}

// networkTable files rules by networks with the same number of bits.
type networkTable struct {
	bits int
	is4  bool
	v4   map[uint32]slot   // until freeze, and
	set4 []networkEntry    // after it: a power of two, at most half of them in use
	move uint              // of a hash of 64 bits, to a place there
	v6   map[[16]byte]slot // of networks of IPv6
}

// networkEntry is one network of IPv4. That of an unused entry is nowhere.
type networkEntry struct {
	network uint32
	place   slot
}

func (t *networkTable) put(network netip.Prefix, p slot) {
	if t.is4 {
		t.v4[number4(network.Addr())] = p
	} else {
		t.v6[network.Addr().As16()] = p
	}
}

func (t *networkTable) freeze() {
	if !t.is4 {
		return
	}
	size := bits.Len(uint(2*len(t.v4) - 1))
	t.set4, t.move = slices.Repeat([]networkEntry{{place: nowhere}}, 1<<size), uint(64-size)
	for _, network := range slices.Sorted(maps.Keys(t.v4)) {
		i := t.begin(network)
		for t.set4[i].place != nowhere {
			i = (i + 1) & (len(t.set4) - 1)
		}
		t.set4[i] = networkEntry{network, t.v4[network]}
	}
	t.v4 = nil
}

// begin is where the search for a network begins. An odd factor leaves no two of them alike.
func (t *networkTable) begin(network uint32) int {
	return int(uint64(network) * (textKeys[0] | 1) >> t.move)
}

// get4 returns the place of the network that an address of IPv4 is in.
func (t *networkTable) get4(client uint32) slot {
	network := uint32(uint64(client) >> (32 - t.bits) << (32 - t.bits))
	for i := t.begin(network); ; i = (i + 1) & (len(t.set4) - 1) {
		if e := t.set4[i]; e.place == nowhere || e.network == network {
			return e.place
		}
	}
}

// get returns the place of the network that an address is in. The address is folded and of the kind of the table.
func (t *networkTable) get(client netip.Addr) slot {
	if t.is4 {
		return t.get4(number4(client))
	}
	if network, err := client.Prefix(t.bits); err == nil {
		if p, ok := t.v6[network.Addr().As16()]; ok {
			return p
		}
	}
	return nowhere
}

func number4(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

func (x *Index) lookClient(n *node, v *View, found []int32) []int32 {
	client := clientip.Fold(v.Client)
	for i := range n.clients {
		t := &n.clients[i]
		if client.Is4() != t.is4 {
			continue
		}
		if p := t.get(client); p != nowhere {
			found = x.open(p, v, n.known|onClient, found)
		}
	}
	return found
}

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
type slashes [maxSegments + 2]int32

// pathWalk is what a walk through the tree needs to know.
type pathWalk struct {
	x     *Index
	t     *pathTable
	v     *View
	path  string
	known Kind
	at    slashes
}

func (x *Index) lookPath(n *node, v *View, found []int32) []int32 {
	path := v.matchPath()
	if path[0] != '/' { // "*"
		return found
	}
	var w pathWalk
	w.x, w.t, w.v, w.path, w.known = x, n.paths, v, path, n.known|Path
	depth, deepest := 1, n.paths.depth
	for i := 1; i < len(path) && depth <= deepest; i++ { // most segments are too short for a search to pay
		if path[i] == '/' {
			w.at[depth] = int32(i)
			depth++
		}
	}
	if depth <= deepest {
		w.at[depth] = int32(len(path))
	}
	return w.visit(0, 0, found)
}

// visit appends the rules at a node and below, to which the first segments of the path have led.
func (w *pathWalk) visit(place int32, depth int, found []int32) []int32 {
	n := &w.t.nodes[place]
	start := int(w.at[depth])
	if start == len(w.path) {
		return w.open(n.here, found)
	}
	// There is a slash at start.
	found = w.open(n.rest, found)
	if start+1 == len(w.path) {
		return w.open(n.end, found)
	}
	end := int(w.at[depth+1])
	if n.literals != 0 {
		if next := w.t.literals[n.literals].get(w.path[start+1 : end]); next != nowhere {
			found = w.visit(next, depth+1, found)
		}
	}
	if n.wild != 0 && end > start+1 {
		found = w.visit(n.wild, depth+1, found)
	}
	return found
}

func (w *pathWalk) open(p slot, found []int32) []int32 {
	if p == nowhere {
		return found
	}
	return w.x.open(p, w.v, w.known, found)
}
