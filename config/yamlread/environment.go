package yamlread

import (
	"strings"
)

// expansion is a scalar with what the environment has put into it.
type expansion struct {
	text string
	// env tells that something of it came from the environment, or from a default in its place, so that text is never shown.
	env bool
	// pieces tell where the bytes of text stood before.
	pieces []piece
}

// piece is a part of an expanded text that begins at the byte at of it, and stood at the byte from of the scalar. One that was
// put in has no bytes of its own there.
type piece struct {
	at, from int
	put      bool
}

// flaw is what is wrong with a text that refers to the environment, at the byte at of it.
type flaw struct {
	at           int
	message, fix string
}

// expand replaces ${NAME} and ${NAME:-default} by the environment, and $$ by a dollar sign. Other dollar signs stay.
func expand(s string, env func(string) (string, bool)) (expansion, *flaw) {
	if env == nil || !strings.Contains(s, "$") {
		return expansion{text: s, pieces: []piece{{}}}, nil
	}
	var b strings.Builder
	var x expansion
	last := 0
	literal := func(to int) {
		x.pieces = append(x.pieces, piece{b.Len(), last, false})
		b.WriteString(s[last:to])
	}
	for i := 0; i+1 < len(s); i++ {
		if s[i] != '$' {
			continue
		}
		switch s[i+1] {
		case '$':
			literal(i + 1)
			last = i + 2
			i++
		case '{':
			literal(i)
			value, end, wrong := variable(s, i, env)
			if wrong != nil {
				return expansion{}, wrong
			}
			x.env = true
			x.pieces = append(x.pieces, piece{b.Len(), i, true})
			b.WriteString(value)
			last, i = end, end-1
		}
	}
	literal(len(s))
	x.text = b.String()
	return x, nil
}

// variable returns what stands for the reference at the byte i of s, and where the reference ends.
func variable(s string, i int, env func(string) (string, bool)) (value string, end int, wrong *flaw) {
	length := strings.IndexByte(s[i:], '}')
	if length < 0 {
		return "", 0, &flaw{
			i, "has a ${ without a }: a variable of the environment is ${NAME} or ${NAME:-default}",
			"close it, or write $${ for the two characters",
		}
	}
	name, fallback, hasFallback := strings.Cut(s[i+2:i+length], ":-")
	if !IsVariable(name) {
		return "", 0, &flaw{
			i, "has a ${...} that is not ${NAME} or ${NAME:-default}, with a name of letters, digits and underscores",
			"write $${ for the two characters",
		}
	}
	end = i + length + 1
	value, set := env(name)
	switch {
	case hasFallback && value == "":
		return fallback, end, nil
	case !set:
		return "", 0, &flaw{
			i, "the environment has no variable " + name,
			"set it, or write ${" + name + ":-default}",
		}
	}
	return value, end, nil
}

// IsVariable reports whether s can be the name of a variable of the environment.
func IsVariable(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 256
}

// before is where the byte at of the text stood before it was expanded.
func (x expansion) before(at int) int {
	from := at
	for _, p := range x.pieces {
		if p.at > at {
			break
		}
		if from = p.from; !p.put {
			from += at - p.at
		}
	}
	return from
}
