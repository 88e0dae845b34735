package migrating_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/weirhq/weir/examples/migrating/gubernator"
	"github.com/weirhq/weir/examples/migrating/rediscell"
	"github.com/weirhq/weir/internal/programtest"
)

// TestRedisCell runs a program written for redis-cell against weir. Limits that the call brings, and those of the file, are apart.
func TestRedisCell(t *testing.T) {
	address := programtest.FreeAddress(t)
	startWeir(t, address, "--http", "127.0.0.1:0", "--resp", address, "--config", filepath.Join("rediscell", "weir.yaml"))
	clients := rediscell.New(address)
	defer clients.Close()
	for _, by := range []struct {
		name  string
		allow func(client string) (bool, time.Duration, error)
		most  time.Duration // the longest wait that a refusal may tell
	}{
		{"CL.THROTTLE", func(client string) (bool, time.Duration, error) { return clients.Allow(t.Context(), client) }, time.Second},
		{"WEIR.TAKE", func(client string) (bool, time.Duration, error) { return clients.Take(t.Context(), client) }, time.Second / 10},
	} {
		var c tally
		for refused := 0; refused < 10; {
			asked := time.Now()
			ok, retryAfter, err := by.allow("alice")
			if err != nil {
				t.Fatal(err)
			}
			c.add(asked, ok)
			if ok {
				continue
			}
			refused++
			if retryAfter <= 0 || retryAfter > by.most {
				t.Errorf("%s: retry after %v", by.name, retryAfter)
			}
		}
		c.check(t, by.name, 20, time.Millisecond)
	}
}

// TestGubernator asks weir for what gubernator was asked: more than there is charges nothing, and a limit that is not in the file is
// an error.
func TestGubernator(t *testing.T) {
	address := programtest.FreeAddress(t)
	startWeir(t, address, "--http", address, "--config", filepath.Join("gubernator", "weir.yaml"))
	after := gubernator.After{Server: "http://" + address}
	for i, ask := range []struct {
		hits int64
		want bool
	}{{900, true}, {200, false}, {100, true}, {1, false}, {0, false}} {
		ok, err := after.UnderLimit(t.Context(), "emails_per_day", "account:12345", ask.hits)
		if ok != ask.want || err != nil {
			t.Errorf("request %d of %d hits: %t, %v", i, ask.hits, ok, err)
		}
	}
	if ok, err := after.UnderLimit(t.Context(), "requests_per_sec", "account:12345", 10); !ok || err != nil {
		t.Errorf("10 requests at once: %t, %v", ok, err)
	}
	if ok, err := after.UnderLimit(t.Context(), "requests_per_min", "account:12345", 1); ok || err == nil {
		t.Errorf("a limit that does not exist: %t, %v", ok, err)
	}
}
