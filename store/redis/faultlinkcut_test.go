package redis

import (
	"testing"
	"time"

	"github.com/weirhq/weir/store"
)

// TestLinksCut cuts the links between three nodes and the server, one after the other and all at once: connections are reset,
// or bytes are lost without a word, or answers only. Nothing is admitted above the limit, calls end in time, and each node is
// served again soon after its link is whole.
func TestLinksCut(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	server := startServer(t)
	var links []*link
	var stores []store.Store
	for range 3 {
		links = append(links, startLink(t, server.address()))
		o := Options{Timeout: timeout, Addresses: []string{links[len(links)-1].address()}}
		stores = append(stores, open(t, o))
	}
	l := newLoad(t, faultCharges(100, 50_000), stores...)
	l.reserving = 5
	l.expect(timeout).start(12).more(500)
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
			others := l.answers()
			l.goOn(1500 * time.Millisecond)
			others = l.answers() - others
			for _, i := range c.of {
				attempts += links[i].attempts()
				links[i].set(whole)
			}
			recovery := l.recovery(c.of...)
			t.Logf("%s for 1.5 s: %d calls failed, %d were answered, connections tried %d, served again after %v",
				c.name, l.failed.Load()-failed, others, attempts, recovery.Round(time.Millisecond))
			if l.failed.Load() == failed {
				t.Errorf("%s: no call failed", c.name)
			}
			if len(c.of) == 1 && others < 100 { // the machine may be busy
				t.Errorf("%s: the others were answered %d calls only", c.name, others)
			}
			if recovery > 20*time.Second {
				t.Errorf("%s: served again after %v", c.name, recovery)
			}
			if attempts > 200 {
				t.Errorf("%s: %d connections were tried", c.name, attempts)
			}
		}
	}
	l.stop()
	sum := l.drain(server.open(Options{}))
	l.report("links cut", sum)
	l.within()
	if sum.above > 0 {
		t.Errorf("%d above the limit", sum.above)
	}
}
