package main_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests of the files attack_*_test.go do to the program what SECURITY.md says that its enemies do, over real connections.
// They run beside each other, as some of them mostly wait.

// attacked is a server that listens with all fronts, and whose log is read while it runs.
type attacked struct {
	*allFronts

	read chan struct{} // closed when the log has ended
}

// attack starts weir serve for a test, which ends it by [attacked.end].
func attack(t *testing.T, args ...string) *attacked {
	t.Helper()
	s := &attacked{allFronts: startFronts(t, nil, args...), read: make(chan struct{})}
	go func() {
		defer close(s.read)
		for s.log.Scan() {
			s.lines = append(s.lines, s.log.Text())
		}
	}()
	return s
}

// end ends the server and returns its log. It must have ended by itself as it should: neither by a panic nor by a data race.
func (s *attacked) end() []string {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	select {
	case <-s.read:
	case <-time.After(2 * time.Minute):
		s.t.Fatal("the server does not end")
	}
	if status := s.wait(); status.ExitCode() != 0 {
		s.t.Errorf("%v:\n%s", status, strings.Join(s.lines, "\n"))
	}
	for _, line := range s.lines {
		if strings.Contains(line, "panic") {
			s.t.Error(line)
		}
	}
	return s.lines
}

// expectLogLines ends the server, and expects that its log has one line for each thing that it says. It answers them.
func (s *attacked) expectLogLines() []string {
	s.t.Helper()
	lines := s.end()
	for _, line := range lines {
		if !logLine.MatchString(line) && !strings.HasPrefix(line, "try: ") { // of its start
			s.t.Errorf("a line of the log: %q", line)
		}
	}
	return lines
}

// expectToldOnce ends the server, and expects that its log has something that it says once in a minute, since then.
func (s *attacked) expectToldOnce(text string, begun time.Time) {
	s.t.Helper()
	told := 0
	for _, line := range s.end() {
		if strings.Contains(line, text) {
			told++
		}
	}
	if minutes := int(time.Since(begun) / time.Minute); told == 0 || told > 1+minutes {
		s.t.Errorf("it is logged %d times: must be once in a minute", told)
	}
}

// connect dials an address, with three minutes for all that follows.
func connect(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// exchangeRaw sends bytes as they are, and returns everything that comes back until the server closes the connection, which the
// request should ask for.
func exchangeRaw(t *testing.T, address, request string) string {
	t.Helper()
	conn := connect(t, address)
	go func() { _, _ = io.WriteString(conn, request) }() // the server may answer, and read no more, before it has all
	answer, _ := io.ReadAll(conn)                        // what it has not read makes it reset the connection
	return string(answer)
}

// request sends a request with header fields, of which each is a name and a value.
func (s *attacked) request(method, target, body string, fields ...string) (a answer, text string) {
	s.t.Helper()
	return fetch(s.t, s.address, method, target, body, fields...)
}

// fetch is request for any address. The target is sent as it is, so that it can have what no URL should.
func fetch(t *testing.T, address, method, target, body string, fields ...string) (a answer, text string) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nConnection: close\r\n", method, target)
	if !strings.Contains("\n"+strings.Join(fields, "\n"), "\nHost: ") {
		fmt.Fprintf(&b, "Host: %s\r\n", address)
	}
	for _, f := range fields {
		b.WriteString(f + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	conn := connect(t, address)
	go func() { _, _ = io.WriteString(conn, b.String()) }()
	request, err := http.NewRequestWithContext(context.Background(), method, "http://weir/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		t.Fatalf("%s %.200s: %v", method, target, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header}, string(content)
}
