package redis

import (
	"testing"
	"time"

	"github.com/weirhq/weir/store"
)

// TestLinksCut cuts the links between three nodes and the server, one after the other and all at once: connections are reset,
// or bytes are lost without a word, or returns only. Nothing is allowed above the limit, calls fail while the others' are
// answered, and each node is served again once its link is whole.
func TestLinksCut(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	server := startServer(t)
	var links []*link
	var stores []store.Home
	for range 3 {
		links = append(links, startLink(t, server.address()))
		o := Options{Timeout: timeout, Addresses: []string{links[len(links)-1].address()}}
		stores = append(stores, open(t, o))
	}
	l := newLoad(t, faultCharges(100, 50_000), stores...)
	l.reserving = 5
	l.start(12).more(500)
	for range rounds(t) {
		for _, c := range []struct {
			name string
			how  cut
			of   []int
		}{
			{"one is reset", refused, []int{0}},
			{"one is silent", silent, []int{1}},
			{"one is deaf", deaf, []int{2}},
			{"all are reset", refused, []int{0, 1, 2}},
			{"all are silent", silent, []int{0, 1, 2}},
		} {
			failed, attempts := l.failed.Load(), 0
			for _, i := range c.of {
				attempts -= links[i].attempts()
				links[i].set(c.how)
			}
			began, others := time.Now(), l.answers()
			l.goOn(500 * time.Millisecond)
			l.each("fail", l.missed, 8, c.of)
			if len(c.of) == 1 {
				l.each("are answered", l.served, 50, []int{(c.of[0] + 1) % 3, (c.of[0] + 2) % 3})
			}
			others = l.answers() - others
			for _, i := range c.of {
				attempts += links[i].attempts()
				links[i].set(whole)
			}
			lasted := time.Since(began)
			recovery := l.recovery(c.of...)
			t.Logf("%s: %d calls failed, %d were answered, connections tried %d, served again after %v",
				c.name, l.failed.Load()-failed, others, attempts, recovery.Round(time.Millisecond))
			if float64(attempts) > 200*max(1, lasted.Seconds()) {
				t.Errorf("%s: %d connections were tried in %v", c.name, attempts, lasted)
			}
		}
	}
	l.stop()
	sum := l.drain(server.open(Options{}))
	l.report("links cut", sum)
	if sum.above > 0 {
		t.Errorf("%d above the limit", sum.above)
	}
}
