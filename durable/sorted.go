package durable

import (
	"slices"
	"strings"
)

// sorted are records in the order of their names, in chunks that are short enough for one to be inserted.
type sorted struct {
	chunks [][]Named
	count  int
	bytes  int64 // that they have in a file
}

const mostInChunk = 512

// at is the place of a name, or where it would be; found reports whether it is there.
func (s *sorted) at(name string) (chunk, place int, found bool) {
	if len(s.chunks) == 0 {
		return 0, 0, false
	}
	byName := func(r Named, n string) int { return strings.Compare(r.Name, n) }
	chunk, found = slices.BinarySearchFunc(s.chunks, name, func(c []Named, n string) int { return byName(c[0], n) })
	if !found {
		chunk = max(0, chunk-1)
	}
	place, found = slices.BinarySearchFunc(s.chunks[chunk], name, byName)
	return chunk, place, found
}

// get is the record of a name, with revision 0 if there is none.
func (s *sorted) get(name string) Named {
	if chunk, place, found := s.at(name); found {
		return s.chunks[chunk][place]
	}
	return Named{Name: name}
}

// put inserts a record, or replaces it.
func (s *sorted) put(r Named) {
	chunk, place, found := s.at(r.Name)
	if found {
		s.bytes += recordBytes(&r) - recordBytes(&s.chunks[chunk][place])
		s.chunks[chunk][place] = r
		return
	}
	s.count++
	s.bytes += recordBytes(&r)
	if len(s.chunks) == 0 {
		s.chunks = [][]Named{{r}}
		return
	}
	c := slices.Insert(s.chunks[chunk], place, r)
	s.chunks[chunk] = c
	if len(c) > mostInChunk {
		half := len(c) / 2
		s.chunks[chunk] = slices.Clip(c[:half])
		s.chunks = slices.Insert(s.chunks, chunk+1, slices.Clone(c[half:]))
		clear(c[half:])
	}
}

// remove removes the record of a name, if there is one.
func (s *sorted) remove(name string) {
	chunk, place, found := s.at(name)
	if !found {
		return
	}
	s.count--
	s.bytes -= recordBytes(&s.chunks[chunk][place])
	if s.chunks[chunk] = slices.Delete(s.chunks[chunk], place, place+1); len(s.chunks[chunk]) == 0 {
		s.chunks = slices.Delete(s.chunks, chunk, chunk+1)
	}
}

// page are the records whose names begin with prefix and are greater than after, the first ones first.
func (s *sorted) page(prefix, after string, most int) []Named {
	chunk, place, found := s.at(max(prefix, after))
	if found && after >= prefix {
		place++
	}
	var all []Named
	for ; chunk < len(s.chunks); chunk, place = chunk+1, 0 {
		for ; place < len(s.chunks[chunk]); place++ {
			r := s.chunks[chunk][place]
			if len(all) >= most || !strings.HasPrefix(r.Name, prefix) {
				return all
			}
			r.Value = slices.Clone(r.Value)
			all = append(all, r)
		}
	}
	return all
}

// list are the records whose names begin with prefix, the last ones first.
func (s *sorted) list(prefix string, most int) []Named {
	chunk, place := len(s.chunks), 0
	if end := after(prefix); end != "" {
		chunk, place, _ = s.at(end)
	}
	var all []Named
	for {
		if place == 0 {
			if chunk--; chunk < 0 {
				return all
			}
			place = len(s.chunks[chunk])
		}
		place--
		r := s.chunks[chunk][place]
		if len(all) >= most || !strings.HasPrefix(r.Name, prefix) {
			return all
		}
		r.Value = slices.Clone(r.Value)
		all = append(all, r)
	}
}

// after is the least name that is greater than all that begin with prefix, "" if there is none.
func after(prefix string) string {
	b := []byte(prefix)
	for len(b) > 0 && b[len(b)-1] == 0xff {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return ""
	}
	b[len(b)-1]++
	return string(b)
}
