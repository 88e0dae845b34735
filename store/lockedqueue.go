package store

import (
	"context"
	"hash/maphash"
	"math/bits"
)

// lockQueue has calls of one process for the same key wait for one another, so that they do not get in each other's way at the
// Locks. Keys share places in it by their hash.
type lockQueue struct {
	seed   maphash.Seed
	places []chan struct{}
}

const lockPlaces = 64

func newLockQueue() lockQueue {
	q := lockQueue{maphash.MakeSeed(), make([]chan struct{}, lockPlaces)}
	for i := range q.places {
		q.places[i] = make(chan struct{}, 1)
	}
	return q
}

// enter waits until no other call that has entered has a place of one of the names. free ends that.
func (q *lockQueue) enter(ctx context.Context, names []string) (free func(), err error) {
	var wanted, had uint64
	for _, name := range names {
		wanted |= 1 << (maphash.String(q.seed, name) % lockPlaces)
	}
	free = func() {
		for ; had != 0; had &= had - 1 {
			<-q.places[bits.TrailingZeros64(had)]
		}
	}
	for ; wanted != 0; wanted &= wanted - 1 { // always in the same order, so that nobody waits in a circle
		i := bits.TrailingZeros64(wanted)
		select {
		case q.places[i] <- struct{}{}:
			had |= 1 << i
		case <-ctx.Done():
			free()
			return nil, ctx.Err()
		}
	}
	return free, nil
}
