package main_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/race"
)

var update = flag.Bool("update", false, "write what the program prints into testdata")

// program is the path of the program, built once for all tests, and plain that of the one without the race detector, which starts
// five times faster: for commands that end at once.
var program, plain string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err = flag.Set("test.parallel", "4"); err != nil { // those that may run beside others wait for servers
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for name, value := range map[string]string{"STATE_DIRECTORY": "", "XDG_STATE_HOME": filepath.Join(dir, "state")} {
		if err = os.Setenv(name, value); err != nil { // so that no test leaves anything behind
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	plain = filepath.Join(dir, "weir")
	program = plain
	err = build(plain, false)
	if race.Enabled && err == nil {
		program = filepath.Join(dir, "race", "weir")
		err = build(program, true)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the program:", err)
		return 1
	}
	return m.Run()
}

// build builds the program as a release has it but for what only debuggers read, with what other checks of the repository have built
// before, and as the same bytes each time unless it has the race detector: then by the flags of lab/ci.
func build(path string, detect bool, environment ...string) error {
	args := []string{"build", "-o", path}
	if detect {
		args = append(args, "-ldflags=-s -w", "-race",
			"-gcflags=all=-l -dwarf=false", "-gcflags=std=-dwarf=false", "-gcflags=github.com/weirhq/weir/...=-dwarf=false")
	} else {
		workspace, err := filepath.Abs(filepath.Join("..", "..", "deploy", "release.work"))
		if err != nil {
			return err
		}
		args = append(args, "-buildvcs=false", "-ldflags=-s -w -buildid=", "-tags=grpcnotrace")
		environment = append(environment, "GOWORK="+workspace)
	}
	cmd := exec.CommandContext(context.Background(), "go", append(args, ".")...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// outcome is what a run of the program left.
type outcome struct {
	stdout, stderr string
	status         int
}

// weir runs the program to its end. Its input is stdin, and its environment is that of the tests without what could
// change its output.
func weir(t *testing.T, stdin []byte, args ...string) outcome {
	t.Helper()
	path := plain
	if len(args) > 0 && (args[0] == "replay" || args[0] == "test") { // these do several things at a time
		path = program
	}
	return weirAt(t, path, stdin, args...)
}

// weirAt is weir for the program at a path.
func weirAt(t *testing.T, path string, stdin []byte, args ...string) outcome {
	t.Helper()
	cmd := command(t, args...)
	cmd.Path = path
	cmd.Stdin = bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("weir %s: %v", strings.Join(args, " "), err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "NO_COLOR=1", "GORACE=atexit_sleep_ms=0 halt_on_error=1 exitcode=66")
	return cmd
}

// golden compares text with a file in testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("differs from %s (go test -update writes it):\n%s\nwant\n%s", path, text, want)
	}
}
