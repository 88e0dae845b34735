package main_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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

// TestDemoEndsWithItsTerminal: a closed terminal sends SIGHUP, by which a server reads its file again.
func TestDemoEndsWithItsTerminal(t *testing.T) {
	s := start(t, "demo", "--http", "127.0.0.1:0")
	s.signal(syscall.SIGHUP)
	if status := s.wait(); status.ExitCode() != 0 {
		t.Errorf("%v:\n%s", status, strings.Join(s.lines, "\n"))
	}
}

// demoCluster is weir demo cluster while it runs.
type demoCluster struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   *bufio.Scanner
	alive *os.File // ends when no process of it is left
	dir   string   // for temporary files
}

func startDemoCluster(t *testing.T) *demoCluster {
	t.Helper()
	d := &demoCluster{t: t, cmd: command(t, "demo", "cluster"), dir: t.TempDir()}
	d.cmd.Env = append(d.cmd.Env, "TMPDIR="+d.dir)
	printed, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.out = bufio.NewScanner(printed)
	alive, inherited, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d.alive = alive
	t.Cleanup(func() { _ = alive.Close() })
	d.cmd.ExtraFiles = []*os.File{inherited} // its processes inherit it as well
	d.cmd.Stderr = os.Stderr
	if err = d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = inherited.Close()
	return d
}

// until reads the output up to a line with text, and returns all of it.
func (d *demoCluster) until(text string) string {
	d.t.Helper()
	var all strings.Builder
	for d.out.Scan() {
		all.WriteString(d.out.Text() + "\n")
		if strings.Contains(d.out.Text(), text) {
			return all.String()
		}
	}
	d.t.Fatalf("%q is not printed:\n%s", text, all.String())
	return ""
}

// ends waits for the end of the program, and finds what it has left behind.
func (d *demoCluster) ends(status int) {
	d.t.Helper()
	for d.out.Scan() { // so that all is read before the pipe is closed
	}
	_ = d.cmd.Wait()
	if got := d.cmd.ProcessState.ExitCode(); got != status {
		d.t.Errorf("exit status %d, want %d", got, status)
	}
	if err := d.alive.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		d.t.Fatal(err)
	}
	if n, err := d.alive.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		d.t.Errorf("a node is left: %d, %v", n, err)
	}
	if left, err := os.ReadDir(d.dir); err != nil || len(left) > 0 {
		d.t.Errorf("%v are left: %v", left, err)
	}
}

// TestDemoCluster: the owner is killed, another node owns the limit, and no more was allowed than the limit allows.
func TestDemoCluster(t *testing.T) {
	t.Parallel()
	d := startDemoCluster(t)
	text := d.until("at most")
	d.ends(0)
	number := func(pattern string) float64 {
		t.Helper()
		found := regexp.MustCompile(`(?m)^ *` + pattern).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no %s in\n%s", pattern, text)
		}
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	allowed, most := number(`allowed +(\d+) requests in`), number(`at most +(\d+) in`)
	if took := number(`allowed +\d+ requests in ([\d.]+) s`); allowed > most || most > 20+20*(took+0.1) || allowed < 40 {
		t.Errorf("%v were allowed in %v s, at most %v", allowed, took, most)
	}
	if number(`undecided +for ([\d.]+) s`) == 0 {
		t.Error("the owner was not missed")
	}
	first, next := number(`owner +node(\d), then node\d$`), number(`owner +node\d, then node(\d)$`)
	if first == next {
		t.Errorf("node%v owned the limit before and after", first)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestDemoClusterInterrupted: whenever Ctrl-C is pressed, once or twice, nothing is left.
func TestDemoClusterInterrupted(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"start on this machine", "node1 is process", "clients ask", "is killed"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			d := startDemoCluster(t)
			d.until(moment)
			for range 2 {
				_ = d.cmd.Process.Signal(os.Interrupt)
			}
			d.ends(130)
		})
	}
}
