package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
)

// fronts are what a server says of the connections of its fronts.
type frontConnections map[string]struct {
	Connections int `json:"connections"`
	Evicted     int `json:"connections_evicted"`
	Refused     int `json:"connections_refused"`
}

func (s *attacked) connections() frontConnections {
	s.t.Helper()
	_, text := s.request("GET", "/v1/status", "")
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		s.t.Fatal(err)
	}
	fronts := make(frontConnections)
	for _, name := range []string{"http", "resp", "grpc"} {
		of := fronts[name]
		if err := json.Unmarshal(all[name], &of); err != nil {
			s.t.Fatal(name, err)
		}
		fronts[name] = of
	}
	return fronts
}

// half opens a connection of RESP on which one command is answered and another one has begun to arrive, and returns what goes on
// with that and closes it.
func (s *attacked) half() (goOn func()) {
	s.t.Helper()
	c := connect(s.t, s.resp)
	say := func(command, want string) {
		s.t.Helper()
		got := make([]byte, len(want))
		if _, err := io.WriteString(c, command); err != nil {
			s.t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			s.t.Errorf("a command that arrives in parts is answered with %q, error %v, want %q", got, err, want)
		}
	}
	say("PING\r\n*2\r\n$4\r\nECHO\r\n$5\r\nhel", "+PONG\r\n")
	return func() {
		s.t.Helper()
		say("lo\r\n", "$5\r\nhello\r\n")
		_ = c.Close()
	}
}

// clientPreface is what a client of gRPC begins with, with default settings.
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// TestAttackIdleConnections: an attacker opens more idle connections than the bounds allow. Other clients are served at every
// front nevertheless, and a command that is arriving keeps its connection.
func TestAttackIdleConnections(t *testing.T) {
	t.Parallel()
	const most = 20
	bound := fmt.Sprint(most)
	s := attack(t, "--limit", "1000000/s", "--burst", "1000000", "--http-connections", bound, "--resp-connections", bound,
		"--grpc-connections", bound)
	goOn := s.half()
	customers := map[string]taker{"RESP": s.takerOfRESP(), "gRPC": s.takerOfGRPC()}
	for round := range 6 {
		for _, front := range []struct{ address, first string }{
			{s.address, ""},
			{s.address, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"},
			{s.resp, ""},
			{s.resp, "PING\r\n"},
			{s.grpc, ""},
			{s.grpc, clientPreface},
		} {
			hold(t, front.address, most, front.first)
		}
		key := fmt.Sprint("customer", round)
		if a, text := s.check(`{"key":"` + key + `"}`); a.status != 200 {
			t.Errorf("HTTP: %d %s", a.status, text)
		}
		for name, take := range map[string]taker{"RESP": s.takerOfRESP(), "gRPC": s.takerOfGRPC()} {
			if err := take(key); err != nil {
				t.Errorf("a newcomer at %s: %v", name, err)
			}
		}
		for name, take := range customers {
			err := take(key)
			if err != nil { // its connection had to make room
				err = take(key)
			}
			if err != nil {
				t.Errorf("a customer at %s: %v", name, err)
			}
		}
	}
	goOn()
	for name, of := range s.connections() {
		if of.Evicted < 4*most || of.Refused != 0 {
			t.Errorf("%s: %+v, want many that have made room, and none refused", name, of)
		}
	}
	eventually(t, "those that have made room have ended", func() bool {
		all := s.connections()
		return max(all["http"].Connections, all["resp"].Connections, all["grpc"].Connections) <= most
	})
	s.end()
}

// TestAttackConnectionsOfOneAddressElsewhere: a client with as many connections in use at --resp or --grpc as an address may
// have gets no more of them there, while those go on, and others have the rest. TestBoundedConnectionsOfOneAddress has several
// addresses.
func TestAttackConnectionsOfOneAddressElsewhere(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	s := attack(t, "--resp-connections-per-address", "1", "--grpc-connections-per-address", "1")
	goOn := s.half()
	for range 10 {
		if got := exchangeRaw(t, s.resp, "PING\r\n"); got != "-ERR max number of clients reached\r\n" {
			t.Errorf("one more: %q", got)
		}
	}
	goOn()
	for range 3 { // idle ones of its own make room for it, as soon as the server is done with what it has answered
		for name, newTaker := range map[string]func() taker{"RESP": s.takerOfRESP, "gRPC": s.takerOfGRPC} {
			eventually(t, name+" answers", func() bool { return newTaker()("alice") == nil })
		}
	}
	if all := s.connections(); all["resp"].Refused < 10 || all["resp"].Evicted < 2 || all["grpc"].Evicted < 2 {
		t.Errorf("%+v", all)
	}
	eventually(t, "those that have made room have ended", func() bool {
		all := s.connections()
		return all["resp"].Connections == 1 && all["grpc"].Connections == 1
	})
	s.expectToldOnce("connections of an address are refused", begun)
}

// TestAttackIdleClientsEnd: with time limits for silence, connections end on which nothing is asked.
func TestAttackIdleClientsEnd(t *testing.T) {
	t.Parallel()
	s := attack(t, "--resp-idle-timeout", "50ms", "--grpc-idle-timeout", "50ms")
	for _, c := range append(hold(t, s.resp, 1, "PING\r\n"), hold(t, s.grpc, 1, clientPreface)...) {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: an idle connection is open after a minute", c.RemoteAddr())
		}
	}
	s.end()
}

// taker asks at a front whether a request is within its limit.
type taker func(key string) error

func (s *attacked) takerOfRESP() taker {
	client := s.redis()
	return func(key string) error {
		got, err := client.Do(s.t.Context(), "WEIR.TAKE", "default", key).Result()
		if err == nil && !strings.Contains(fmt.Sprint(got), "allowed:true") {
			err = fmt.Errorf("%w: %v", errAnswer, got)
		}
		return err
	}
}

func (s *attacked) takerOfGRPC() taker {
	conn := s.dial()
	return func(key string) error {
		got, err := descriptor(s.t.Context(), conn, "shop", "key", key)
		if err == nil && got.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
			err = fmt.Errorf("%w: %v", errAnswer, got)
		}
		return err
	}
}

var errAnswer = errors.New("it is answered in another way")
