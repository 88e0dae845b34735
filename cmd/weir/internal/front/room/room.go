// Package room bounds the memory of what clients have sent and the server is not done with, and of replies that they do not take.
package room

import "sync/atomic"

// Room is how many bytes there may be of all clients together, beside the little that a front lets each have whatever there is of
// others. All methods are safe for concurrent use.
type Room struct {
	Max int64

	bytes atomic.Int64
}

// Bytes returns how many bytes are taken.
func (r *Room) Bytes() int64 { return r.bytes.Load() }

// Add takes n bytes, also if there are not as many left, and reports whether there were.
func (r *Room) Add(n int64) bool { return r.bytes.Add(n) <= r.Max }

// Take takes n bytes. It is false, and takes none, if there are not as many left.
func (r *Room) Take(n int64) bool {
	if r.Add(n) {
		return true
	}
	r.Free(n)
	return false
}

// Free gives n bytes back.
func (r *Room) Free(n int64) { r.bytes.Add(-n) }
