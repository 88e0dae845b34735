package main_test

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// terminal opens a terminal of 24 rows. What a program writes to tty is read from screen.
func terminal(t *testing.T, columns uint16) (screen, tty *os.File) {
	t.Helper()
	screen, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = tty.Close()
		_ = screen.Close()
	})
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	return screen, tty
}

// onTerminal runs the program with its output on a terminal of 80 columns.
func onTerminal(t *testing.T, environment string, args ...string) string {
	t.Helper()
	return onTerminalOf(t, 80, environment, args...)
}

func onTerminalOf(t *testing.T, columns uint16, environment string, args ...string) string {
	t.Helper()
	screen, tty := terminal(t, columns)
	cmd := command(t, args...)
	if args[0] != "replay" { // it alone does several things at a time
		cmd.Path = plain
	}
	cmd.Env = append(os.Environ(), "NO_COLOR=", "TERM=xterm", environment)
	cmd.Stdout, cmd.Stderr = tty, tty
	cmd.Dir = "../../examples"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	// When the program has closed the terminal, reading ends with an error.
	text, _ := io.ReadAll(screen)
	_ = cmd.Wait()
	return string(text)
}

// coloured finds the escape sequences of colours, and not those with which a bar is moved; escape finds all.
var (
	coloured = regexp.MustCompile("\x1b\\[[0-9;]*m")
	escape   = regexp.MustCompile("\x1b\\[[0-9;]*[a-zA-Z]")
)

func TestColoursOnlyWhereTheyAreWanted(t *testing.T) {
	for what, args := range map[string][]string{"help": {"--help"}, "misuse": {"serv"}, "replay": inExamples} {
		if got := onTerminal(t, "TERM=xterm", args...); !coloured.MatchString(got) {
			t.Errorf("%s on a terminal has no colours: %q", what, got)
		}
		for _, environment := range []string{"NO_COLOR=1", "TERM=dumb"} {
			if got := onTerminal(t, environment, args...); coloured.MatchString(got) {
				t.Errorf("%s with %s has colours: %q", what, environment, got)
			}
		}
		if got := weir(t, nil, args...); strings.Contains(got.stdout+got.stderr, "\x1b") {
			t.Errorf("%s without a terminal has colours: %q", what, got.stdout+got.stderr)
		}
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	text := onTerminal(t, "NO_COLOR=1", slices.Concat(inExamples, []string{"--by", "header:User-Agent"})...)
	for line := range strings.Lines(escape.ReplaceAllString(text, "")) {
		if n := len([]rune(strings.TrimRight(line, "\r\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// TestChartFitsTheTerminal: a chart that is broken into several lines says nothing.
func TestChartFitsTheTerminal(t *testing.T) {
	for columns, most := range map[uint16]int{200: 75, 80: 75, 60: 60, 40: 40} {
		text := escape.ReplaceAllString(onTerminalOf(t, columns, "NO_COLOR=1", inExamples...), "")
		_, chart, found := strings.Cut(text, "when, in steps of")
		lines := strings.Split(chart, "\n")
		if !found || len(lines) < 4 {
			t.Fatalf("%d columns: no chart in %q", columns, text)
		}
		for _, line := range lines[1:4] {
			if n := len([]rune(strings.TrimRight(line, "\r"))); n > most || n < most/2 {
				t.Errorf("a line of %d columns, on a terminal of %d: %s", n, columns, line)
			}
		}
	}
}

// TestProgressOnATerminal holds the input open until the bar is seen, which is on standard error only, and then not
// there any more.
func TestProgressOnATerminal(t *testing.T) {
	screen, tty := terminal(t, 80)
	cmd := command(t, "replay", "-")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	line := `192.0.2.1 - - [03/Mar/2026:14:00:04 +0000] "GET / HTTP/1.1" 200 2 "-" "-"` + "\n"
	if _, err := io.WriteString(stdin, strings.Repeat(line, 1<<20/len(line))); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	piece := make([]byte, 1024)
	for !strings.Contains(seen.String(), "iB/s") {
		n, err := screen.Read(piece)
		if err != nil {
			t.Fatalf("no bar: %v in %q", err, seen.String())
		}
		seen.Write(piece[:n])
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(screen)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(rest), " lines/s") {
		t.Errorf("no throughput at the end: %q", rest)
	}
	if strings.Contains(stdout.String(), "iB/s") || !strings.Contains(stdout.String(), "requests") {
		t.Errorf("standard output: %q", stdout.String())
	}
}
