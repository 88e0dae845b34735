package replay

import (
	"context"
	"errors"
	"io"
	"sort"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
	"github.com/weirhq/weir/internal/heap"
)

// checkEvery is how many records are read between two looks at the context and the progress.
const checkEvery = 1 << 12

// heldBack bounds how many requests are held back to put them in order.
const heldBack = 1 << 20

// sequence hands on requests in the order of their times, as far as an [order] can make it.
type sequence struct {
	take func(at int64, request []byte)

	order     order
	begun     bool
	latest    int64         // of the lines, in nanoseconds since 1970
	reordered int64         // requests that stand behind a later one in the log
	furthest  time.Duration // by how much at most
}

func newSequence(take func(at int64, request []byte)) *sequence {
	return &sequence{take: take, order: order{size: heldBack}}
}

// add puts a request in its place. It is copied.
func (s *sequence) add(at int64, request []byte) {
	if !s.begun {
		s.begun, s.latest = true, at
	}
	if at < s.latest {
		s.reordered++
		s.furthest = max(s.furthest, time.Duration(s.latest-at))
	}
	s.latest = max(s.latest, at)
	if s.order.full() {
		s.take(s.order.next())
	}
	s.order.add(at, request)
}

// drain hands on the requests that are held back.
func (s *sequence) drain() {
	for !s.order.empty() {
		s.take(s.order.next())
	}
}

// readRecords reads all records of r. It ends early, with the error, if ctx ends or the log cannot be read. It calls progress now
// and then.
func readRecords(ctx context.Context, r *accesslog.Reader, read func(*accesslog.Record), progress func()) error {
	var rec accesslog.Record
	for n := 1; ; n++ {
		if n%checkEvery == 0 {
			progress()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		switch err := r.Next(&rec); {
		case err == nil:
			read(&rec)
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// order puts requests in the order of their times: servers write a line when a request ends, several of them write
// files of their own, and neither comes sorted. It holds back up to size requests and hands out the earliest, the first
// read where times are equal. So a log of up to size requests is sorted as a whole, and in a longer one a request is
// late only if size others were read since those of its time.
//
// Most requests of a log are in order, or near their place. Those stand in a line, where the next is found at once; only the
// others go through a heap.
type order struct {
	size  int
	read  uint64
	bytes int // of the keys
	line  []held
	head  int // the first in line
	heap  heap.Heap[held]
	keys  [][]byte // of the requests held back, by slot
	free  []int32  // slots
}

// held is a request that is held back.
type held struct {
	at   int64
	read uint64 // its place in the log
	slot int32
}

// Before implements [heap.Item].
func (h held) Before(other held) bool {
	return h.at < other.at || h.at == other.at && h.read < other.read
}

// Placed implements [heap.Item].
func (held) Placed(int) {}

// mostBytes bounds the keys that are held back, which may be as long as a line.
const mostBytes = 256 << 20

// full reports whether a request must be taken out before another is added.
func (o *order) full() bool { return o.held() >= o.size || o.bytes >= mostBytes }

// empty reports whether none is held back.
func (o *order) empty() bool { return o.held() == 0 }

func (o *order) held() int { return len(o.line) - o.head + len(o.heap) }

// add holds back a request. The key is copied.
func (o *order) add(at int64, key []byte) {
	var slot int32
	if n := len(o.free); n > 0 {
		slot = o.free[n-1]
		o.free = o.free[:n-1]
		o.keys[slot] = append(o.keys[slot][:0], key...)
	} else {
		slot = int32(len(o.keys))
		o.keys = append(o.keys, append([]byte(nil), key...))
	}
	o.read++
	o.bytes += len(key)
	added := held{at, o.read, slot}
	if n := len(o.line); n == o.head || !added.Before(o.line[n-1]) {
		o.queue(added)
		return
	} else if back := min(nearby, n-o.head); !added.Before(o.line[n-back]) {
		o.insert(added, back)
		return
	}
	o.heap.Push(added)
}

// queue puts a request at the end of the line. What has left the line makes room for it once that is half of the space.
func (o *order) queue(added held) {
	if len(o.line) == cap(o.line) && o.head > len(o.line)/2 {
		o.line = o.line[:copy(o.line, o.line[o.head:])]
		o.head = 0
	}
	o.line = append(o.line, added)
}

// nearby is how many places from the end of the line a request may have its place: so far that moving those behind it costs about
// what a heap does.
const nearby = 512

// insert puts a request in its place in the line, which is among the last back places.
func (o *order) insert(added held, back int) {
	o.queue(held{}) // which may move the line
	n := len(o.line) - 1
	near := n - back
	place := near + sort.Search(n-near, func(i int) bool { return added.Before(o.line[near+i]) })
	copy(o.line[place+1:], o.line[place:n])
	o.line[place] = added
}

// next takes out the earliest. The key is valid until the next add.
func (o *order) next() (at int64, key []byte) {
	var first held
	if o.head < len(o.line) && (len(o.heap) == 0 || o.line[o.head].Before(o.heap[0])) {
		first = o.line[o.head]
		o.head++
	} else {
		first = o.heap.Pop()
	}
	key = o.keys[first.slot]
	o.bytes -= len(key)
	if cap(key) > 1024 { // not worth keeping the space
		o.keys[first.slot] = nil
	}
	o.free = append(o.free, first.slot)
	return first.at, key
}
