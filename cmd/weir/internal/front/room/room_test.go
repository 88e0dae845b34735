package room_test

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front/room"
)

// TestRoomIsNeverExceeded: however many clients take and free at once, they have no more than there is, and in the end it is all
// there again.
func TestRoomIsNeverExceeded(t *testing.T) {
	const most, clients, steps = 1000, 8, 2000
	r := room.Room{Max: most}
	var taken atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		share := r.Of(netip.AddrFrom4([4]byte{192, 0, 2, byte(i / 2)}))
		all.Go(func() {
			for range steps {
				n := rand.Int64N(most / 2)
				if !share.Take(n) {
					continue
				}
				if sum := taken.Add(n); sum > most {
					t.Errorf("%d bytes are taken", sum)
				}
				taken.Add(-n)
				share.Free(n)
			}
		})
	}
	all.Wait()
	if unknown := r.Of(netip.Addr{}); r.Bytes() != 0 || !unknown.Take(most) || unknown.Take(1) || r.Bytes() != most {
		t.Errorf("%d bytes are taken", r.Bytes())
	}
	if r.Add(-1); r.Add(2) || r.Bytes() != most+1 {
		t.Errorf("%d bytes are taken, of what there may be and one", r.Bytes())
	}
}

// TestOneAddressLeavesSome: an address, or a network of IPv6, has nine in ten at most, and others have what is left.
func TestOneAddressLeavesSome(t *testing.T) {
	r := room.Room{Max: 100}
	greedy, neighbor := r.Of(netip.MustParseAddr("2001:db8::1")), r.Of(netip.MustParseAddr("2001:db8::2"))
	other := r.Of(netip.MustParseAddr("2001:db8:0:1::1"))
	if !greedy.Take(60) || neighbor.Take(31) || !neighbor.Take(30) || greedy.Take(1) {
		t.Errorf("of a network %d bytes are taken", r.Bytes())
	}
	if !other.Take(10) || other.Take(1) || r.Bytes() != 100 {
		t.Errorf("in all %d bytes are taken", r.Bytes())
	}
	greedy.Free(60)
	if !other.Take(60) || greedy.Take(1) {
		t.Errorf("after some were freed %d bytes are taken", r.Bytes())
	}
	neighbor.Free(30)
	other.Free(70)
	var none room.Share
	if none.Free(0); !none.Take(0) || r.Bytes() != 0 {
		t.Errorf("in the end %d bytes are taken", r.Bytes())
	}
}
