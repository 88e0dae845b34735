package interop_test

import (
	"os"
	"strings"
	"testing"
)

// The addresses in the document, in whose place the tests put theirs.
const (
	documentWeir  = "127.0.0.1:7070"
	documentFront = ":8080"
	documentApp   = "127.0.0.1:3000"
)

// snippet is the block of docs/front.md whose first line names it, such as "# weir.yaml", or "-- weir.lua" in Lua.
func snippet(t *testing.T, language, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/front.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(text), "```"+language+"\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		first, _, _ := strings.Cut(block, "\n")
		first = strings.TrimPrefix(strings.TrimPrefix(first, "# "), "-- ")
		if first == name || strings.HasPrefix(first, name+",") {
			return block
		}
	}
	t.Fatalf("docs/front.md has no block of %s that begins with %s", language, name)
	return ""
}

// addresses are those of the servers of one test.
type addresses struct{ weir, front, app string }

// in puts the addresses in the place of those of the document. Each must be there.
func (a addresses) in(t *testing.T, text string) string {
	t.Helper()
	return a.inBoth(t, text, "")[0]
}

// inBoth does so in two files, of which one has to have each address.
func (a addresses) inBoth(t *testing.T, first, second string) [2]string {
	t.Helper()
	for _, from := range []string{documentWeir, documentFront, documentApp} {
		if !strings.Contains(first+second, from) {
			t.Fatalf("%s is not in the document:\n%s%s", from, first, second)
		}
	}
	_, port, _ := strings.Cut(a.front, ":")
	all := strings.NewReplacer(documentWeir, a.weir, documentFront, ":"+port, documentApp, a.app) // one may be a part of another
	return [2]string{all.Replace(first), all.Replace(second)}
}

// without is text without the one line that has mark.
func without(t *testing.T, text, mark string) string {
	t.Helper()
	var kept strings.Builder
	left := 0
	for line := range strings.Lines(text) {
		if strings.Contains(line, mark) {
			left++
			continue
		}
		kept.WriteString(line)
	}
	if left != 1 {
		t.Fatalf("%q is in %d lines of\n%s", mark, left, text)
	}
	return kept.String()
}

// replaced is text with one word in the place of another, which is there once.
func replaced(t *testing.T, text, from, to string) string {
	t.Helper()
	if n := strings.Count(text, from); n != 1 {
		t.Fatalf("%q is %d times in\n%s", from, n, text)
	}
	return strings.Replace(text, from, to, 1)
}
