package main_test

import (
	"bufio"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestServeOnATerminal: it begins with four lines for people, and no log.
func TestServeOnATerminal(t *testing.T) {
	screen, tty := terminal(t, 100)
	cmd := command(t, "serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0")
	cmd.Path = plain
	cmd.Env = append(os.Environ(), "NO_COLOR=1", "TERM=xterm")
	cmd.Stdout, cmd.Stderr = tty, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	lines := bufio.NewScanner(screen)
	for _, want := range []string{
		`^weir serves  one limit for each key, 10/s burst 20$`, `^         at  http://127\.0\.0\.1:\d+, resp 127\.0\.0\.1:\d+$`,
		`^  dashboard  http://127\.0\.0\.1:\d+/ui/$`, `^    to stop  Ctrl-C; `,
	} {
		if !lines.Scan() || !regexp.MustCompile(want).MatchString(strings.TrimRight(lines.Text(), "\r")) {
			t.Errorf("%q, want %s", lines.Text(), want)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Errorf("and %q", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestServeOnATerminalLogsWhenAsked: a flag about the log brings it back.
func TestServeOnATerminalLogsWhenAsked(t *testing.T) {
	screen, tty := terminal(t, 100)
	cmd := command(t, "serve", "--http", "127.0.0.1:0", "--log-level", "info")
	cmd.Path = plain
	cmd.Stdout, cmd.Stderr = tty, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	lines := bufio.NewScanner(screen)
	logged := false
	for !logged && lines.Scan() {
		logged = strings.Contains(lines.Text(), "msg=serving")
	}
	if !logged {
		t.Error("nothing is logged")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// TestDemo: it names its dashboard, and has traffic, of which some is refused.
func TestDemo(t *testing.T) {
	s := start(t, "demo", "--http", "127.0.0.1:0")
	fronts := &allFronts{server: s}
	if status, kind, _ := fronts.get("/ui/"); status != http.StatusOK || kind != "text/html" {
		t.Errorf("the dashboard: %d %s", status, kind)
	}
	refused := regexp.MustCompile(`"refused": ?[1-9]`)
	for { // the time limit of the tests bounds it
		if _, _, text := fronts.get("/v1/status"); refused.MatchString(text) {
			break
		}
	}
	s.signal(syscall.SIGTERM)
	if status := s.wait(); status.ExitCode() != 0 {
		t.Errorf("%v:\n%s", status, strings.Join(s.lines, "\n"))
	}
}
