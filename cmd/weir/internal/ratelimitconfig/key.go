package ratelimitconfig

import "strings"

// part is a part of the key of a counter: a text, and behind it the value of an entry.
type part struct {
	literal string
	entry   int  // -1 for none
	raw     bool // the value is all there is, so it is not escaped
}

// keyOfOwn is the key in a policy of its own: the values that vary, with "|" between them. A single one is as it is.
func keyOfOwn(levels []level) []part {
	var parts []part
	for i, l := range levels {
		if l.vary {
			parts = append(parts, part{"|", i, false})
		}
	}
	if len(parts) > 0 {
		parts[0].literal = ""
		parts[0].raw = len(parts) == 1
	}
	return parts
}

// keyOfGroup is the key in a policy that other limits have as well: the domain and the whole descriptor,
// "domain|key=value|key=value". What a wildcard shares has the wildcard as its value.
func keyOfGroup(domain string, levels []level) []part {
	var parts []part
	text := escaped(nil, domain, inValue)
	for i, l := range levels {
		text = append(escaped(append(text, '|'), l.key, inKey), '=')
		if l.vary {
			parts = append(parts, part{string(text), i, false})
			text = nil
		} else {
			text = escaped(text, l.value, inValue)
		}
	}
	if len(text) > 0 {
		parts = append(parts, part{string(text), -1, false})
	}
	return parts
}

// What is escaped in keys and in values.
const (
	inKey   = `|=\`
	inValue = `|\`
)

// escaped appends a text with a "\" before each of some characters.
func escaped[T string | []byte](b []byte, text T, special string) []byte {
	for i := range len(text) {
		if c := text[i]; strings.IndexByte(special, c) >= 0 {
			b = append(b, '\\')
		}
		b = append(b, text[i])
	}
	return b
}

// appendValue appends a value, which rarely has anything to escape.
func appendValue(b []byte, value string) []byte {
	if strings.IndexByte(value, '|') < 0 && strings.IndexByte(value, '\\') < 0 {
		return append(b, value...)
	}
	return escaped(b, value, inValue)
}

// appendKey appends the key of an entry.
func appendKey(b []byte, key string) []byte {
	if strings.IndexByte(key, '=') < 0 {
		return appendValue(b, key)
	}
	return escaped(b, key, inKey)
}
