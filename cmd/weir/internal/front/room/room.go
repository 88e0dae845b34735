// Package room bounds the memory of what clients have sent and the server is not done with, and of replies that they do not take.
package room

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/clientip"
)

// Room is how many bytes there may be of all clients together, beside the little that a front lets each have whatever there is of
// others. All methods are safe for concurrent use.
type Room struct {
	Max int64

	bytes atomic.Int64

	mu     sync.Mutex
	shares map[netip.Prefix]int64 // of the bytes, those of clients by their networks
}

// OfOne is how much of the most that there may be of something one address may have: nine in ten, which leaves some to others and
// does not hold back a proxy in front.
func OfOne(most int64) int64 {
	const tenth = 10
	return most - most/tenth
}

// Bytes returns how many bytes are taken.
func (r *Room) Bytes() int64 { return r.bytes.Load() }

// Add adds n bytes, which may be below 0, whatever there is, and reports whether there are not too many then.
func (r *Room) Add(n int64) bool { return r.bytes.Add(n) <= r.Max }

// Share is the part of a room that an address has, or a /64 of IPv6. The zero Share has no room.
type Share struct {
	room *Room
	of   netip.Prefix
}

// Of returns the share of a client. That of an address which is not known is bounded by the room alone.
func (r *Room) Of(client netip.Addr) Share { return Share{r, clientip.Prefixes{}.Mask(client)} }

// Take takes n bytes. It is false, and takes none, if there are not as many left in the room, or as the address may have.
func (s Share) Take(n int64) bool {
	if n <= 0 {
		return true
	}
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.shares[s.of] + n
	if s.of.IsValid() && own > OfOne(r.Max) {
		return false
	}
	if !r.Add(n) {
		r.Add(-n)
		return false
	}
	if r.shares == nil {
		r.shares = make(map[netip.Prefix]int64)
	}
	r.shares[s.of] = own
	return true
}

// Free gives n bytes back that were taken.
func (s Share) Free(n int64) {
	if n <= 0 {
		return
	}
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Add(-n)
	if r.shares[s.of] -= n; r.shares[s.of] == 0 {
		delete(r.shares, s.of)
	}
}
