package durable

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// SetClock sets the clock of an owner ahead.
func SetClock(o *Owner, ahead time.Duration) { o.time.unix += int64(ahead) }

// TestDisk is a disk in memory that fails, and whose machine loses its power.
type TestDisk = testDisk

// NewTestDisk is an empty disk.
func NewTestDisk(r *rand.Rand) *TestDisk { return newTestDisk(r) }

// Fail has so many calls of 100 fail from now on, all of them if the disk is dead.
func (d *testDisk) Fail(percent int, dead bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails, d.dead = percent, dead
}

// Crash has its machine lose the power, and start again.
func (d *testDisk) Crash() { d.crash() }

// Flip flips a bit of a file, whichever it is, or flips it back.
func (d *testDisk) Flip(path string, bit uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	data := d.names[path].data
	bit %= uint64(8 * len(data))
	data[bit/8] ^= 1 << (bit % 8)
}

// OpenFileOn opens a file on a disk of a test. Its terms outlast a node by a second, as those of a cluster do.
func OpenFileOn(d *TestDisk, path string) (*File, error) {
	f, err := OpenFile(path, FileOptions{disk: d})
	if err == nil {
		f.ttl = time.Second
	}
	return f, err
}

// Cut cuts the node off from those that hear its signs of life, or connects it again.
func (e *FileEngine) Cut(cut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cut = cut
}

// Enqueue asks an owner for the permits of a charge, as a node does that serves another one, and returns how to withdraw that. done
// is called with the decision, or with an error.
func Enqueue(o *Owner, ask store.Ask, c store.Charge, done func(weir.Decision, store.Hold, error)) (cancel func()) {
	call := &Call{Verb: VerbDo, Ask: ask, Charges: []store.Charge{c}}
	if err := call.checkSent(); err != nil {
		done(weir.Decision{}, store.Hold{}, err)
		return func() {}
	}
	var d [1]weir.Decision
	if o.quick(context.Background(), &ask, call.Charges, d[:]) {
		done(d[0], store.Hold{}, nil)
		return func() {}
	}
	return o.enqueue(call, func(w *waiter) {
		r := w.result()
		done(w.decision[0], held(r.Hold, 0, call.Charges), r.Err)
	}).cancel
}

// Carry has an owner carry out a call of another node.
func Carry(ctx context.Context, o *Owner, c *Call) Result { return o.call(ctx, c) }
