package main_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// inExamples are the arguments that replay the example of the README.
var inExamples = []string{"replay", "access.log", "--limit", "1/s", "--burst", "5", "--by", "client.ip"}

func replayExample(t *testing.T, extra ...string) outcome {
	t.Helper()
	cmd := command(t, append(inExamples, extra...)...)
	cmd.Dir = "../../examples"
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return outcome{stdout.String(), stderr.String(), 0}
}

func TestReplayOfTheExample(t *testing.T) {
	got := replayExample(t)
	golden(t, "replay.txt", got.stdout)
	if !regexp.MustCompile(`^[\d,]+ lines in \S+, [\d,]+ lines/s\n$`).MatchString(got.stderr) {
		t.Errorf("the last line is %q", got.stderr)
	}
	for line := range strings.Lines(got.stdout) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	golden(t, "replay.json", indent(t, replayExample(t, "--json", "--top", "1").stdout))
}

func indent(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", "  "); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return b.String()
}

func TestReplayOfStandardInput(t *testing.T) {
	log, err := os.ReadFile("../../examples/access.log")
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err = w.Write(log); err != nil {
		t.Fatal(err)
	}
	if err = w.Close(); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"replay", "-"}, inExamples[2:]...)
	want := strings.Replace(replayExample(t).stdout, "access.log", "-", 1)
	for what, stdin := range map[string][]byte{"text": log, "gzip": packed.Bytes()} {
		if got := weir(t, stdin, args...); got.status != 0 || got.stdout != want {
			t.Errorf("%s: status %d\n%s%s", what, got.status, got.stdout, got.stderr)
		}
	}
}

func TestReplayOfMalformedLines(t *testing.T) {
	log, err := os.ReadFile("../../examples/access.log")
	if err != nil {
		t.Fatal(err)
	}
	bad := strings.Repeat("this is no request \x1b[31m\n", 7)
	got := weir(t, append([]byte(bad), log...), append([]string{"replay", "-"}, inExamples[2:]...)...)
	if got.status != 0 || !strings.Contains(got.stdout, "\nmalformed    7\n") || !strings.Contains(got.stdout, "\n  -:1: ") ||
		!strings.Contains(got.stdout, "\n  and 2 more\n") || strings.Contains(got.stdout, "\x1b") {
		t.Errorf("status %d\n%s", got.status, got.stdout)
	}
}

// TestReplayWithoutARequest: a log in which no line is a request is wrong input, and its report says that it is not complete. With an
// empty one nothing is wrong.
func TestReplayWithoutARequest(t *testing.T) {
	config := filepath.Join("..", "..", "examples", "replay", "live.yaml")
	for _, c := range []struct{ stdin, want string }{
		{"no request\nnor this\n\n{}\n", "weir: access log: none of the 3 lines is a request: give a log in the common or combined format"},
		{"no request", "weir: access log: the only line is no request: give a log in the common or combined format"},
		{"", ""},
		{"\n \n", ""},
	} {
		for _, args := range [][]string{{}, {"--json"}, {"--config", config}, {"--config", config, "--against", config, "--json"}} {
			got := weir(t, []byte(c.stdin), append([]string{"replay", "-"}, args...)...)
			complete := !strings.Contains(got.stdout, "incomplete: access log: ") && !strings.Contains(got.stdout, `"complete":false,"error":"access log: `)
			summary := complete == (c.want == "") && strings.Contains(got.stdout, "requests   0\n") || strings.Contains(got.stdout, `"requests":0`)
			if !summary || (got.status == 2) != (c.want != "") || (got.status == 0) != (c.want == "") || !strings.Contains(got.stderr, c.want) {
				t.Errorf("%q %q: status %d\n%s%s", c.stdin, args, got.status, got.stdout, got.stderr)
			}
		}
	}
}

// TestReplayOfATornFile: what could be read is reported.
func TestReplayOfATornFile(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	log, err := os.ReadFile("../../examples/access.log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Write(log); err != nil {
		t.Fatal(err)
	}
	if err = w.Close(); err != nil {
		t.Fatal(err)
	}
	got := weir(t, packed.Bytes()[:packed.Len()/2], "replay", "-")
	if got.status != 1 || !strings.Contains(got.stdout, "incomplete: ") || !strings.Contains(got.stderr, "truncated") {
		t.Errorf("status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
}

// TestReplayInterrupted: a replay that waits for its input ends with SIGINT, and says what it has done.
func TestReplayInterrupted(t *testing.T) {
	cmd := command(t, "replay", "-", "--json")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than a pipe holds: once it is written, the program is reading.
	line := `192.0.2.1 - - [03/Mar/2026:14:00:04 +0000] "GET / HTTP/1.1" 200 2 "-" "-"` + "\n"
	if _, err = stdin.Write([]byte(strings.Repeat(line, 1<<20/len(line)))); err != nil {
		t.Fatal(err)
	}
	if err = cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); !asExit(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("%v", err)
	}
	if !strings.Contains(stdout.String(), `"complete":false,"error":"interrupted"`) || !strings.Contains(stderr.String(), "weir: interrupted\n") {
		t.Errorf("%s%s", stdout.String(), stderr.String())
	}
}
