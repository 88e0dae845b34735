package config

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func documentation(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

var (
	heading  = regexp.MustCompile(`(?m)^##+ (.*)$`)
	tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)$")
	block    = regexp.MustCompile("(?s)```yaml\n(.*?)```")
)

// section is what stands below a heading.
func section(t *testing.T, text, title string) string {
	t.Helper()
	places := heading.FindAllStringSubmatchIndex(text, -1)
	for i, p := range places {
		if text[p[2]:p[3]] != title {
			continue
		}
		end := len(text)
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		return text[p[1]:end]
	}
	t.Fatalf("there is no section %s", title)
	return ""
}

// TestEveryKeyIsDocumented compares the tables of the documentation with the keys of the decoder.
func TestEveryKeyIsDocumented(t *testing.T) {
	text := documentation(t)
	for _, k := range kinds() {
		title := k.section
		if title == "" {
			continue // its keys are those of a policy as well
		}
		documented := map[string]bool{}
		first, _, _ := strings.Cut(strings.TrimLeft(section(t, text, title), "\n"), "\n\n|") // the first table only
		rows := first
		if !strings.Contains(rows, "|---|") {
			rows = section(t, text, title)
			_, rows, _ = strings.Cut(rows, "|---|")
			rows, _, _ = strings.Cut(rows, "\n\n")
		}
		for _, row := range tableRow.FindAllStringSubmatch(rows, -1) {
			documented[row[1]] = true
		}
		if got, want := slices.Sorted(maps.Keys(documented)), k.Keys; !slices.Equal(got, want) {
			t.Errorf("%s: documented are %v, the decoder has %v", title, got, want)
		}
	}
}

// TestGenerated: the schema beside this package, and the tables of keys in the documentation, are made of the tables of the decoder.
// go generate writes them anew.
func TestGenerated(t *testing.T) {
	pages := map[string]string{"schema.json": string(Schema())}
	const page = "../docs/configuration.md"
	text := documentation(t)
	for title, table := range references() {
		old := section(t, text, title)
		begin := strings.Index(old, "| key |")
		end := begin + strings.Index(old[begin:]+"\n\n", "\n\n") + 1
		text = strings.Replace(text, old, old[:begin]+table+old[min(end, len(old)):], 1)
	}
	pages[page] = text
	for name, want := range pages {
		if flag.Lookup("update").Value.String() == "true" {
			if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(name)
		if err != nil || string(got) != want {
			t.Errorf("%s is not what the tables of keys say (%v): run go generate", name, err)
		}
	}
}

// TestDocumentedExpressionsExist compares the tables of variables and functions with what is declared.
func TestDocumentedExpressionsExist(t *testing.T) {
	text := section(t, documentation(t), "Expressions")
	documented := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(text, -1) {
		name, _, _ := strings.Cut(row[1], "(")
		documented[name] = true
	}
	for _, name := range append(variableNames(), nameQueryParam, nameInNetwork) {
		if !documented[name] {
			t.Errorf("%s is not documented", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is documented and does not exist", name)
	}
}

// TestDocumentedFilesAreRight parses the examples of the documentation, which show every key.
func TestDocumentedFilesAreRight(t *testing.T) {
	blocks := block.FindAllStringSubmatch(documentation(t), -1)
	if len(blocks) < 8 {
		t.Errorf("only %d examples", len(blocks))
	}
	s := compiledSchema(t, "")
	var shown strings.Builder
	for _, b := range blocks {
		f, err := Parse("example.yaml", []byte(b[1]), Options{Env: testEnv})
		if err != nil {
			t.Errorf("%v in\n%s", err, b[1])
			continue
		}
		for _, w := range f.Warnings {
			t.Errorf("%v in\n%s", w, b[1])
		}
		if err := s.Validate(plainYAML(t, b[1])); err != nil {
			t.Errorf("the schema refuses\n%s%v", b[1], err)
		}
		shown.WriteString(b[1])
	}
	for _, k := range kinds() {
		name := k.name
		for _, key := range k.Keys {
			if !regexp.MustCompile(`\b`+key+`:`).MatchString(shown.String()) && key != "mode" && key != "priority" {
				t.Errorf("no example shows %s of %s", key, name)
			}
		}
	}
}

// TestSharedDocumentation parses the examples of the documentation of shared limits, and the file for users.
func TestSharedDocumentation(t *testing.T) {
	text, err := os.ReadFile("../docs/shared.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../examples/shared.yaml")
	if err != nil {
		t.Fatal(err)
	}
	blocks := append(block.FindAllStringSubmatch(string(text), -1), []string{"", string(example)})
	s := compiledSchema(t, "")
	for _, b := range blocks {
		f, err := Parse("example.yaml", []byte(b[1]), Options{Env: testEnv})
		if err != nil || len(f.Warnings) > 0 || len(f.Bounds()) == 0 {
			t.Errorf("%v, %v in\n%s", err, f, b[1])
			continue
		}
		if err := s.Validate(plainYAML(t, b[1])); err != nil {
			t.Errorf("the schema refuses\n%s%v", b[1], err)
		}
	}
	if len(blocks) < 2 {
		t.Error("no examples")
	}
}

// TestPagesHaveFilesThatAreRight parses each configuration that README.md and the pages of docs show.
func TestPagesHaveFilesThatAreRight(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	s, shown := compiledSchema(t, ""), 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range block.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains("\n"+b[1], "\nversion: 1\n") {
				continue // a file of something else
			}
			shown++
			if _, err := Parse(page, []byte(b[1]), Options{Env: testEnv}); err != nil {
				t.Errorf("%v in\n%s", err, b[1])
			}
			if err := s.Validate(plainYAML(t, b[1])); err != nil {
				t.Errorf("the schema refuses what %s has:\n%s%v", page, b[1], err)
			}
		}
	}
	if shown < 30 {
		t.Errorf("only %d files were found", shown)
	}
}

// TestExampleFile reads the example for users: without mistakes, without warnings, and as the schema says.
func TestExampleFile(t *testing.T) {
	const name = "../examples/weir.yaml"
	f, err := Load(name, Options{Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range f.Warnings {
		t.Error(w)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := compiledSchema(t, "").Validate(plainYAML(t, string(content))); err != nil {
		t.Error(err)
	}
	if len(f.Set.Policies) < 8 || len(f.Set.Rules) < 6 {
		t.Errorf("%d policies, %d rules", len(f.Set.Policies), len(f.Set.Rules))
	}
}
