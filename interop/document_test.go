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

// snippet is the block of docs/front.md whose first line names it, such as "# weir.yaml".
func snippet(t *testing.T, language, name string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/front.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(text), "```"+language+"\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.HasPrefix(block, "# "+name+"\n") || strings.HasPrefix(block, "# "+name+",") {
			return block
		}
	}
	t.Fatalf("docs/front.md has no block of %s that begins with # %s", language, name)
	return ""
}

// addresses are those of the servers of one test.
type addresses struct{ weir, front, app string }

// in puts the addresses in the place of those of the document. Each must be there.
func (a addresses) in(t *testing.T, text string) string {
	t.Helper()
	_, port, _ := strings.Cut(a.front, ":")
	for from, to := range map[string]string{documentWeir: a.weir, documentFront: ":" + port, documentApp: a.app} {
		if !strings.Contains(text, from) {
			t.Fatalf("%s is not in the document:\n%s", from, text)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	return text
}
