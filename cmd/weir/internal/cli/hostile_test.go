package cli_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/weirhq/weir/cmd/weir/internal/cli"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// TestTextsOfOthersMoveNoCursor has a server and a file whose texts would be read by the terminal.
func TestTextsOfOthersMoveNoCursor(t *testing.T) {
	const hostile = "\x1b[2J\x1b]0;title\a\u009b31m\u202eevil\r"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]any{ // a client that has gone is not told
			"detail": hostile, "field": hostile, "mistakes": []string{hostile}, "policies": []string{hostile},
		})
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte("version: 1\n\"\\e[2J\\a\\u202eevil\": 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"admin", "unlock", "--policy", "a", "--key", "b", "--reason", "c", "--server", server.URL},
		{"admin", "status", "--server", server.URL},
		{"admin", "reload", "--reason", "c", "--server", server.URL},
		{"config", "check", file},
		{"config", "explain", file},
		{"replay", "--config", file, os.DevNull},
	} {
		var out bytes.Buffer
		status := cli.Main(args, strings.NewReader(""), &out, &out)
		if text := out.String(); status == 0 || !strings.Contains(text, "evil") {
			t.Errorf("%s: %d %q: it has not failed by the text", args, status, text)
		} else if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%s: prints %q", args, text)
		}
	}
}

// TestJSONOfOthersMovesNoCursor: what a server answers and what a file has is printed as JSON with the same values, and nothing of it
// is read by the terminal.
func TestJSONOfOthersMovesNoCursor(t *testing.T) {
	const hostile = "\u009b31m\u202eevil\x7f"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case operator.KeysPath, operator.LockoutsPath:
			_ = json.NewEncoder(w).Encode([]map[string]any{{"key": hostile}}) // a client that has gone is not told
		case operator.PoliciesPath:
			_ = json.NewEncoder(w).Encode([]map[string]any{})
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{"key": hostile, "store": map[string]string{"error": hostile}})
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	file, log := filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "access.log")
	for name, text := range map[string]string{
		file: "version: 1\npolicies:\n  a: {limit: 1/s}\n\"\\x9b31m\\u202eevil\\x7f\": 1\n", log: hostile + "\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"admin", "keys", "--policy", "a", "--json", "--server", server.URL},
		{"admin", "lockouts", "--json", "--server", server.URL, "--policy", "a"},
		{"admin", "key", "--policy", "a", "--key", "b", "--json", "--server", server.URL},
		{"admin", "replicas", "--server", server.URL},
		{"admin", "unlock", "--policy", "a", "--key", "b", "--reason", "c", "--json", "--server", server.URL, "--server", server.URL + "/b"},
		{"why", "--policy", "a", "--key", "b", "--json", "--server", server.URL},
		{"config", "check", "--json", file},
		{"replay", "--json", log},
	} {
		var out bytes.Buffer
		cli.Main(args, strings.NewReader(""), &out, &out)
		if text := out.String(); !strings.Contains(text, "evil") {
			t.Errorf("%s: %q", args, text)
		} else if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%s: prints %q", args, text)
		}
	}
}
