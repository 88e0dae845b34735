package weir_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// outside builds a program beside this repository, by the commands that docs/install.md has for that.
func outside(t *testing.T, program []byte) (binary string) {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "app")
	if err := errors.Join(
		os.Mkdir(dir, 0o700),
		os.Symlink(root, filepath.Join(dir, "..", "weir")),
		os.WriteFile(filepath.Join(dir, "main.go"), program, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## The library\n")
	_, rest, _ := strings.Cut(section, "```sh\n")
	commands, _, found := strings.Cut(rest, "```")
	for line := range strings.Lines(commands) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOPROXY=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	if !found {
		t.Fatal("docs/install.md has no commands for the library")
	}
	return filepath.Join(dir, "app")
}

// TestReadmeProgram builds the program that the README shows outside of the repository, at another port, and sends one request too many.
func TestReadmeProgram(t *testing.T) {
	program, err := os.ReadFile("examples/perclient/main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(readme, []byte("\n```go\n"+string(program)+"```\n")) || bytes.Count(readme, []byte("\n```go\n")) != 1 {
		t.Error("the Go code of the README is not examples/perclient/main.go")
	}
	if lines := bytes.Count(readme, []byte("\n")); lines > 150 {
		t.Errorf("the README has %d lines, more than 150", lines)
	}

	const shown = "127.0.0.1:8080"
	if !bytes.Contains(program, []byte(shown)) {
		t.Fatalf("the program does not listen on %s", shown)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	binary := outside(t, bytes.ReplaceAll(program, []byte(shown), []byte(address)))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var end error
	go func() {
		defer close(ended)
		end = cmd.Wait()
	}()
	t.Cleanup(func() { // the context of the test has ended, which kills the program
		<-ended
	})
	statuses := map[int]int{}
	for requests := 0; statuses[http.StatusTooManyRequests] == 0; {
		resp, err := get(t, "http://"+address)
		if err != nil {
			select {
			case <-ended:
				t.Fatalf("the program has ended: %v", end)
			default:
				continue // it does not listen yet
			}
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if requests++; requests == 1 && string(body) != "hello\n" {
			t.Errorf("the first answer is %q", body)
		}
		if statuses[resp.StatusCode]++; resp.StatusCode == http.StatusTooManyRequests && !strings.Contains(string(body), "10/s, burst 20") {
			t.Errorf("the refusal says %s", body)
		}
	}
	if statuses[http.StatusOK] < 20 || len(statuses) != 2 {
		t.Errorf("the program has answered %v", statuses)
	}
}

func get(t *testing.T, url string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	return http.DefaultClient.Do(r)
}
