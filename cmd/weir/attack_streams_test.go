package main_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// streamOf asks for a stream of events with a token, and answers it after its first event, or nil and what was said instead.
func (s *attacked) streamOf(token string) (lines *bufio.Reader, said string) {
	s.t.Helper()
	conn := connect(s.t, s.address)
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", operator.EventsPath, s.address, token)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = response.Body.Close() })
	lines = bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil || response.StatusCode != http.StatusOK {
			_ = conn.Close()
			return nil, response.Status + " " + line
		}
		if strings.HasPrefix(line, "data: ") {
			return lines, ""
		}
	}
}

// TestAttackEventStreams: an operator that opens all streams of events that there may be, again and again, keeps out no other
// one.
func TestAttackEventStreams(t *testing.T) {
	t.Parallel()
	const most, flood, anna = 32, "the-token-of-the-flood", "the-token-of-somebody-else"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("flood "+flood+"\nanna "+anna+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := attack(t, "--admin-token-file", file, "--admin-rate", "1000000/s")
	for range most {
		if got, said := s.streamOf(flood); got == nil {
			t.Fatal(said)
		}
	}
	refused := func() {
		t.Helper()
		for range 5 {
			if got, said := s.streamOf(flood); got != nil || !strings.HasPrefix(said, "503 ") {
				t.Errorf("one more of who has the most is answered: %t, %s", got != nil, said)
			}
		}
	}
	refused()
	other, said := s.streamOf(anna)
	if other == nil {
		t.Fatalf("another operator: %s", said)
	}
	refused()
	for events := 0; events < 2; { // those of a second each
		line, err := other.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream of another operator: %v", err)
		}
		if strings.HasPrefix(line, "event: overview") {
			events++
		}
	}
	s.end()
}
