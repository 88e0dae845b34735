package replay

import "sync"

// batch is some requests in the order of their times, on the way through the configurations.
type batch struct {
	space   []byte // in which text is made
	text    string
	entries []entry
	// outcomes are what the configurations before have said, for the one that is compared with.
	outcomes []outcome
	parts    []part
	keys     []byte // of the parts that were refused
}

// batchSize is how many requests make a batch: few enough to stay in a cache.
const batchSize = 1024

// entry is a request: its time in nanoseconds since 1970, and where its text ends.
type entry struct {
	at  int64
	end uint32
}

// outcome is what a configuration has said to a request: whether it may pass, and where the policies that held for it end in the
// parts of the batch.
type outcome struct {
	allowed bool
	parts   uint32
}

// part is a policy that held for a request, by its number. Its key ends there in the keys of the batch, and is empty
// unless the policy has refused.
type part struct {
	policy  int
	refused bool
	key     uint32
}

// add adds a request. There must be room.
func (b *batch) add(at int64, request []byte) {
	b.space = append(b.space, request...)
	b.entries = append(b.entries, entry{at, uint32(len(b.space))})
}

// full reports whether no more should be added. The second condition keeps requests with long paths from making batches of
// gigabytes.
func (b *batch) full() bool { return len(b.entries) >= batchSize || len(b.space) >= batchSize<<12 }

func (b *batch) reset() {
	b.space, b.text, b.entries = b.space[:0], "", b.entries[:0]
	b.outcomes, b.parts, b.keys = b.outcomes[:0], b.parts[:0], b.keys[:0]
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// newBatch returns one that is empty, and has the memory of one that was freed.
func newBatch() *batch {
	b, _ := batches.Get().(*batch)
	return b
}

func (b *batch) free() {
	b.reset()
	batches.Put(b)
}

// latestTime bounds the virtual time: limiters compute with times within 2^62 nanoseconds.
const latestTime = 1 << 62

// clockTime is the time that a manual clock is set to for a request at that time: clocks end before some logs could.
func clockTime(at int64) int64 { return min(at, latestTime) }

// keep stores what was said to each request of a batch, for the next trial.
func (b *batch) keep() each {
	return func(_ int, allowed bool, parts []part, keys []byte) {
		before := uint32(len(b.keys))
		b.keys = append(b.keys, keys...)
		for _, p := range parts {
			p.key += before
			b.parts = append(b.parts, p)
		}
		b.outcomes = append(b.outcomes, outcome{allowed, uint32(len(b.parts))})
	}
}
