package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// damages are what can become of a record.
func damages(r *rand.Rand) map[string]func(rec []byte) []byte {
	number := func(v float64) func(rec []byte) []byte {
		return func(rec []byte) []byte {
			at := 1 + r.IntN(len(rec)-8)
			if r.IntN(4) > 0 { // a number of it
				at = len(rec) - 8*(1+r.IntN(len(rec)/8))
			}
			binary.LittleEndian.PutUint64(rec[at:], math.Float64bits(v))
			return rec
		}
	}
	return map[string]func(rec []byte) []byte{
		"cut off":  func(rec []byte) []byte { return rec[:r.IntN(len(rec))] },
		"longer":   func(rec []byte) []byte { return append(rec, make([]byte, 1+r.IntN(80))...) },
		"a byte":   func(rec []byte) []byte { rec[r.IntN(len(rec))] ^= byte(1 + r.IntN(255)); return rec },
		"zeros":    func(rec []byte) []byte { return make([]byte, len(rec)) },
		"none":     number(math.NaN()),
		"infinite": number(math.Inf(1)),
		"below":    number(math.Inf(-1)),
		"huge":     number(1e300),
		"negative": number(-1),
		"half":     number(0.5),
		"noise": func(rec []byte) []byte {
			for i := range rec {
				rec[i] = byte(r.Uint32())
			}
			return rec
		},
	}
}

// TestDamagedRecords damages records of every algorithm and makes all calls for them. Each is decided, or fails with
// [store.ErrUnreadable]. None takes long, and a reset repairs the key.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := server.open(Options{})
	ctx := context.Background()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	unreadable := 0
	check := func(what string, err error) {
		t.Helper()
		switch {
		case errors.Is(err, store.ErrUnreadable):
			unreadable++
		case err != nil && !errors.Is(err, store.ErrNotReserved):
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, f := range families() {
		for name, damage := range damages(r) {
			for range 8 {
				l := f.limits[r.IntN(len(f.limits))]
				c := store.Charge{Policy: f.name, Key: "bad", Limit: l, N: 1}
				charges, d := []store.Charge{c}, make([]weir.Decision, 2)
				both := []store.Charge{{Policy: "other", Key: c.Key, Limit: yearly(10), N: 1}, c} // one slot
				hold, err := store.Reserve(ctx, s, charges, d[:1], time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				if r.IntN(2) == 0 {
					check("Cancel", store.Cancel(ctx, s, hold))
					if l.Algorithm() != weir.AlgorithmConcurrency {
						check("Take", store.Take(ctx, s, charges, d[:1]))
					}
				}
				key := s.key(&c, kindRecord)
				if rec := server.ask("GET", key); rec != "" {
					server.ask("SET", key, string(damage([]byte(rec))))
				}
				what := fmt.Sprintf("%s %v, %s", f.name, l, name)
				began := time.Now()
				_, err = store.Inspect(ctx, s, c)
				check(what+": Inspect", err)
				check(what+": Peek", store.Peek(ctx, s, charges, d[:1]))
				if l.Algorithm() != weir.AlgorithmConcurrency {
					check(what+": Take", store.Take(ctx, s, charges, d[:1]))
					check(what+": Take of two", store.Take(ctx, s, both, d))
					loan, _, failed := store.Lend(ctx, s, c, 1)
					check(what+": Lend", failed)
					if failed == nil && loan.Lent() > 0 {
						check(what+": Return", store.Return(ctx, s, loan, 1))
					}
					check(what+": Debit", store.Debit(ctx, s, charges, d[:1]))
				}
				second, err := store.Reserve(ctx, s, charges, d[:1], time.Minute)
				check(what+": Reserve", err)
				if err == nil && second.ID != "" {
					check(what+": Commit", store.Commit(ctx, s, second, []int64{1}))
				}
				check(what+": Cancel", store.Cancel(ctx, s, hold))
				check(what+": Refund", store.Refund(ctx, s, charges))
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("%s: took %v", what, took)
				}
				for _, policy := range []string{c.Policy, "other"} {
					if err := store.Reset(ctx, s, policy, c.Key); err != nil {
						t.Fatal(what, "Reset", err)
					}
				}
				if err := store.Peek(ctx, s, charges, d[:1]); err != nil || !d[0].Allowed {
					t.Errorf("%s: after a reset: %+v, %v", what, d[0], err)
				}
			}
		}
	}
	t.Logf("%d calls found their record unreadable", unreadable)
	if unreadable == 0 {
		t.Error("no call found its record unreadable")
	}
}

// TestUnreadableGrantsNothing has records that are surely none: every call says so, and grants nothing.
func TestUnreadableGrantsNothing(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := server.open(Options{})
	for _, f := range families() {
		l := f.limits[0]
		c := store.Charge{Policy: f.name, Key: "bad", Limit: l, N: 1}
		key := s.key(&c, kindRecord)
		other := c
		if other.Limit = weir.TokenBucket(weir.PerHour(5), 0); l.Algorithm() == weir.AlgorithmTokenBucket {
			other.Limit = weir.FixedWindow(weir.PerHour(5))
		}
		if err := store.Take(t.Context(), s, []store.Charge{other}, make([]weir.Decision, 1)); err != nil {
			t.Fatal(err)
		}
		for name, command := range map[string][]string{
			"a record of another algorithm": {"COPY", s.key(&other, kindRecord), key},

			"a list":     {"LPUSH", key, "x"},
			"a hash":     {"HSET", key, "x", "y"},
			"a text":     {"SET", key, "hello, this is the record of another program, which is as long as one of ours"},
			"a byte":     {"SET", key, "T"},
			"nothing":    {"SET", key, ""},
			"its header": {"SET", key, func() string { w, _ := lawOf(l); return w.head[1:] }()},
			"no count":   {"SET", key, reservedRecord(math.NaN())},
			"below none": {"SET", key, reservedRecord(-1)},
			"infinite":   {"SET", key, reservedRecord(math.Inf(1))},
		} {
			server.ask("DEL", key)
			server.ask(command...)
			calls := map[string]func(charges []store.Charge, d []weir.Decision) error{
				"Peek": func(charges []store.Charge, d []weir.Decision) error { return store.Peek(t.Context(), s, charges, d) },
				"Reserve": func(charges []store.Charge, d []weir.Decision) error {
					_, err := store.Reserve(t.Context(), s, charges, d, time.Minute)
					return err
				},
			}
			if l.Algorithm() != weir.AlgorithmConcurrency {
				calls["Take"] = func(charges []store.Charge, d []weir.Decision) error { return store.Take(t.Context(), s, charges, d) }
				calls["Debit"] = func(charges []store.Charge, d []weir.Decision) error { return store.Debit(t.Context(), s, charges, d) }
			}
			for call, f := range calls {
				d := make([]weir.Decision, 1)
				err := f([]store.Charge{c}, d)
				if !errors.Is(err, store.ErrUnreadable) || !errors.Is(err, store.ErrUnavailable) || d[0].Allowed {
					t.Errorf("%s of %v where there is %s: %+v, %v", call, l, name, d[0], err)
				}
				if err != nil && !strings.Contains(err.Error(), c.Policy) {
					t.Errorf("the error does not name the policy: %v", err)
				}
			}
		}
	}
}

// reservedRecord is a record of a limit of 5 a second in fixed windows, with so many reservations.
func reservedRecord(count float64) string {
	rec := []byte("F")
	number := func(v float64) { rec = binary.LittleEndian.AppendUint64(rec, math.Float64bits(v)) }
	number(5)
	number(1e6)
	rec = append(rec, 1)
	for _, v := range []float64{1e12, count, 1, 1e12, 1e12, 1e12, 1, 0, 2e12} {
		number(v)
	}
	return string(rec)
}

// TestUnreadableIsOneKeys asks a fleet for 50 keys whose record cannot be read, all the time: others are decided by the store,
// whatever their consistency, and their limits hold.
func TestUnreadableIsOneKeys(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := server.open(Options{})
	fleet, err := store.NewFleet(s, store.FleetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const most = 300
	charge := func(consistency store.Consistency, key string) store.Charge {
		return store.Charge{
			Policy: consistency.String(), Key: key, Limit: weir.FixedWindow(weir.Per(most, 3652*24*time.Hour)), N: 1,
			Consistency: consistency,
		}
	}
	modes := []store.Consistency{store.ConsistencyCoherent, store.ConsistencyLeased, store.ConsistencyOptimistic}
	for _, mode := range modes {
		for i := range 50 {
			c := charge(mode, fmt.Sprint("bad", i))
			server.ask("SET", s.key(&c, kindRecord), "noise")
		}
	}
	granted := make([]int, len(modes))
	var wait sync.WaitGroup
	for m, mode := range modes {
		var lock sync.Mutex
		for caller := range 4 {
			wait.Go(func() {
				d := make([]weir.Decision, 1)
				for i := range 200 {
					bad := []store.Charge{charge(mode, fmt.Sprint("bad", (50*caller+i)%50))}
					bad[0].Fail = store.FailClosed
					if err := store.Take(t.Context(), fleet, bad, d); err != nil || mode != store.ConsistencyOptimistic && d[0].Allowed {
						t.Errorf("%v: a key that cannot be read: %+v, %v", mode, d[0], err)
						return
					}
					if err := store.Take(t.Context(), fleet, []store.Charge{charge(mode, "good")}, d); err != nil ||
						d[0].Reason == weir.ReasonUnavailable {
						t.Errorf("%v: another key: %+v, %v", mode, d[0], err)
						return
					}
					if d[0].Allowed {
						lock.Lock()
						granted[m]++
						lock.Unlock()
					}
				}
			})
		}
	}
	wait.Wait()
	stats := fleet.Stats()
	if stats.Breaker.State != store.BreakerClosed || stats.Breaker.Opened != 0 || stats.Breaker.Failed == 0 {
		t.Errorf("the breaker: %+v", stats.Breaker)
	}
	_ = fleet.Close() // it cannot tell all
	if want := []int{most, most, most}; !slices.Equal(granted, want) {
		t.Errorf("granted %v, want %v", granted, want)
	}
}

// TestSegmentThatIsNoneIsUnreadable: a sliding window whose last segment has a number that is not whole is no error of the script.
func TestSegmentThatIsNoneIsUnreadable(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := server.open(Options{})
	ctx := context.Background()
	const segments = 4
	charges, d := []store.Charge{{
		Policy: "sliding", Key: "bad", Limit: weir.SlidingWindow(weir.Rate{Permits: 1000, Period: time.Hour}, segments), N: 1,
	}}, make([]weir.Decision, 1)
	if err := store.Take(ctx, s, charges, d); err != nil {
		t.Fatal(err)
	}
	key := s.key(&charges[0], kindRecord)
	rec := []byte(server.ask("GET", key))
	last, at := float64(time.Now().UnixMicro()/(time.Hour.Microseconds()/segments)), -1
	for i := range len(rec) - 7 {
		if v := math.Float64frombits(binary.LittleEndian.Uint64(rec[i:])); v == last || v == last-1 {
			at = i
		}
	}
	if at < 0 {
		t.Fatalf("no segment %v in %q", last, rec)
	}
	binary.LittleEndian.PutUint64(rec[at:], math.Float64bits(last-1.5))
	server.ask("SET", key, string(rec))
	if err := store.Take(ctx, s, charges, d); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("%+v, %v", d, err)
	}
}

// evicted is a concurrency limit on a server that evicts keys.
type evicted struct {
	t      *testing.T
	server *server
	s      *Store
	c      store.Charge
}

func newEvicted(t *testing.T, server *server, key string) *evicted {
	e := &evicted{t: t, server: server, s: server.open(Options{})}
	e.s.virtual.Store(time.Now().UnixMicro())
	e.c = store.Charge{Policy: "p", Key: key, Limit: weir.AtOnce(10), N: 1}
	return e
}

func (e *evicted) reserve(times int) []store.Hold {
	e.t.Helper()
	holds := make([]store.Hold, times)
	for i := range holds {
		d := make([]weir.Decision, 1)
		h, err := store.Reserve(e.t.Context(), e.s, []store.Charge{e.c}, d, time.Minute)
		if err != nil || h.ID == "" {
			e.t.Fatal(d, err)
		}
		holds[i] = h
	}
	return holds
}

func (e *evicted) cancel(h store.Hold, want error) {
	e.t.Helper()
	if err := store.Cancel(e.t.Context(), e.s, h); !errors.Is(err, want) {
		e.t.Error(err)
	}
}

func (e *evicted) reserved(want int64) {
	e.t.Helper()
	state, err := store.Inspect(e.t.Context(), e.s, e.c)
	if err != nil || state.Reserved != want || state.Reservations != int(want) || state.Decision.Remaining != 10-want {
		e.t.Errorf("%+v, %v, want %d reserved", state, err, want)
	}
}

func (e *evicted) evict(kinds ...byte) {
	for _, kind := range kinds {
		e.server.ask("DEL", e.s.key(&e.c, kind))
	}
}

// TestReservationsLost has a server that evicts keys drop the reservations of a concurrency limit, when they expire or both, but
// not its record: the permits of those that are lost come back when one is settled, permits are refunded or the first expires,
// also while there are others all the time. Of which it is only lost when they expire are not lost.
func TestReservationsLost(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for name, kinds := range map[string][]byte{
		"reservations": {kindReservations},
		"both":         {kindReservations, kindDue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEvicted(t, server, name)
			holds := e.reserve(8)
			e.evict(kinds...)
			e.s.virtual.Add(40e6)
			settled := e.reserve(1)[0]
			e.reserved(9)
			e.cancel(holds[0], store.ErrNotReserved)
			e.reserved(1)
			e.reserve(1)
			e.evict(kinds...)
			e.s.virtual.Add(40e6)
			last := e.reserve(1)[0] // the first have expired, the two have not
			e.s.virtual.Add(40e6)
			e.reserved(1)
			e.cancel(settled, store.ErrNotReserved)
			e.reserved(1)

			e.reserve(4)
			e.evict(kinds...)
			kept := e.reserve(2)
			if err := store.Refund(t.Context(), e.s, []store.Charge{e.c}); err != nil {
				t.Error(err)
			}
			e.cancel(last, store.ErrNotReserved)
			state, err := store.Inspect(t.Context(), e.s, e.c)
			if err != nil || state.Reserved != 1 || state.Reservations != 2 || state.Decision.Remaining != 9 {
				t.Errorf("%+v, %v, want two reservations, of which the permit of one was refunded", state, err)
			}
			e.cancel(kept[0], nil)
			e.cancel(kept[1], nil)
			e.reserved(0)
		})
	}
	t.Run("due", func(t *testing.T) {
		t.Parallel()
		e := newEvicted(t, server, "due")
		holds := e.reserve(8)
		e.evict(kindDue)
		e.s.virtual.Add(40e6)
		second := e.reserve(1)[0]
		e.reserved(9)
		e.cancel(holds[0], nil)
		e.reserved(8)
		e.evict(kindDue)
		e.cancel(second, nil)
		e.reserved(7)
		e.reserve(1)
		e.evict(kindDue)
		e.s.virtual.Add(40e6)
		e.reserved(1)
		e.evict(kindDue)
		e.s.virtual.Add(40e6)
		e.reserved(0)
	})
}
