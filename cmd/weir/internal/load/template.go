package load

import "strings"

// keyMark stands for the key in what the flags say of a request.
const keyMark = "{key}"

// template makes requests that differ by their keys. One is encoded for each length of a key, and is copied with the key in its
// places.
type template struct {
	encode func(key string) []byte
	made   []pattern // by the length of the key
}

// pattern is a request about some key of a length, and where the key stands in it.
type pattern struct {
	text []byte
	at   []int
}

// of returns the pattern of a length: the bytes that differ between two keys are those of the key.
func (t *template) of(length int) *pattern {
	for len(t.made) <= length {
		t.made = append(t.made, pattern{})
	}
	p := &t.made[length]
	if p.text == nil {
		p.text = t.encode(strings.Repeat("a", length))
		other := t.encode(strings.Repeat("b", length))
		for i := 0; i < len(other); i++ {
			if p.text[i] != other[i] {
				p.at = append(p.at, i)
				i += length - 1
			}
		}
	}
	return p
}

// append appends a request about a key.
func (t *template) append(b, key []byte) []byte {
	p := t.of(len(key))
	start := len(b)
	b = append(b, p.text...)
	for _, at := range p.at {
		copy(b[start+at:], key)
	}
	return b
}
