// Package prose reads the sentences of the documentation: of pages in Markdown, and of the comments in YAML. Code is no prose.
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

// Find returns the number of each line on which some words begin. Upper and lower case are the same; between two of the words
// there may be the end of a line.
func (b Block) Find(words string) (lines []int) {
	fields := strings.Fields(words)
	for i, field := range fields {
		fields[i] = regexp.QuoteMeta(field)
	}
	find := regexp.MustCompile(`(?i)\b` + strings.Join(fields, `\s+`) + `\b`)
	for _, at := range find.FindAllStringIndex(b.Text, -1) {
		lines = append(lines, b.Line+strings.Count(b.Text[:at[0]], "\n"))
	}
	return lines
}
