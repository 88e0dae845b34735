package redis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestGoroutinesEnd closes stores of a server, of sentinels and of a cluster that are in use, one of them while its server does
// not answer: nothing of them goes on.
func TestGoroutinesEnd(t *testing.T) {
	server, stopped, c, w := startServer(t), startServer(t), startCluster(t, 0), startSentinels(t, 1)
	const timeout = 200 * time.Millisecond
	var stores []*Store
	open := func(s *Store) { stores = append(stores, s) }
	open(server.open(Options{}))
	open(stopped.open(Options{Timeout: timeout}))
	open(c.open(t, Options{}))
	open(w.open(t, Options{}))
	stopped.stop()
	var wait sync.WaitGroup
	for _, s := range stores {
		for k := range 16 {
			wait.Go(func() {
				for {
					c := []store.Charge{{Policy: "p", Key: fmt.Sprint(k), Limit: yearly(1_000_000), N: 1}}
					if err := store.Take(context.Background(), s, c, make([]weir.Decision, 1)); errors.Is(err, store.ErrClosed) {
						return
					}
				}
			})
		}
		until(t, "calls are made", func() bool { return s.dispatch.inFlight.Load() > 8 })
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	wait.Wait()
	stopped.resume()
	until(t, "no goroutine is left", func() bool {
		buf := make([]byte, 1<<20)
		return !strings.Contains(string(buf[:runtime.Stack(buf, true)]), "redis.(*dispatcher)")
	})
}

// TestServerRestartedMeanwhile restarts the server while no call is made: the next ones do not meet the connections that ended.
func TestServerRestartedMeanwhile(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := server.open(Options{})
	c := []store.Charge{{Policy: "p", Key: "k", Limit: yearly(10), N: 1}}
	for range 5 {
		if err := store.Take(context.Background(), s, c, make([]weir.Decision, 1)); err != nil {
			t.Error(err)
		}
		server.kill()
		server.start()
	}
}

// TestCanceled has callers whose contexts are canceled while the server does not answer. Their connection is used again when it
// does, and nothing is taken twice.
func TestCanceled(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := server.open(Options{Connections: 1})
	c := []store.Charge{{Policy: "p", Key: "k", Limit: yearly(10), N: 1}}
	d := make([]weir.Decision, 1)
	for round := range int64(3) {
		if err := store.Take(context.Background(), s, c, d); err != nil || d[0].Remaining < 9-2*round {
			t.Fatal(d, err)
		}
		server.stop()
		ctx, cancel := context.WithCancel(context.Background())
		canceled := make(chan error)
		go func() { canceled <- store.Take(ctx, s, c, make([]weir.Decision, 1)) }()
		until(t, "the call waits", func() bool { return s.dispatch.inFlight.Load() == 1 })
		cancel()
		if err := <-canceled; !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		server.resume()
		until(t, "nothing is in flight", func() bool { return s.dispatch.inFlight.Load() == 0 })
	}
	if err := store.Peek(context.Background(), s, c, d); err != nil || d[0].Remaining > 7 || d[0].Remaining < 4 {
		t.Errorf("%+v, %v", d[0], err)
	}
}

// TestURLs reads what other clients of Redis read as well, and refuses what is wrong by saying so.
func TestURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"redis://localhost":                           "localhost:6379",
		"redis://":                                    "localhost:6379",
		"redis://:6380/":                              "localhost:6380",
		"redis://u:p%40@h:1/7":                        "h:1 user u password p@ db 7",
		"valkey://h/3?db=4&client_name=x":             "h:6379 db 4",
		"rediss://h:1":                                "h:1 TLS h",
		"valkeys://h:1?skip_verify":                   "h:1 TLS h unverified",
		"rediss://h:1?skip_verify=false":              "h:1 TLS h",
		"redis://[::1]:7?protocol=2":                  "[::1]:7 old",
		"redis://[::1]":                               "[::1]:6379",
		"redis://a:1?addr=b:2&addr=c&dial_timeout=1s": "a:1 b:2 c:6379",
		"redis://a:1?addr=b:2&master_set=m":           "a:1 b:2 set m",
		"unix://u:p@/run/redis.sock?db=2":             "/run/redis.sock user u password p db 2 unix",
		"http://h":                                    "the scheme",
		"redis://h/x":                                 "the database",
		"redis://h/1/2":                               "the database",
		"redis://h?db=-1":                             "the database",
		"redis://h?dial_timeout=soon":                 "dial_timeout",
		"redis://h?write_timeout=1":                   "write_timeout",
		"rediss://h?skip_verify=perhaps":              "skip_verify",
		"unix://?db=1":                                "a path",
		"redis://u:secret@h:x":                        "cannot be parsed",
		"redis://u:secret@h:1:2":                      "host:port",
		"redis://a:1?addr=h:1:2":                      "host:port",
		"redis://a:1?master_set=":                     "master_set is empty",
		"redis://a:1?master_set":                      "master_set is empty",
		"redis://h?tls=true":                          "rediss://",
		"redis://h?adr=i:1":                           "not known",
		"redis://h?db=1;adr=i:1":                      "not known",
		"redis://h/#0":                                "has a #",
		"redis://u:1#secret@h":                        "%23",
		"redis://u:1?secret@h":                        "%3F",
		"unix:///run/redis.sock?dbs=2":                "not known",
	} {
		s, err := Options{URL: text}.servers()
		if err != nil {
			var wrong *weir.OptionError
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
			continue
		}
		got := slices.Clone(s.addresses)
		add := func(is bool, words ...string) {
			if is {
				got = append(got, words...)
			}
		}
		add(s.login.Username != "", "user", s.login.Username, "password", s.login.Password)
		add(s.login.DB != 0, "db", fmt.Sprint(s.login.DB))
		if s.login.TLS != nil {
			add(true, "TLS", s.login.TLS.ServerName)
			add(s.login.TLS.InsecureSkipVerify, "unverified")
		}
		add(s.login.Old, "old")
		add(s.login.Unix, "unix")
		if s.sentinels != nil {
			add(true, "set", s.sentinels.set)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}
