package main

import (
	"fmt"
	"io"
	"os"

	"github.com/weirhq/weir/lab/prose"
)

// longSentences is the mean length of the sentences of a page above which it is marked.
const longSentences = 18

// runDocs prints how many words of prose each page has, and the mean length of its sentences.
func runDocs(out io.Writer, pages []string) error {
	var all prose.Count
	fmt.Fprintf(out, "%7s  %14s\n", "words", "words/sentence")
	for _, page := range pages {
		text, err := os.ReadFile(page) //nolint:gosec // a page that the caller names
		if err != nil {
			return fmt.Errorf("read a page: %w", err)
		}
		var c prose.Count
		for _, b := range prose.Markdown(string(text)) {
			c.Add(b)
		}
		printCount(out, c, page)
		all.Words, all.Sentences = all.Words+c.Words, all.Sentences+c.Sentences
	}
	printCount(out, all, "total")
	return nil
}

func printCount(out io.Writer, c prose.Count, name string) {
	mark := ""
	if c.Mean() > longSentences {
		mark = fmt.Sprintf("  above %d", longSentences)
	}
	fmt.Fprintf(out, "%7d  %14.1f  %s%s\n", c.Words, c.Mean(), name, mark)
}
