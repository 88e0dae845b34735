package main_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runInRoot runs a command line of the documentation, "weir ...", in the root of the repository. It returns standard output, and what
// it says if it fails, as a terminal shows both.
func runInRoot(t *testing.T, line string, replace map[string]string) string {
	t.Helper()
	args := shellWords(line)
	if args[0] != "weir" {
		t.Fatalf("the test does not know how to run %q", line)
	}
	for i, arg := range args {
		if other, ok := replace[arg]; ok {
			args[i] = other
		}
	}
	cmd := command(t, args[1:]...)
	cmd.Dir = filepath.Join("..", "..")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String() + stderr.String()
	}
	return stdout.String()
}

// TestDocs runs every command of these documents, and compares the output that they show. With -update it is written there.
func TestDocs(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "replay.svg")
	replace := map[string]string{"docs/images/replay.svg": picture}
	for _, name := range []string{"replay.md", "testing.md"} {
		path := filepath.Join("..", "..", "docs", name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(string(text), "```console\n")
		for i, part := range parts[1:] {
			block, rest, _ := strings.Cut(part, "```")
			var now strings.Builder
			for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
				line, _, _ := strings.Cut(step, "\n")
				now.WriteString("$ " + line + "\n" + strings.TrimRight(runInRoot(t, line, replace), "\n") + "\n")
			}
			// What is at the end of a line cannot be seen, and editors take it away.
			var lines []string
			for line := range strings.SplitSeq(now.String(), "\n") {
				lines = append(lines, strings.TrimRight(line, " "))
			}
			got := strings.Join(lines, "\n")
			if got != block && !*update {
				t.Errorf("%s shows\n%s\nand the program prints\n%s", name, block, got)
			}
			parts[i+1] = got + "```" + rest
		}
		if len(parts) < 2 {
			t.Errorf("%s shows nothing", name)
		}
		if *update {
			if err := os.WriteFile(path, []byte(strings.Join(parts, "```console\n")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	drawn, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	shown := filepath.Join("..", "..", "docs", "images", "replay.svg")
	if *update {
		if err := os.WriteFile(shown, drawn, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(shown); err != nil || !bytes.Equal(drawn, want) {
		t.Errorf("the picture in docs/images/replay.svg is another one (go test -update writes it): %v", err)
	}
}

// TestHelpAsItWas keeps the help of these commands, so that a change of it is seen.
func TestHelpAsItWas(t *testing.T) {
	for _, name := range []string{"replay", "config", "config check", "config explain", "config schema", "test"} {
		help := weir(t, nil, append(strings.Fields(name), "--help")...)
		golden(t, filepath.Join("help", strings.ReplaceAll(name, " ", "_")+".txt"), help.stdout)
	}
}

// TestDocsShowAFailure runs the test of docs/testing.md that fails, and compares the output with what is shown.
func TestDocsShowAFailure(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "testing.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), "```yaml\n# wrong_test.yaml\n")
	tests, rest, hasOutput := strings.Cut(rest, "```\n\n```text\n")
	shown, after, ends := strings.Cut(rest, "```\n")
	if !found || !hasOutput || !ends {
		t.Fatal("there is no test that fails")
	}
	dir := t.TempDir()
	configuration, err := os.ReadFile("../../examples/replay/stricter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"stricter.yaml": configuration, "wrong_test.yaml": []byte("# wrong_test.yaml\n" + tests)} {
		if err = os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := command(t, "test", "wrong_test.yaml")
	cmd.Dir = dir
	output, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v\n%s", err, output)
	}
	if *update {
		whole := before + "```yaml\n# wrong_test.yaml\n" + tests + "```\n\n```text\n" + string(output) + "```\n" + after
		if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if shown != string(output) {
		t.Errorf("it shows\n%s\nand the program prints\n%s", shown, output)
	}
}

// TestExamplesOfTests runs all tests of configurations among the examples.
func TestExamplesOfTests(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../../examples", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.yaml") {
			found++
			if got := weir(t, nil, "test", path); got.status != 0 || got.stderr != "" {
				t.Errorf("%s: status %d\n%s%s", path, got.status, got.stdout, got.stderr)
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d files: %v", found, err)
	}
}
