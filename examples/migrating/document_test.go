package migrating_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocumentShowsWhatIsTested looks each block of code and configuration of docs/migrating.md up in the files of this
// module, so that what is read there is what the tests run.
func TestDocumentShowsWhatIsTested(t *testing.T) {
	text, err := os.ReadFile("../../docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		content, err := os.ReadFile(path)
		files = append(files, string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]int{}
	for _, block := range strings.Split("\n"+string(text), "\n```")[1:] {
		language, code, _ := strings.Cut(block, "\n")
		if language != "go" && language != "yaml" && language != "nginx" {
			continue
		}
		shown[language]++
		found := false
		for _, content := range files {
			found = found || strings.Contains("\n"+content, "\n"+code+"\n")
		}
		if !found {
			t.Errorf("docs/migrating.md shows what is in no file here:\n%s", code)
		}
	}
	if shown["go"] < 6 || shown["yaml"] < 2 || shown["nginx"] < 2 {
		t.Errorf("docs/migrating.md shows too little: %v", shown)
	}
}
