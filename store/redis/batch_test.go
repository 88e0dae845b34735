package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/respclient"
	"github.com/weirhq/weir/store"
)

// requested is the request that asks op about charges.
func (s *Store) requested(tb testing.TB, op byte, extra int64, id string, charges ...store.Charge) *request {
	tb.Helper()
	parts, err := s.parts(charges)
	if err != nil || len(parts) != 1 {
		tb.Fatal(len(parts), err)
	}
	p := &parts[0]
	p.op, p.extra, p.id = op, extra, id
	if op == opReserve || op == opRefund {
		p.full = 1
	}
	return &request{keys: s.keys(p), args: s.arguments(p)}
}

// together has requests decided by one call of the script, and returns what is replied to each, or its error.
func (s *Store) together(tb testing.TB, requests ...*request) []string {
	tb.Helper()
	servers := s.dispatch.servers
	conn, err := servers.login.Dial(context.Background(), s.dispatch.lanes.one.address, time.Now().Add(time.Minute))
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	call := slices.Clone(requests)
	group(call)
	s.dispatch.command(conn, call, true)
	if err = conn.Send(time.Now().Add(time.Minute)); err != nil {
		tb.Fatal(err)
	}
	reply, err := conn.Receive()
	if err != nil {
		tb.Fatal(err)
	}
	list := []respclient.Reply{reply}
	if len(requests) > 1 {
		if list, err = reply.List(); err != nil || len(list) != len(requests) {
			tb.Fatal(len(list), err)
		}
	}
	texts := make([]string, len(list))
	for i := range list {
		at := slices.Index(requests, call[i])
		if texts[at], err = list[i].Text(); err != nil {
			texts[at] = "error: " + err.Error()
		}
	}
	return texts
}

// TestBatchErrors has a key of another kind in a batch, and then a server that has no memory: those requests fail that need it,
// and no others.
func TestBatchErrors(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := server.open(Options{})
	charge := func(key string, n int64) store.Charge {
		return store.Charge{Policy: "p", Key: key, Limit: yearly(10), N: n}
	}
	wrong := charge("wrong", 1)
	server.ask("LPUSH", s.key(&wrong, kindRecord), "x")
	take := func(c ...store.Charge) *request { return s.requested(t, opTake, 0, "", c...) }
	other := charge("a", 2)
	other.Policy = "other"
	got := s.together(t, take(charge("a", 3)), take(wrong), take(charge("a", 4)), take(charge("a", 2), other), take(charge("b", 1)),
		s.requested(t, opReserve, 1e9, newID(), wrong), take(charge("a", 4)))
	for i, want := range []bool{true, false, true, true, true, false, true} {
		if readable := got[i] != "\x04\x01"; readable != want || strings.HasPrefix(got[i], "error: ") {
			t.Errorf("request %d: %q", i, got[i])
		}
	}
	left := func(c store.Charge, want int64) {
		t.Helper()
		d := make([]weir.Decision, 1)
		if err := store.Peek(context.Background(), s, []store.Charge{c}, d); err != nil || d[0].Remaining != want {
			t.Errorf("%s: %+v, %v, want %d left", c.Key, d[0], err, want)
		}
	}
	left(charge("a", 1), 1)
	left(other, 8)
	left(charge("b", 1), 9)
	server.ask("CONFIG", "SET", "maxmemory", "100kb")
	got = s.together(t, take(charge("a", 5)), take(charge("b", 3)), take(charge("b", 3)), s.requested(t, opPeek, 0, "", charge("c", 1)))
	for i, want := range []string{"", "OOM", "OOM", ""} {
		if failed := strings.HasPrefix(got[i], "error: "); failed != (want != "") || !strings.Contains(got[i], want) {
			t.Errorf("without memory, request %d: %q, want %q", i, got[i], want)
		}
	}
	server.ask("CONFIG", "SET", "maxmemory", "0")
	left(charge("b", 1), 9)
}

// TestBatchesAnsweredWrongly has a server answer batches of many callers by what is no reply to them: all calls fail.
func TestBatchesAnsweredWrongly(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"*0\r\n", "*1\r\n$1\r\n\x00\r\n", "*2\r\n:1\r\n:2\r\n", "*32\r\n" + strings.Repeat("*0\r\n", 32), "$1\r\n\x00\r\n", "-ERR no\r\n", "%1\r\n+a\r\n+b\r\n",
		"*2\r\n$1\r\na\r\n", "*32\r\n" + strings.Repeat("$2\r\n\x00\x01\r\n", 32),
	} {
		address := startFake(t, func(command []string) string {
			if command[0] == "CLUSTER" {
				return "-ERR This instance has cluster support disabled\r\n"
			}
			return answer
		})
		s, err := Open(Options{Addresses: []string{address}, Timeout: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		for range 64 {
			wait.Go(func() {
				for i := range 3 {
					c := []store.Charge{{Policy: "p", Key: fmt.Sprint(i), Limit: yearly(10), N: 1}}
					if err := store.Take(context.Background(), s, c, make([]weir.Decision, 1)); !errors.Is(err, store.ErrUnavailable) {
						t.Errorf("%.30q: %v", answer, err)
					}
				}
			})
		}
		wait.Wait()
		_ = s.Close()
	}
}
