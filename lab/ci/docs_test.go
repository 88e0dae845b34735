package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocs prints the counts of a page of short sentences, and of one of long ones, which is marked.
func TestDocs(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short.md")
	long := filepath.Join(t.TempDir(), "long.md")
	for name, text := range map[string]string{
		short: "# Title\n\nOne two three. Four.\n",
		long:  strings.Repeat("word ", 19) + "\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := run(t.Context(), &out, []string{"docs", short, long}); err != nil {
		t.Fatal(err)
	}
	want := "  words  words/sentence\n" +
		"      4             2.0  " + short + "\n" +
		"     19            19.0  " + long + "  above 18\n" +
		"     23             7.7  total\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if err := run(t.Context(), &out, []string{"docs", short + ".gone"}); err == nil {
		t.Error("a page that does not exist is no error")
	}
}
