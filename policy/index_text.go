package policy

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
)

// textTable finds numbers by texts. It is filled by put, and after freeze it is only read. For an answer it reads less memory
// than a map: with thousands of rules, memory that is not at hand is most of what a lookup costs. All texts together must be
// shorter than 4 GB, which those of a configuration are.
type textTable struct {
	filling map[string]int32 // until freeze
	entries []textEntry      // a power of two, at most half of them in use
	texts   string           // all texts, one after the other
	longest int
}

// textEntry is one text. That of an unused entry is nowhere.
type textEntry struct {
	hash   uint32
	begin  uint32 // in texts
	size   uint32
	number int32
}

// textSeed keeps those who send requests from choosing texts that meet in one place.
var textSeed = maphash.MakeSeed()

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
		hash := maphash.String(textSeed, s)
		i := int(hash) & (size - 1)
		for t.entries[i].number != nowhere {
			i = (i + 1) & (size - 1)
		}
		t.entries[i] = textEntry{uint32(hash >> 32), uint32(texts.Len()), uint32(len(s)), t.filling[s]}
		texts.WriteString(s)
	}
	t.texts, t.filling = texts.String(), nil
}

// get returns the number of s, or nowhere. It does not read what is longer than any text of the table.
func (t *textTable) get(s string) int32 {
	if len(t.entries) == 0 || len(s) > t.longest {
		return nowhere
	}
	hash := maphash.String(textSeed, s)
	high := uint32(hash >> 32)
	mask := len(t.entries) - 1
	for i := int(hash) & mask; ; i = (i + 1) & mask {
		e := &t.entries[i]
		if e.number == nowhere || e.hash == high && int(e.size) == len(s) && t.texts[e.begin:int(e.begin)+len(s)] == s {
			return e.number
		}
	}
}
