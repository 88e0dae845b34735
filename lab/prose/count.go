package prose

import (
	"strings"
	"unicode"
)

// Count is how much prose there is: in paragraphs and lists, not in headings and tables.
type Count struct {
	Words     int
	Sentences int
}

// Add adds the sentences of a block to the count.
func (c *Count) Add(b Block) {
	if b.Kind == Heading || b.Kind == Row {
		return
	}
	words := 0
	for field := range strings.FieldsSeq(b.Text) {
		if strings.ContainsFunc(field, wordly) {
			words++
		}
		if words > 0 && ends(field) {
			c.Words, c.Sentences = c.Words+words, c.Sentences+1
			words = 0
		}
	}
	if words > 0 {
		c.Words, c.Sentences = c.Words+words, c.Sentences+1
	}
}

// Mean is the mean number of words of a sentence, 0 without any.
func (c *Count) Mean() float64 {
	if c.Sentences == 0 {
		return 0
	}
	return float64(c.Words) / float64(c.Sentences)
}

// wordly reports whether r makes a field a word. A span of code is one.
func wordly(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '`'
}

// ends reports whether a sentence ends with this field.
func ends(field string) bool {
	switch strings.ToLower(strings.Trim(field, `()"`)) {
	case "e.g.", "i.e.", "vs.":
		return false
	}
	field = strings.TrimRight(field, `)"'`)
	return strings.HasSuffix(field, ".") || strings.HasSuffix(field, "!") || strings.HasSuffix(field, "?")
}
