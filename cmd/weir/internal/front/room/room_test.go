package room_test

import (
	"math/rand/v2"
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
	for range clients {
		all.Go(func() {
			for range steps {
				n := rand.Int64N(most / 2)
				if !r.Take(n) {
					continue
				}
				if sum := taken.Add(n); sum > most {
					t.Errorf("%d bytes are taken", sum)
				}
				taken.Add(-n)
				r.Free(n)
			}
		})
	}
	all.Wait()
	if r.Bytes() != 0 || !r.Take(most) || r.Take(1) || r.Bytes() != most {
		t.Errorf("%d bytes are taken", r.Bytes())
	}
	if r.Free(1); r.Add(2) || r.Bytes() != most+1 {
		t.Errorf("%d bytes are taken, of what there may be and one", r.Bytes())
	}
}
