//nolint:ireturn // texts are of several types, which callers need not know
package policy

import (
	"slices"
	"strings"

	"github.com/weirhq/weir/internal/keytext"
)

// joined is JoinText.
type joined struct{ parts []Text }

// JoinText is the parts with a comma between each two of them. A comma or a backslash within one of several parts is escaped by a
// backslash, so that parts that differ never make the same text.
//
// Texts are bounded however long a header is: a part that is longer than 128 bytes is replaced by its first 60 bytes and a
// SHA-256. That is so for each text of this package that is taken from one place of a request, and for parts of other packages
// once they are joined. The texts of this package never fail; JoinText and [ConcatText] do if a part of another package does.
// They allocate nothing if the bytes that they append to have room, except for a part that is long and for a path or host with an
// unusual spelling.
func JoinText(parts ...Text) Text { return &joined{slices.Clone(parts)} }

func (t *joined) AppendTo(b []byte, r *Request) ([]byte, error) {
	for i, p := range t.parts {
		if i > 0 {
			b = append(b, keytext.Separator)
		}
		start := len(b)
		var err error
		if b, err = appendText(b, p, r); err != nil {
			return b, err
		}
		if len(t.parts) > 1 {
			b = keytext.Escape(b, start)
		}
	}
	return b, nil
}

func (t *joined) String() string { return "[" + spell(t.parts, ", ") + "]" }

// concatenated is ConcatText.
type concatenated struct{ parts []Text }

// ConcatText is the parts one after the other, with nothing in between: parts that differ can make the same text. Long parts are
// bounded, and it fails if a part fails: see [JoinText].
func ConcatText(parts ...Text) Text { return &concatenated{slices.Clone(parts)} }

func (t *concatenated) AppendTo(b []byte, r *Request) ([]byte, error) {
	for _, p := range t.parts {
		var err error
		if b, err = appendText(b, p, r); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (t *concatenated) String() string {
	if len(t.parts) == 0 {
		return `""`
	}
	return spell(t.parts, " + ")
}

func spell(parts []Text, between string) string {
	words := make([]string, len(parts))
	for i, p := range parts {
		words[i] = p.String()
	}
	return strings.Join(words, between)
}
