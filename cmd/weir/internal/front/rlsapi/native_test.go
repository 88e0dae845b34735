package rlsapi

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
)

// TestNativeRequestsAreMadeAnew: nothing of an earlier request is in the next one, whatever its keys are.
func TestNativeRequestsAreMadeAnew(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := &call{service: newService(Options{})}
	keys, values := []string{"a", "b", "a/b", "b/a", "client_ip", "/"}, []string{"", "192.0.2.1", "x", "y/z", "2001:db8::1"}
	var entries []ratelimitconfig.Entry
	adopted := 0
	for i := range 50_000 {
		if i%40 == 0 || random.IntN(10) == 0 {
			entries = entries[:0]
			for range 1 + random.IntN(3) {
				entries = append(entries, ratelimitconfig.Entry{Key: keys[random.IntN(len(keys))]})
			}
		}
		var path strings.Builder
		attributes, client := map[string]string{}, netip.Addr{}
		for j := range entries {
			e := &entries[j]
			e.Value = values[random.IntN(len(values))]
			path.WriteString("/" + e.Key)
			if _, twice := attributes[e.Key]; !twice {
				attributes[e.Key] = e.Value
			}
			if a, err := netip.ParseAddr(e.Value); err == nil && e.Key == "client_ip" && !client.IsValid() {
				client = a
			}
		}
		c.q.domain = "edge"
		c.q.descriptors = append(c.q.descriptors, descriptor{to: len(entries)})
		for _, e := range entries { // in memory that the next request has again
			c.q.entries = append(c.q.entries, ratelimitconfig.Entry{
				Key: c.texts.keep([]byte(e.Key)), Value: c.texts.keep([]byte(e.Value)),
			})
		}
		if err := c.prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := &c.descriptors[0]
		if r.Path != path.String() || !maps.Equal(r.Attributes, attributes) || r.Client != client || r.Protocol != protocol || r.Cost != 1 {
			t.Fatalf("%v: %q %v %v, want %q %v %v", entries, r.Path, r.Attributes, r.Client, path.String(), attributes, client)
		}
		if c.known[0].path != "" {
			adopted++
		}
		c.filled = true
		c.release()
	}
	if adopted == 0 {
		t.Error("no path was known")
	}
}
