package terminal_test

import (
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text          string
		indent, width int
		want          string
	}{
		{"", 2, 10, ""},
		{" one  two\nthree ", 0, 80, "one two three"},
		{"one two three", 2, 9, "  one two\n  three"},
		{"one two three", 2, 8, "  one\n  two\n  three"},
		{"äö üß äöü", 0, 5, "äö üß\näöü"},
		{"a remarkable b", 1, 4, " a\n remarkable\n b"},
	} {
		if got := terminal.Wrap(c.text, c.indent, c.width); got != c.want {
			t.Errorf("%q, %d, %d: %q, want %q", c.text, c.indent, c.width, got, c.want)
		}
	}
}
