package verify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/anishathalye/porcupine"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

// keyedCall is one call for the one key.
type keyedCall struct {
	op    string
	n     int64 // permits; of tick nanoseconds
	lease int   // of take and cancel: which
	other bool  // the key has the other limit in this call
	keep  bool  // the key has whichever limit is in force
}

func (c keyedCall) String() string {
	return fmt.Sprintf("%s %d, lease %d, other %v", c.op, c.n, c.lease, c.other)
}

// keyedAnswer is what its caller saw of it.
type keyedAnswer struct {
	reason           weir.Reason
	limit, remaining int64
	reset            time.Duration
}

func seen(d weir.Decision) keyedAnswer {
	return keyedAnswer{d.Reason, d.Limit, d.Remaining, d.ResetAfter}
}

const mostLeases = 64

const second = int64(time.Second)

// keyedState is a key of which every call comes after the other: the algorithm itself, and a clock.
type keyedState[S comparable] struct {
	s     S
	now   int64
	other bool  // the limit that the state is held to
	reset bool  // to no limit at all yet
	until int64 // the end of an override; 0 if there is none
	marks [mostLeases]algo.Mark
	ended [mostLeases]bool // permits that were taken before the key was reset, which do not come back once more
}

// carrier is an algorithm whose states can be carried from one limit to another.
type carrier[S, A any] interface {
	algo.Algorithm[S]
	Carry(old A, s S, now int64) S
}

// keyedModel is a key under the limit of base, or that of other while it is overridden. If callers may wait, one that does not
// wait may be refused though there are permits.
func keyedModel[S comparable, A carrier[S, A]](base, other A, waits bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return keyedState[S]{reset: true} },
		Step: func(state, input, output any) (bool, any) {
			x, in, out := state.(keyedState[S]), input.(keyedCall), output.(keyedAnswer) //nolint:forcetypeassert // as Init and do made them
			switch in.op {
			case "tick":
				if x.now += in.n; x.until > 0 && x.now >= x.until {
					x.s, x.other, x.until = base.Carry(other, x.s, x.until), false, 0
				}
				return true, x
			case "override":
				if x.reset {
					x.s, x.reset = *new(S), false
				}
				if x.other {
					x.s = other.Carry(other, x.s, x.now)
				} else {
					x.s = other.Carry(base, x.s, x.now)
				}
				x.other, x.until = true, x.now+in.n
				return true, x
			case "restore":
				if x.other {
					x.s, x.other, x.until = base.Carry(other, x.s, x.now), false, 0
				}
				return true, x
			}
			if in.other != x.other && !in.keep && out.reason != weir.ReasonCanceled && in.op != "refund" && in.op != "reset" {
				if x.other = in.other; x.reset {
					x.s = *new(S)
				} else if x.other {
					x.s = other.Carry(base, x.s, x.now)
				} else {
					x.s = base.Carry(other, x.s, x.now)
				}
			}
			a := base
			if x.other {
				a = other
			}
			if out.reason == weir.ReasonTableFull { // only of a key that is not kept
				return a.Fresh(x.s, x.now), x
			}
			switch in.op {
			case "reset":
				x.s, x.reset = a.Refund(x.s, x.now, algo.MaxPermits), true
				for i := range x.ended {
					x.ended[i] = true
				}
			case "refund":
				x.s = a.Refund(x.s, x.now, in.n)
			case "cancel":
				if !x.ended[in.lease] {
					x.s = a.Cancel(x.s, x.now, in.n, x.marks[in.lease])
				}
			case "peek":
				r := a.Peek(x.s, x.now, in.n)
				return r.Allowed == (out.reason == weir.ReasonNone) &&
					out == keyedAnswer{out.reason, a.Limit(), r.Remaining, r.ResetAfter} || waits && out.reason == weir.ReasonLimited, x
			case "take":
				if out.reason == weir.ReasonCanceled {
					return true, x
				}
				if waits && out.reason == weir.ReasonLimited {
					return true, x
				}
				s, r := a.Take(x.s, x.now, in.n)
				if r.Allowed {
					x.s, x.marks[in.lease], x.ended[in.lease], x.reset = s, r.Mark, false, false
				}
				return r.Allowed == (out.reason == weir.ReasonNone) && out == keyedAnswer{out.reason, a.Limit(), r.Remaining, r.ResetAfter}, x
			}
			return true, x
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %+v", input, output) },
	}
}

// keyedClash is how clients use one key at once.
type keyedClash struct {
	name     string
	limit    weir.Limit
	queue    int64
	model    porcupine.Model
	waits    bool       // some wait
	other    weir.Limit // what the function answers for every second call
	override weir.Limit // what it is held to for some time
	tick     int64      // how far the clock moves at a time: not 0 if always by the same
}

// TestKeyedLinearizable has clients use one key at once, by every call there is, while others make the limiter forget it whenever
// it is fresh, and a clock moves; and looks for an order in which one caller alone would have seen the same.
func TestKeyedLinearizable(t *testing.T) {
	bucket := func(permits int64, period time.Duration, burst int64) algo.TokenBucket {
		return must(algo.NewTokenBucket(permits, period, burst))
	}
	three := weir.Per(3, time.Second)
	fixed := must(algo.NewFixedWindow(6, time.Second, 0))
	sliding := must(algo.NewSlidingWindow(6, time.Second, 3, 0))
	minutes := must(algo.NewCalendarWindow(6, algo.Calendar{Unit: algo.CalendarMinute}))
	for _, c := range []keyedClash{
		{
			name: "token bucket", limit: weir.TokenBucket(three, 6),
			model: keyedModel(bucket(3, time.Second, 6), bucket(3, time.Second, 6), false),
		},
		{
			name: "fixed window", limit: weir.FixedWindow(weir.PerSecond(6)),
			model: keyedModel(fixed, fixed, false),
		},
		{
			name: "sliding window", limit: weir.SlidingWindow(weir.PerSecond(6), 3),
			model: keyedModel(sliding, sliding, false),
		},
		{
			name: "token bucket with waiters", limit: weir.TokenBucket(weir.PerSecond(1), 6), queue: 100,
			model: keyedModel(bucket(1, time.Second, 6), bucket(1, time.Second, 6), true), waits: true, tick: second,
		},
		{
			name: "fixed window with waiters", limit: weir.FixedWindow(weir.PerSecond(6)), queue: 100,
			model: keyedModel(fixed, fixed, true), waits: true, tick: second,
		},
		{
			name: "calendar window with waiters and overrides", queue: 100,
			limit: weir.CalendarWindow(6, algo.Calendar{Unit: algo.CalendarMinute}),
			model: keyedModel(minutes, must(algo.NewCalendarWindow(9, algo.Calendar{Unit: algo.CalendarMinute})), true), waits: true,
			tick:     int64(time.Minute),
			override: weir.CalendarWindow(9, algo.Calendar{Unit: algo.CalendarMinute}),
		},
		{
			name: "token bucket with another limit in every second call", limit: weir.TokenBucket(three, 6),
			model: keyedModel(bucket(3, time.Second, 6), bucket(7, time.Second, 4), false),
			other: weir.TokenBucket(weir.PerSecond(7), 4),
		},
		{
			name: "sliding window with another limit in every second call", limit: weir.SlidingWindow(weir.PerSecond(6), 3),
			model: keyedModel(sliding, must(algo.NewSlidingWindow(4, time.Second, 3, 0)), false),
			other: weir.SlidingWindow(weir.PerSecond(4), 3),
		},
		{
			name: "token bucket with overrides", limit: weir.TokenBucket(weir.PerSecond(1), 6),
			model: keyedModel(bucket(1, time.Second, 6), bucket(3, time.Second, 4), false), tick: second,
			override: weir.TokenBucket(three, 4),
		},
		{
			name: "token bucket with waiters and overrides", limit: weir.TokenBucket(weir.PerSecond(1), 6), queue: 100,
			model: keyedModel(bucket(1, time.Second, 6), bucket(1, time.Second, 9), true), tick: second, waits: true,
			override: weir.TokenBucket(weir.PerSecond(1), 9),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			rounds := 400
			if race.Enabled || testing.Short() {
				rounds = 40
			}
			var forgotten, canceled, waited int64
			undecided := 0
			few := func() bool {
				return c.other == c.override && forgotten < int64(rounds)/10 || c.waits && (waited == 0 || canceled == 0)
			}
			for round := 0; round < rounds+undecided || few() && round < 20*rounds; round++ { // it depends on the machine how much meets
				p := c.play(uint64(round))
				switch result := porcupine.CheckOperationsTimeout(c.model, p.history, 3*time.Second); result {
				case porcupine.Ok:
				case porcupine.Unknown: // too many orders are possible to try them all
					if undecided++; undecided > mostUndecided {
						t.Fatalf("%d histories could not be decided", undecided)
					}
				default:
					t.Fatalf("round %d: %v: %d operations:\n%v", round, result, len(p.history), p.history)
				}
				forgotten += p.forgotten.Load()
				canceled += p.canceled.Load()
				waited += p.waited.Load()
			}
			t.Logf("others found room for want of the key %d times; %d calls waited, %d in vain; %d histories could not be decided",
				forgotten, waited, canceled, undecided)
			if few() {
				t.Error("too little happened")
			}
		})
	}
}

// keyedPlay is one round.
type keyedPlay struct {
	keyedClash

	keyed                       *weir.Keyed[string]
	history                     []porcupine.Operation
	mu                          sync.Mutex
	start                       time.Time
	forgotten, canceled, waited atomic.Int64
	names                       [2]string // the same key twice, with either limit
}

func (c keyedClash) play(round uint64) *keyedPlay {
	const clients = 3
	clock := manualclock.New(0)
	p := &keyedPlay{keyedClash: c, start: time.Now()}
	p.names = [2]string{string([]byte("the key")), string([]byte("the key"))}
	o := weir.KeyedOptions{QueueLimit: c.queue, MaxKeys: 1, Clock: clock}
	if c.other != c.override {
		o.MaxKeys = 2 // what is full under one limit need not be under the other
		p.keyed = must(weir.NewKeyedFunc(c.limit, o, func(key string) weir.Limit {
			if unsafe.StringData(key) == unsafe.StringData(p.names[1]) {
				return c.other
			}
			return weir.Limit{}
		}))
	} else {
		p.keyed = must(weir.NewKeyed[string](c.limit, o))
	}
	defer func() { _ = p.keyed.Close() }()
	var (
		waiting       atomic.Int64
		done, helpers sync.WaitGroup
		stop          atomic.Bool
	)
	waiting.Store(clients + 2)
	begin := func() {
		for waiting.Add(-1); waiting.Load() > 0; {
			runtime.Gosched()
		}
	}
	helpers.Go(func() { // needs the place of the key whenever it can be had
		begin()
		for !stop.Load() {
			if p.keyed.Allow("another") {
				p.forgotten.Add(1)
				p.keyed.Reset("another")
			}
			runtime.Gosched()
		}
	})
	ticks := 12
	if c.waits {
		ticks = 30
	}
	for client := range clients {
		rng := rand.New(rand.NewPCG(round, uint64(client)))
		done.Go(func() {
			begin()
			p.client(client, rng)
		})
	}
	helpers.Go(func() {
		rng := rand.New(rand.NewPCG(round, clients))
		begin()
		for range ticks {
			d := c.tick
			if d == 0 {
				d = rng.Int64N(int64(time.Second))
			}
			if c.override != (weir.Limit{}) {
				length := second * (1 + rng.Int64N(3))
				if c.waits { // a call that is served at the very end of an override may be held to either limit
					length = int64(time.Hour)
				}
				switch rng.IntN(5) {
				case 0, 3:
					p.do(clients, keyedCall{op: "restore"}, func() keyedAnswer { keyset.Of(p.keyed).Restore(p.names[0]); return keyedAnswer{} })
				case 1, 2:
					p.do(clients, keyedCall{op: "override", n: length}, func() keyedAnswer {
						if err := keyset.Of(p.keyed).Override(p.names[0], c.override, time.Duration(length)); err != nil {
							panic(err)
						}
						return keyedAnswer{}
					})
				}
			}
			p.do(clients, keyedCall{op: "tick", n: d}, func() keyedAnswer { clock.Advance(time.Duration(d)); return keyedAnswer{} })
			for range rng.IntN(20 * ticks / 12) {
				runtime.Gosched()
			}
		}
	})
	done.Wait()
	stop.Store(true)
	helpers.Wait()
	return p
}

func (p *keyedPlay) do(client int, in keyedCall, f func() keyedAnswer) {
	began := time.Since(p.start).Nanoseconds()
	out := f()
	ended := time.Since(p.start).Nanoseconds()
	p.mu.Lock()
	p.history = append(p.history, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: began, Return: ended})
	p.mu.Unlock()
}

func (p *keyedPlay) client(client int, rng *rand.Rand) {
	k := p.keyed
	for step := range 14 {
		in := keyedCall{n: rng.Int64N(4) + 1, lease: client*20 + step, other: p.other != (weir.Limit{}) && rng.IntN(2) == 0}
		in.keep = p.override != (weir.Limit{})
		name := p.names[0]
		if in.other {
			name = p.names[1]
		}
		var lease weir.Lease
		switch rng.IntN(8) {
		case 0:
			in.op = "peek"
			p.do(client, in, func() keyedAnswer { return seen(k.Peek(name, in.n)) })
		case 1:
			in.op = "refund"
			p.do(client, in, func() keyedAnswer { k.Refund(name, in.n); return keyedAnswer{} })
		case 2:
			in.op = "reset"
			p.do(client, in, func() keyedAnswer { k.Reset(name); return keyedAnswer{} })
		case 3:
			in.op = "take"
			p.do(client, in, func() keyedAnswer { return seen(k.Take(name, in.n)) })
		case 4:
			in.op, in.n = "take", 1
			p.do(client, in, func() keyedAnswer { return seen(k.TryAcquire(name, 1).Decision()) })
		case 5:
			if p.waits {
				in.op = "take"
				p.do(client, in, func() keyedAnswer { lease = p.wait(name, in.n, rng); return seen(lease.Decision()) })
			}
		default:
			in.op = "take"
			p.do(client, in, func() keyedAnswer { lease = k.TryReserve(name, in.n); return seen(lease.Decision()) })
		}
		if lease.Allowed() && p.other == p.override && rng.IntN(3) > 0 {
			if rng.IntN(3) > 0 {
				runtime.Gosched()
			}
			kept := rng.Int64N(in.n + 1)
			in.op, in.n = "cancel", in.n-kept
			p.do(client, in, func() keyedAnswer { lease.Commit(kept); lease.Cancel(); return keyedAnswer{} })
		}
	}
}

// wait waits for permits, until they come or the context is canceled.
func (p *keyedPlay) wait(name string, n int64, rng *rand.Rand) weir.Lease {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	patience := rng.IntN(200)
	var impatient sync.WaitGroup
	impatient.Go(func() {
		for range patience {
			runtime.Gosched()
		}
		cancel()
	})
	defer impatient.Wait()
	l, _ := p.keyed.Reserve(ctx, name, n)
	p.waited.Add(1)
	if l.Decision().Reason == weir.ReasonCanceled {
		p.canceled.Add(1)
	}
	return l
}
