// Package prose reads the sentences of the documentation: of pages in Markdown, of doc comments in Go, and of the comments in
// YAML. Code is no prose.
package prose

import (
	"regexp"
	"strings"
)

// Kind is what a block is on its page.
type Kind int

// The kinds of blocks.
const (
	Paragraph Kind = iota // a paragraph, or one item of a list
	Heading
	Row     // one row of a table
	Comment // of YAML
)

// Block is a piece of prose. A sentence does not go on from one block into the next.
type Block struct {
	Kind Kind
	Line int // the number of its first line, from 1

	// Text has no marks of Markdown: no marker of a list, no emphasis, no target of a link. A span of code is one "`". A line of
	// the page is a line of the text.
	Text string
}

var (
	fence    = regexp.MustCompile("^\\s*(```+|~~~+)")
	heading  = regexp.MustCompile(`^#{1,6}\s+`)
	marker   = regexp.MustCompile(`^\s*(?:[-*+]|\d+[.)])\s+`)
	quote    = regexp.MustCompile(`^\s*>\s?`)
	tagLine  = regexp.MustCompile(`^\s*</?[a-zA-Z!]`)
	named    = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s+\S+`)
	code     = regexp.MustCompile("(?s)`[^`]*`")
	link     = regexp.MustCompile(`(?s)!?\[([^\]]*)\]\([^)]*\)`)
	tag      = regexp.MustCompile(`</?[a-zA-Z][^>]*>|<!--.*?-->`)
	emphasis = strings.NewReplacer("*", "")
)

// Markdown returns the prose of a page.
func Markdown(page string) []Block {
	var (
		blocks []Block
		open   bool   // the last block goes on
		fenced string // what ends the code that has begun
		html   bool   // within a piece of HTML, which ends with an empty line
	)
	number := 0
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if mark := fence.FindStringSubmatch(line); fenced != "" || mark != nil {
			switch {
			case fenced == "":
				fenced = mark[1]
			case strings.HasPrefix(strings.TrimSpace(line), fenced):
				fenced = ""
			}
			open = false
			continue
		}
		if strings.TrimSpace(line) == "" {
			open, html = false, false
			continue
		}
		if html = html || tagLine.MatchString(line); html || named.MatchString(line) {
			open = false
			continue
		}
		line = quote.ReplaceAllString(line, "")
		next := Block{Line: number}
		switch {
		case heading.MatchString(line):
			next.Kind, next.Text = Heading, heading.ReplaceAllString(line, "")
		case strings.HasPrefix(strings.TrimSpace(line), "|"):
			next.Kind, next.Text = Row, strings.Trim(line, "| \t")
		case marker.MatchString(line):
			next.Text = marker.ReplaceAllString(line, "")
		case open:
			last := &blocks[len(blocks)-1]
			last.Text += "\n" + strings.TrimSpace(line)
			continue
		default:
			next.Text = strings.TrimSpace(line)
		}
		blocks = append(blocks, next)
		open = next.Kind == Paragraph
	}
	for i := range blocks {
		blocks[i].Text = plain(blocks[i].Text)
	}
	return blocks
}

// Godoc returns the prose of a doc comment, as [go/ast.CommentGroup.Text] returns it, which begins on the given line of its file.
// Lines that begin with a tab are code.
func Godoc(text string, line int) []Block {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "\t") {
			lines[i] = ""
		}
	}
	blocks := Markdown(strings.Join(lines, "\n"))
	for i := range blocks {
		blocks[i].Line += line - 1
	}
	return blocks
}

// plain is text without the marks of Markdown, on as many lines as before.
func plain(text string) string {
	text = code.ReplaceAllStringFunc(text, func(span string) string {
		return "`" + strings.Repeat("\n", strings.Count(span, "\n"))
	})
	text = link.ReplaceAllStringFunc(text, func(span string) string {
		shown := link.FindStringSubmatch(span)[1]
		return shown + strings.Repeat("\n", strings.Count(span, "\n")-strings.Count(shown, "\n"))
	})
	return emphasis.Replace(tag.ReplaceAllString(text, ""))
}

// comment finds one on a line of YAML. A quoted value may have a # in it: one behind a value counts only where no quote follows.
var comment = regexp.MustCompile(`^#\s?(.*)$|\s#\s([^"']*)$`)

// Comments returns the comments of a file of YAML. Those on lines that follow each other are one block.
func Comments(file string) []Block {
	var blocks []Block
	number, last := 0, -1
	for line := range strings.Lines(file) {
		number++
		line = strings.TrimSpace(line)
		whole := strings.HasPrefix(line, "#")
		found := comment.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		text := plain(found[1] + found[2])
		if whole && last == number-1 {
			blocks[len(blocks)-1].Text += "\n" + text
		} else {
			blocks = append(blocks, Block{Kind: Comment, Line: number, Text: text})
		}
		if whole {
			last = number
		}
	}
	return blocks
}

// Words finds words, or several words in a row, in blocks.
type Words struct {
	any  *regexp.Regexp // matches where at least one of them is
	each map[string]*regexp.Regexp
}

// NewWords returns what finds these words. Upper and lower case are the same; between two words in a row there may be the end of
// a line.
func NewWords(words ...string) Words {
	w := Words{each: make(map[string]*regexp.Regexp, len(words))}
	all := make([]string, 0, len(words))
	for _, word := range words {
		fields := strings.Fields(word)
		for i, field := range fields {
			fields[i] = regexp.QuoteMeta(field)
		}
		find := `\b` + strings.Join(fields, `\s+`) + `\b`
		w.each[word] = regexp.MustCompile(`(?i)` + find)
		all = append(all, find)
	}
	w.any = regexp.MustCompile(`(?i)` + strings.Join(all, "|"))
	return w
}

// Find calls f with each word that is in the block, and the number of the line on which it begins.
func (w Words) Find(b Block, f func(word string, line int)) {
	if !w.any.MatchString(b.Text) {
		return
	}
	for word, find := range w.each {
		for _, at := range find.FindAllStringIndex(b.Text, -1) {
			f(word, b.Line+strings.Count(b.Text[:at[0]], "\n"))
		}
	}
}
