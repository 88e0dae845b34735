package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
)

// hold opens connections of a kind that does not go on after its first bytes, and leaves them open.
func hold(t *testing.T, address string, n int, first string) []net.Conn {
	t.Helper()
	all := make([]net.Conn, n)
	for i := range all {
		all[i] = connect(t, address)
		if _, err := io.WriteString(all[i], first); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// stuff sends requests without reading an answer, until the server does not take more of them, or has had enough.
func stuff(t *testing.T, address, request string) (end func()) {
	t.Helper()
	conn := connect(t, address)
	text := strings.Repeat(request, 64<<10/len(request)+1)
	var done sync.WaitGroup
	done.Go(func() {
		for sent := 0; sent < 64<<20; sent += len(text) {
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
		}
	})
	return func() {
		_ = conn.Close()
		done.Wait()
	}
}

// holdSlow opens connections of many kinds that do not come to the point. The first are those that are cut off soon.
func (s *attacked) holdSlow() (soon, later []net.Conn) {
	s.t.Helper()
	const head = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	soon = hold(s.t, s.grpc, 50, "PRI * HTTP/2.0\r\n") // that of a client which never says what it wants
	soon = append(soon, hold(s.t, s.address, 100, head+"X-Slow: ")...)
	soon = append(soon, hold(s.t, s.address, 100, "")...)
	later = hold(s.t, s.address, 100, head+"Content-Length: 60000\r\n\r\n{")
	return soon, append(later, hold(s.t, s.resp, 200, "*3\r\n$9\r\nWEIR.TAKE\r\n$7\r\ndefa")...)
}

// isCutOff waits for so long for a client to be cut off.
func isCutOff(t *testing.T, c net.Conn, patience time.Duration) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 512); ; {
		if _, err := c.Read(b); err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}

// goOn expects that all fronts answer a client that does as it should.
func (s *attacked) goOn(conn *grpc.ClientConn, client *redis.Client, key string) {
	s.t.Helper()
	if a, text := s.check(`{"key":"` + key + `"}`); a.status != 200 {
		s.t.Errorf("HTTP: %d %s", a.status, text)
	}
	if got, err := client.Do(s.t.Context(), "WEIR.TAKE", "default", key).Result(); err != nil ||
		!strings.Contains(fmt.Sprint(got), "allowed:true") {
		s.t.Errorf("RESP: %v, error %v", got, err)
	}
	got, err := descriptor(s.t.Context(), conn, "shop", "key", key)
	if err != nil || got.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
		s.t.Errorf("gRPC: %v, error %v", got, err)
	}
}

// TestAttackSlowClients: clients that send their requests slowly, or never read an answer, hold up no other client on any front,
// and are cut off in the end. The time limits that are too long to wait for are shortened in TestHalfCommandsEndInTime,
// TestStrangersMustHurry, TestSlowReaders, TestUnfinishedMessagesAreBounded and TestSlowReader.
func TestAttackSlowClients(t *testing.T) {
	t.Parallel()
	s := attack(t, "--limit", "1000000/s", "--burst", "1000000")
	for range 5 {
		t.Cleanup(stuff(t, s.address, "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"))
		t.Cleanup(stuff(t, s.resp, "*2\r\n$4\r\nECHO\r\n$1000\r\n"+strings.Repeat("x", 1000)+"\r\n"))
	}
	conn, client := s.dial(), s.redis()
	s.goOn(conn, client, "before")
	// All the others go on before a single one is cut off. That cannot be seen if the machine stands still for as long as that
	// takes.
	var soon []net.Conn
	for attempt := 0; ; attempt++ {
		var later []net.Conn
		soon, later = s.holdSlow()
		for i := range 20 {
			s.goOn(conn, client, fmt.Sprint("customer", i))
		}
		if !isCutOff(t, soon[len(soon)-1], time.Millisecond) {
			break
		}
		if attempt == 10 {
			t.Fatal("others are answered only when slow clients are cut off")
		}
		for _, c := range slices.Concat(soon, later) {
			_ = c.Close()
		}
	}
	for i, c := range soon {
		if !isCutOff(t, c, 3*time.Minute) {
			t.Fatalf("slow client %d is not cut off within three minutes", i)
		}
	}
	s.signal(os.Kill) // it would wait for the slow bodies
}

// TestAttackConnectionsOfOneAddress: a client with as many connections in use as an address may have, gets no more of them,
// while those go on. TestBoundedConnectionsOfOneAddress has several addresses.
func TestAttackConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	s := attack(t, "--http-connections-per-address", "1")
	const body = `{"key":"alice"}`
	used := connect(t, s.address)
	_, err := fmt.Fprintf(used, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"+
		"Content-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", len(body))
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(used)
	if line, err := answers.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" { // now it is being answered
		t.Fatalf("%q, error %v", line, err)
	}
	for range 10 {
		if got := exchangeRaw(t, s.address, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); got != "" {
			t.Errorf("one more: %q", got)
		}
	}
	if _, err := io.WriteString(used, body); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(answers); !strings.Contains(string(got), "HTTP/1.1 200 OK") {
		t.Errorf("the first one: %q", got)
	}
	if a, text := s.check(body); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, text)
	}
	s.expectToldOnce("connections of an address are refused", begun)
}
