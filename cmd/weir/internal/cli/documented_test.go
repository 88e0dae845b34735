package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

var (
	// program is how pages call it; ends is where a command of a shell does.
	program = regexp.MustCompile(`^(?:\$ )?(?:go run \./cmd/weir|bin/weir|weir) (.*)$`)
	ends    = regexp.MustCompile(` (?:\||&&|&|>|>>|<|2>|;)(?: |$).*`)
)

// TestDocumentedCommandsExist reads each command line of the program that a page shows as the program would: the command, its
// flags, and their values.
func TestDocumentedCommandsExist(t *testing.T) {
	const root = "../../../.."
	read := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, line := range shellLines(string(text)) {
			found := program.FindStringSubmatch(line)
			if found == nil || strings.Contains(line, "...") || strings.Contains(line, "$(") {
				continue
			}
			read++
			if err := readCommand(shellWords(ends.ReplaceAllString(found[1], ""))); err != nil {
				t.Errorf("%s shows %q: %v", filepath.Base(path), line, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 100 {
		t.Errorf("only %d commands are shown: does the search still work?", read)
	}
}

// readCommand reads the flags of a command as if it were to be run.
func readCommand(args []string) error {
	cmd, rest, err := newRoot().Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if cmd.HasAvailableSubCommands() && cmd.Flags().NArg() > 0 {
		return flags.Errorf("%s has no command %s", cmd.CommandPath(), flags.Quote(cmd.Flags().Arg(0)))
	}
	return nil
}

// shellLines are the lines of the blocks of a page that are for a shell. A line that ends with a backslash goes on in the next
// one.
func shellLines(page string) (lines []string) {
	inside := false
	for line := range strings.Lines(strings.ReplaceAll(page, "\\\n", " ")) {
		line = strings.TrimRight(line, "\r\n")
		switch fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```"); {
		case isFence && !inside:
			inside = fence == "sh" || fence == "console" || fence == "bash"
		case isFence:
			inside = false
		case inside:
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// shellWords splits a command at blanks outside quotes, and ends with a comment.
func shellWords(command string) (words []string) {
	var word strings.Builder
	begun := false
	var quote rune
	for _, r := range command {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == '#' && !begun:
			return words
		case r == ' ':
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}

// TestWrongCommandsAreFound: what the test above looks for is found.
func TestWrongCommandsAreFound(t *testing.T) {
	page := "```sh\nweir serve --htp :7070\n$ weir admin nothing   # a comment\nweir bench resp \\\n  --pipeline many | head\nweir nothing\n```\n" +
		"```text\nweir not a command\n```\n```console\n$ go run ./cmd/weir serve --http ':7070' &\n```\n"
	var wrong []string
	lines := shellLines(page)
	for _, line := range lines {
		found := program.FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("%q is no command", line)
		}
		if err := readCommand(shellWords(ends.ReplaceAllString(found[1], ""))); err != nil {
			wrong = append(wrong, found[1])
		}
	}
	if len(lines) != 5 || len(wrong) != 4 {
		t.Errorf("of %q these are wrong: %q", lines, wrong)
	}
}
