package migrating_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocumentShowsWhatIsTested looks each block of code and configuration of docs/migrating.md and docs/migrating-go.md up in the
// files of this module, so that what is read there is what the tests run.
func TestDocumentShowsWhatIsTested(t *testing.T) {
	var text strings.Builder
	for _, page := range []string{"../../docs/migrating.md", "../../docs/migrating-go.md"} {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("\n" + string(content))
	}
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
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
	for _, block := range strings.Split(text.String(), "\n```")[1:] {
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
			t.Errorf("the pages show what is in no file here:\n%s", code)
		}
	}
	if shown["go"] < 19 || shown["yaml"] < 4 || shown["nginx"] < 2 {
		t.Errorf("the pages show too little: %v", shown)
	}
}
