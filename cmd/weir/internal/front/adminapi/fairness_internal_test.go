package adminapi

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
)

// newHub returns one that tells nothing.
func newHub() *hub {
	b := &hub{running: true}
	b.init(nil)
	return b
}

func (b *hub) streamsOf(who, from string) (n int) {
	for s := range b.all {
		if (who == "" || s.of.Who == who) && (from == "" || s.of.From == from) {
			n++
		}
	}
	return n
}

// TestStreamsAreShared: one operator, or one address, may have all streams as long as no other wants one, and has to share them
// then.
func TestStreamsAreShared(t *testing.T) {
	b := newHub()
	flood := adminguard.Caller{Who: "flood", From: "192.0.2.1"}
	join := func(of adminguard.Caller, want bool) *stream {
		t.Helper()
		s := b.join(of)
		if (s != nil) != want || len(b.all) > mostStreams {
			t.Fatalf("%v has a stream: %t, want %t; there are %d", of, s != nil, want, len(b.all))
		}
		return s
	}
	all := make([]*stream, mostStreams)
	for i := range all {
		all[i] = join(flood, true)
	}
	for range 3 {
		join(flood, false)
	}
	expectGone := func(s *stream, what string) {
		t.Helper()
		select {
		case <-s.gone:
		default:
			t.Errorf("%s has not ended", what)
		}
	}
	anna := adminguard.Caller{Who: "anna", From: "192.0.2.1"}
	join(anna, true)
	expectGone(all[mostStreams-1], "the last stream of who has the most")
	for range 3 { // it comes again
		join(flood, false)
	}
	for range mostStreams/2 - 1 {
		join(anna, true)
	}
	join(anna, false)
	if n := b.streamsOf("flood", ""); n != mostStreams/2 {
		t.Errorf("who had all has %d", n)
	}
	// Others of the same token, elsewhere.
	same := adminguard.Caller{Who: "flood", From: "2001:db8::1"}
	for range mostStreams / 4 {
		join(same, true)
	}
	join(same, false)
	join(adminguard.Caller{Who: "flood", From: "2001:db8::ffff"}, false) // of that network
	if n, m := b.streamsOf("flood", flood.From), b.streamsOf("anna", ""); n != mostStreams/4 || m != mostStreams/2 {
		t.Errorf("who had all has %d there, the other one %d", n, m)
	}
	b.end()
	join(anna, false)
}

// TestNewcomersHaveStreams: over random histories, no caller without a stream is refused while another one has several.
func TestNewcomersHaveStreams(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		b := newHub()
		for range 200 {
			of := adminguard.Caller{Who: fmt.Sprint("operator", rng.IntN(4)), From: fmt.Sprintf("192.0.2.%d", rng.IntN(4))}
			before := b.streamsOf(of.Who, of.From)
			if b.join(of) == nil && before < 2 {
				t.Fatalf("%v, who has %d of %d, is refused", of, before, len(b.all))
			}
			if len(b.all) > mostStreams {
				t.Fatalf("there are %d", len(b.all))
			}
			if s, _ := b.lastOfMost(whose); s != nil && rng.IntN(5) == 0 { // now and then one leaves
				b.leave(s)
			}
		}
	}
}
