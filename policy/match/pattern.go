package match

import (
	"net/url"
	"strings"
	"unicode"
)

// The bounds of a pattern. They bound the depth of the index as well, and so what a path of many segments can cost.
const (
	maxPattern  = 2048
	maxSegments = 64
)

// pattern is a pattern of paths, as those of net/http.ServeMux.
type pattern struct {
	source   string
	segments []segment
	wild     bool // whether there are wildcards with a name
}

// segment is what stands behind a slash of a pattern.
type segment struct {
	kind segmentKind
	text string // the literal, decoded, or the name of the wildcard, which can be ""
}

type segmentKind uint8

const (
	literalSegment segmentKind = iota
	wildSegment                // any one segment that is not empty
	restSegment                // all that follows
	endSegment                 // nothing: the path ends with the slash
)

// What is accepted of a pattern.
const (
	patternForm      = "a pattern such as /users/{id}, which begins with a slash; methods and hosts have conditions of their own"
	patternNoSpace   = "without spaces: in a path they are written %20"
	patternShort     = "of at most 2048 bytes"
	patternFlat      = "of at most 64 segments"
	patternClean     = "without empty segments, . and ..: paths are compared without them"
	patternSlash     = "without %2F: paths are compared decoded"
	patternStar      = "with {name} for a segment, and {name...} or a slash at the end for all below; a star itself is %2A"
	patternNoQuery   = "without ? and #: expressions look at queries, and in a path these are written %3F and %23"
	patternWhole     = "with wildcards that are whole segments, such as {id}"
	patternName      = "with wildcards whose names are letters, digits and _, such as {id}"
	patternDistinct  = "with wildcards whose names differ"
	patternEndAtEnd  = "with {$} only at the end"
	patternRestAtEnd = "with {name...} only at the end"
)

// parsePattern returns the pattern, or what is accepted instead.
func parsePattern(source string) (p *pattern, accepted string) {
	switch {
	case !strings.HasPrefix(source, "/"):
		return nil, patternForm
	case strings.ContainsAny(source, " \t"):
		return nil, patternNoSpace
	case len(source) > maxPattern:
		return nil, patternShort
	case strings.Count(source, "/") > maxSegments:
		return nil, patternFlat
	}
	p = &pattern{source: source}
	words := strings.Split(source[1:], "/")
	for i, word := range words {
		s, accepted := parseSegment(word, i == len(words)-1)
		if accepted != "" {
			return nil, accepted
		}
		if s.kind == wildSegment || s.kind == restSegment && s.text != "" {
			if _, twice := p.find(s.text); twice {
				return nil, patternDistinct
			}
			p.wild = true
		}
		p.segments = append(p.segments, s)
	}
	return p, ""
}

func parseSegment(word string, last bool) (s segment, accepted string) {
	switch {
	case word == "" && last:
		return segment{kind: restSegment}, ""
	case strings.HasPrefix(word, "{"):
		return parseWildcard(word, last)
	case strings.Contains(word, "{"):
		return segment{}, patternWhole
	case strings.Contains(word, "*"): // of other languages: a rule that denies would never match
		return segment{}, patternStar
	case strings.ContainsAny(word, "?#"):
		return segment{}, patternNoQuery
	}
	if decoded, err := url.PathUnescape(word); err == nil {
		word = decoded
	}
	switch {
	case word == "" || word == "." || word == "..":
		return segment{}, patternClean
	case strings.Contains(word, "/"):
		return segment{}, patternSlash
	}
	return segment{literalSegment, word}, ""
}

func parseWildcard(word string, last bool) (s segment, accepted string) {
	name, closed := strings.CutSuffix(word[1:], "}")
	name, rest := strings.CutSuffix(name, "...")
	switch {
	case !closed:
		return segment{}, patternWhole
	case name == "$" && !rest:
		if !last {
			return segment{}, patternEndAtEnd
		}
		return segment{kind: endSegment}, ""
	case !isWildcardName(name):
		return segment{}, patternName
	case rest && !last:
		return segment{}, patternRestAtEnd
	case rest:
		return segment{restSegment, name}, ""
	}
	return segment{wildSegment, name}, ""
}

// isWildcardName reports whether s is an identifier of Go.
func isWildcardName(s string) bool {
	for i, c := range s {
		if !unicode.IsLetter(c) && c != '_' && (i == 0 || !unicode.IsDigit(c)) {
			return false
		}
	}
	return s != ""
}

// find returns the place of the wildcard with this name.
func (p *pattern) find(name string) (int, bool) {
	for i, s := range p.segments {
		if s.text == name && name != "" && (s.kind == wildSegment || s.kind == restSegment) {
			return i, true
		}
	}
	return 0, false
}

// nextSegment returns the segment behind the slash at path[at], and where it ends.
func nextSegment(path string, at int) (text string, end int) {
	rest := path[at+1:]
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[:i], at + 1 + i
	}
	return rest, len(path)
}

// matches reports whether a path that is clean matches. It reads at most as many segments as the pattern has.
func (p *pattern) matches(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	at := 0
	for _, s := range p.segments {
		if at == len(path) {
			return false
		}
		switch s.kind {
		case restSegment:
			return true
		case endSegment:
			return at+1 == len(path)
		case literalSegment, wildSegment:
		}
		var text string
		text, at = nextSegment(path, at)
		if text == "" || s.kind == literalSegment && text != s.text {
			return false
		}
	}
	return at == len(path)
}

// value returns what stands for the wildcard with this name in a path that matches.
func (p *pattern) value(path, name string) string {
	place, ok := p.find(name)
	if !ok {
		return ""
	}
	at := 0
	for range place {
		_, at = nextSegment(path, at)
	}
	if p.segments[place].kind == restSegment {
		return path[at+1:]
	}
	text, _ := nextSegment(path, at)
	return text
}
