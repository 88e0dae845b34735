package prose_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/lab/prose"
)

const page = "# A *loud* `title`\n" +
	"\n" +
	"The first sentence has `code of many\n" +
	"words`, and ends. A [second\n" +
	"one](target.md#far) e.g. here (in **bold**.) A third?\n" +
	"\n" +
	"- an item,\n" +
	"  which goes on\n" +
	"2. another\n" +
	"\n" +
	"```sh\n" +
	"nobody reads this\n" +
	"```\n" +
	"| head | nobody |\n" +
	"|---|---|\n" +
	"<p>\n" +
	"HTML.\n" +
	"\n" +
	"[ref]: target.md\n" +
	"The end\n"

func TestMarkdown(t *testing.T) {
	want := []prose.Block{
		{Kind: prose.Heading, Line: 1, Text: "A loud `"},
		{Line: 3, Text: "The first sentence has `\n, and ends. A second\none e.g. here (in bold.) A third?"},
		{Line: 7, Text: "an item,\nwhich goes on"},
		{Line: 9, Text: "another"},
		{Kind: prose.Row, Line: 14, Text: "head | nobody"},
		{Kind: prose.Row, Line: 15, Text: "---|---"},
		{Line: 20, Text: "The end"},
	}
	if got := prose.Markdown(page); !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestCount(t *testing.T) {
	var c prose.Count
	for _, b := range prose.Markdown(page) {
		c.Add(b)
	}
	// The sentences have 7, 7 and 2 words, the items 5 and 1, the end 2.
	if want := (prose.Count{Words: 24, Sentences: 6}); c != want || c.Mean() != 4 {
		t.Errorf("got %+v, mean %v, want %+v, mean 4", c, c.Mean(), want)
	}
	if none := (&prose.Count{}).Mean(); none != 0 {
		t.Errorf("no sentences: mean %v", none)
	}
}

func TestComments(t *testing.T) {
	file := "# One comment,\n# two lines.\npolicies: # behind a value\n  - name: \"a # b\"\n    # Another.\n"
	want := []prose.Block{
		{Kind: prose.Comment, Line: 1, Text: "One comment,\ntwo lines."},
		{Kind: prose.Comment, Line: 3, Text: "behind a value"},
		{Kind: prose.Comment, Line: 5, Text: "Another."},
	}
	if got := prose.Comments(file); !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestGodoc(t *testing.T) {
	text := "Limit is a limit.\nIt has a\n\n\tnobody reads(this)\n\nunit:\n  - one, which\n    goes on\n\n# A heading\n\nThe end.\n"
	want := []prose.Block{
		{Line: 7, Text: "Limit is a limit.\nIt has a"},
		{Line: 12, Text: "unit:"},
		{Line: 13, Text: "one, which\ngoes on"},
		{Kind: prose.Heading, Line: 16, Text: "A heading"},
		{Line: 18, Text: "The end."},
	}
	if got := prose.Godoc(text, 7); !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestFind(t *testing.T) {
	find := func(b prose.Block, words ...string) (lines []int) {
		prose.NewWords(words...).Find(b, func(_ string, line int) { lines = append(lines, line) })
		slices.Sort(lines)
		return lines
	}
	b := prose.Block{Line: 10, Text: "Shut out, or shut\nout; shutout\nand shut  out. Nobody"}
	if got := find(b, "shut out", "nobody"); !slices.Equal(got, []int{10, 10, 12, 12}) {
		t.Errorf("got lines %v", got)
	}
	for block := range slices.Values(prose.Markdown(page)) {
		if found := find(block, "nobody"); len(found) > 0 && block.Kind != prose.Row || len(find(block, "reads")) > 0 {
			t.Errorf("code is found: %v", strings.TrimSpace(block.Text))
		}
	}
}
