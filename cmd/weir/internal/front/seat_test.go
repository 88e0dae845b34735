package front_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front"
)

// place is what a model knows of a connection.
type place struct {
	seat   *front.Seat
	name   string
	owner  string
	uses   int
	asked  bool
	since  time.Time
	closed *atomic.Bool
}

// closing is a connection that reports whether it was closed.
type closing struct {
	net.Conn

	owner  string
	closed atomic.Bool
}

func (c *closing) Close() error {
	c.closed.Store(true)
	return nil
}

func (c *closing) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.owner), 1))
}

func (*closing) LocalAddr() net.Addr { return &net.TCPAddr{} }

// leaving is the one that makes room, by looking at all: nil if all are in use.
func leaving(all []*place, owner string) *place {
	var silent, idle *place
	older := func(a, b *place) *place {
		if a == nil || b.since.Before(a.since) {
			return b
		}
		return a
	}
	for _, p := range all {
		switch {
		case owner != "" && p.owner != owner || p.uses > 0:
		case p.asked:
			idle = older(idle, p)
		default:
			silent = older(silent, p)
		}
	}
	if idle == nil || silent != nil && time.Since(silent.since) >= time.Second {
		return silent
	}
	return idle
}

// TestSeatsModel: over random histories, exactly that connection makes room that is found by looking at all of them.
func TestSeatsModel(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			const most, ofOne = 12, 8
			b := front.NewBounded(most, ofOne, nil)
			var all []*place
			without := func(gone *place) {
				for i, p := range all {
					if p == gone {
						all = append(all[:i], all[i+1:]...)
						return
					}
				}
			}
			add := func(step int) {
				owner := fmt.Sprintf("192.0.2.%d", rng.IntN(3))
				of := 0
				for _, p := range all {
					if p.owner == owner {
						of++
					}
				}
				var expected *place
				full := true
				switch {
				case of >= ofOne:
					expected = leaving(all, owner)
				case len(all) >= most:
					expected = leaving(all, "")
				default:
					full = false
				}
				c := &closing{owner: owner}
				seat := b.Add(c)
				if (seat == nil) != (full && expected == nil) {
					t.Fatalf("seed %d, step %d: a place was given: %t, to make room for it: %v", seed, step, seat != nil, expected)
				}
				if expected != nil {
					if !expected.closed.Load() || expected.seat.Use() {
						t.Fatalf("seed %d, step %d: not %s has made room", seed, step, expected.name)
					}
					without(expected)
				}
				if seat != nil {
					all = append(all, &place{
						seat: seat, name: fmt.Sprint("connection ", step), owner: owner, since: time.Now(), closed: &c.closed,
					})
				}
			}
			for step := range 2000 {
				time.Sleep(time.Duration(1 + rng.Int64N(int64(100*time.Millisecond)))) // virtual
				if len(all) == 0 || rng.IntN(3) == 0 {
					add(step)
				} else {
					p := all[rng.IntN(len(all))]
					switch n := rng.IntN(20); {
					case n == 0:
						p.seat.Leave()
						p.seat.Leave()
						without(p)
					case n < 4:
						p.seat.Touch()
						p.asked, p.since = true, time.Now()
					case p.uses > 0 && n < 12:
						p.seat.Rest()
						p.uses, p.since = p.uses-1, time.Now()
					default:
						if !p.seat.Use() {
							t.Fatalf("seed %d, step %d: %s cannot be used", seed, step, p.name)
						}
						p.uses, p.asked = p.uses+1, true
					}
				}
				for _, p := range all {
					if p.closed.Load() {
						t.Fatalf("seed %d, step %d: %s is closed", seed, step, p.name)
					}
				}
				if open, _, _ := b.Counts(); open != len(all) {
					t.Fatalf("seed %d, step %d: %d are open, want %d", seed, step, open, len(all))
				}
			}
		})
	}
}

// TestSeatsContention: whatever clients do at a time, no connection makes room while it is used, and none is lost.
func TestSeatsContention(t *testing.T) {
	const most, clients, rounds = 8, 32, 2000
	b := front.NewBounded(most, 0, nil)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 9))
			for range rounds {
				c := &closing{owner: "192.0.2.1"}
				seat := b.Add(c)
				if seat == nil {
					continue
				}
				var users sync.WaitGroup
				for range 1 + rng.IntN(3) {
					users.Go(func() {
						for range 4 {
							if !seat.Use() {
								return
							}
							if c.closed.Load() {
								t.Error("a connection is closed while it is used")
							}
							seat.Rest()
							seat.Touch()
						}
					})
				}
				users.Wait()
				if rng.IntN(2) == 0 {
					seat.Leave()
				}
			}
		})
	}
	all.Wait()
	// Those that are left are idle: all of them make room for others.
	open, evicted, _ := b.Counts()
	for range most + most {
		if b.Add(&closing{owner: "192.0.2.1"}) == nil {
			t.Fatal("there is no room, though no connection is in use")
		}
	}
	if now, more, _ := b.Counts(); now != most || more != evicted+int64(open+most) {
		t.Errorf("%d open, %d evicted, want %d and %d", now, more, most, evicted+int64(open+most))
	}
}

// TestRequestsOfOneAddressLeaveSome: a connection has one request in any case, and all of an address have no more besides than it may
// have connections. What has ended makes room.
func TestRequestsOfOneAddressLeaveSome(t *testing.T) {
	b := front.NewBounded(5, 3, nil)
	first, second := b.Add(&closing{owner: "192.0.2.1"}), b.Add(&closing{owner: "192.0.2.1"})
	other, last := b.Add(&closing{owner: "192.0.2.2"}), b.Add(&closing{owner: "192.0.2.3"})
	begin := func(of *front.Seat, want ...bool) {
		t.Helper()
		for i, want := range want {
			if got := of.Begin(); got != want {
				t.Errorf("request %d: %t", i, got)
			}
		}
	}
	begin(first, true, true, true, true, false)
	begin(second, true, false)
	begin(other, true, true, true, false)
	begin(last, true, false)
	first.End()
	begin(second, true, false)
	begin(last, false)
	second.End()
	second.End()
	begin(last, true, false)
	for _, of := range []*front.Seat{first, first, first, other, other, other, last, last} {
		of.End()
	}
	begin(first, true, true, true, true, false)
	begin(other, true, true, true, false)
	status := make(map[string]any)
	if b.TellRequests(status); status["requests_refused"] != int64(9) || status["connections"] != 4 {
		t.Errorf("%v", status)
	}
}

// TestRequestsContention: whatever begins and ends at the same time, nothing stays counted.
func TestRequestsContention(t *testing.T) {
	b := front.NewBounded(4, 3, nil)
	seats := []*front.Seat{b.Add(&closing{owner: "192.0.2.1"}), b.Add(&closing{owner: "192.0.2.1"}), b.Add(&closing{owner: "192.0.2.2"})}
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			for range 5_000 {
				if s := seats[i%len(seats)]; s.Begin() {
					s.End()
				}
			}
		})
	}
	all.Wait()
	for i := range 5 {
		if got := seats[0].Begin(); got != (i < 4) {
			t.Errorf("request %d: %t", i, got)
		}
	}
}

// TestNoSeat: what has no place can be used all the same.
func TestNoSeat(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	seat := front.SeatOf(ours)
	if seat != nil || !seat.Use() || !seat.Begin() || !seat.Begin() {
		t.Error("it has one, or cannot be used")
	}
	front.Await(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	seat.End()
	seat.Touch()
	seat.Rest()
	seat.Leave()
}
