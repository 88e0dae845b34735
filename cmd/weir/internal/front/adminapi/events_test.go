package adminapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

func address(s string) netip.Addr { return netip.MustParseAddr(s) }

// stream is what a reader of events gets.
type stream struct {
	t      *testing.T
	lines  *bufio.Reader
	cancel context.CancelFunc
}

func (s *server) follow(client *http.Client) *stream {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	s.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, virtualAddress+operator.EventsPath, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" ||
		response.Header.Get("Cache-Control") != "no-store" {
		s.t.Fatalf("%d %v", response.StatusCode, response.Header)
	}
	return &stream{s.t, bufio.NewReader(response.Body), cancel}
}

// next returns the next event with this name, reading it into v.
func (s *stream) next(name string, v any) {
	s.t.Helper()
	at := ""
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			s.t.Fatalf("waiting for %s: %v", name, err)
		}
		if event, ok := strings.CutPrefix(line, "event: "); ok {
			at = strings.TrimSpace(event)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && at == name {
			if err := json.Unmarshal([]byte(data), v); err != nil {
				s.t.Fatal(err)
			}
			return
		}
	}
}

const virtualAddress = "http://weir.example"

// virtual serves a server to a client whose connections are in memory, in a bubble.
func virtual(t *testing.T) (s *server, client *http.Client) {
	t.Helper()
	return virtualOn(t, fronttest.Pipes())
}

// virtualOn is virtual with a listener.
func virtualOn(t *testing.T, l *fronttest.Listener) (s *server, client *http.Client) {
	t.Helper()
	s = newServer(t, configured)
	server := &http.Server{Handler: s, ReadTimeout: time.Second, WriteTimeout: time.Second} // which a stream outlives
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	client = l.Client()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		if err := errors.Join(server.Close(), <-ended); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s, client
}

// TestEvents: an overview at once and each second, refusals and changes as they come, and the end of the server.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client := virtual(t)
		s.sendEvents(t, client)
	})
}

// TestEventsAfterTheFirstOverview: nothing is missed that happens once a stream has begun.
func TestEventsAfterTheFirstOverview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client := virtual(t)
		for i := range 100 {
			one := s.follow(client)
			one.next("overview", new(operator.Overview))
			from := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String()
			s.login(3, from)
			var r operator.Refusal
			if one.next("refusal", &r); r.Limits[0].Key != from {
				t.Fatalf("%+v", r)
			}
			one.cancel()
			synctest.Wait()
			time.Sleep(time.Second) // until the goroutine that makes events has ended
		}
	})
}

func (s *server) sendEvents(t *testing.T, client *http.Client) {
	t.Helper()
	a, b := s.follow(client), s.follow(client)
	var (
		o    operator.Overview
		r    operator.Refusal
		e    operator.AuditEntry
		none struct{}
	)
	for _, one := range []*stream{a, b} {
		one.next("overview", &o)
	}
	began := time.Now()
	s.login(3, "192.0.2.1")
	s.ask("POST", operator.UnlockPath, `{"policy":"login","key":"x","reason":"why"}`, 200, nil)
	for _, one := range []*stream{a, b} {
		if one.next("refusal", &r); r.Limits[0].Key != "192.0.2.1" || r.Limits[0].Policy != "login" {
			t.Errorf("%+v", r)
		}
		if one.next("audit", &e); e.Key != "x" || e.Reason != "why" {
			t.Errorf("%+v", e)
		}
	}
	if took := time.Since(began); took >= time.Second { // of the clock of the bubble
		t.Errorf("events are sent after %v", took)
	}
	for _, one := range []*stream{a, b} {
		if one.next("overview", &o); o.Refused != 1 {
			t.Errorf("%+v", o)
		}
	}
	for range 2 {
		a.next("overview", &o)
		b.next("overview", &o)
	}
	if took := time.Since(began); took != 3*time.Second {
		t.Errorf("three overviews are sent within %v", took)
	}
	b.cancel()
	synctest.Wait()
	if n := s.Streams(); n != 1 {
		t.Errorf("%d streams", n)
	}
	s.Drain()
	a.next("end", &none)
	if _, err := io.ReadAll(a.lines); err != nil {
		t.Error(err)
	}
	s.ask("GET", operator.EventsPath, "", 503, nil)
	if s.ask("GET", operator.OverviewPath, "", 200, &o); !o.Draining {
		t.Error("the overview does not say that the server shuts down")
	}
}

// TestStreamsAreBounded: there are 32 at most, and one client that reads nothing costs others nothing.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fronttest.Pipes()
		s, client := virtualOn(t, l)
		defer s.Drain()
		silent, err := l.Dial(t.Context()) // it reads nothing of what it is sent
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		_, err = io.WriteString(silent, "GET "+operator.EventsPath+" HTTP/1.1\r\nHost: weir.example\r\nAuthorization: Bearer "+token+"\r\n\r\n")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		streams := make([]*stream, 31)
		for i := range streams {
			streams[i] = s.follow(client)
		}
		if n := s.Streams(); n != 32 {
			t.Errorf("%d streams", n)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, virtualAddress+operator.EventsPath, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		refused, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer refused.Body.Close()
		text, err := io.ReadAll(refused.Body)
		if err != nil || refused.StatusCode != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" ||
			!strings.Contains(string(text), "32 streams") {
			t.Errorf("%d %s, error %v", refused.StatusCode, text, err)
		}
		began := time.Now()
		var noted operator.Refusal
		s.login(3, "192.0.2.1")
		for _, one := range streams {
			one.next("refusal", &noted)
		}
		if took := time.Since(began); took >= time.Second { // of the clock of the bubble
			t.Errorf("events are sent after %v", took)
		}
		if n := s.Streams(); n != 32 {
			t.Errorf("%d streams, and the silent one had time to read", n)
		}
	})
}
