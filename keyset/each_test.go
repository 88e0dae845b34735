package keyset_test

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/keyset"
)

// asked are two limiters of the same limit with the same plans: one is asked in batches, the other one call by call.
type asked struct {
	limiters [2]*weir.Keyed[string]
	plans    [2][]*keyset.Plan
}

func newAsked(t *testing.T, base weir.Limit, o weir.KeyedOptions, limits ...weir.Limit) (a asked) {
	for i := range a.limiters {
		a.limiters[i] = keyedOf(t, base, o)
		for _, l := range limits {
			a.plans[i] = append(a.plans[i], planOf(t, a.limiters[i], l))
		}
	}
	return a
}

// TestEachRefusesAloneWhatCannotBeUsed: the others of a batch are not harmed.
func TestEachRefusesAloneWhatCannotBeUsed(t *testing.T) {
	one, slots := ownPlan(t, weir.TokenBucket(every(time.Hour), 100)), ownPlan(t, weir.AtOnce(1))
	var s keyset.Batch
	for _, none := range []*keyset.Plan{nil, {}} {
		d := weir.Decision{Allowed: true}
		if s.Add(none, []byte("ann"), 1, &d); d.Allowed || d.Reason != weir.ReasonInvalid {
			t.Errorf("without a plan: %+v", d)
		}
	}
	decisions := make([]weir.Decision, keyset.MostCharges+1)
	for i := range decisions {
		switch i {
		case 1:
			s.Add(slots, []byte("ann"), 1, &decisions[i])
		case 2:
			s.Add(one, []byte("ann"), -1, &decisions[i])
		default:
			s.Add(one, []byte("ann"), 1, &decisions[i])
		}
	}
	s.Take()
	for i, d := range decisions {
		if wrong := i == 1 || i == 2 || i == keyset.MostCharges; wrong == d.Allowed || wrong && d.Reason != weir.ReasonInvalid {
			t.Errorf("charge %d: %+v", i, d)
		}
	}
	s.Add(one, []byte("ann"), 1, &decisions[0])
	if s.Take(); decisions[0].Remaining != 100-keyset.MostCharges+2-1 {
		t.Errorf("%+v", decisions[0])
	}
	key := []byte("ann")
	if n := testing.AllocsPerRun(100, func() { s.Add(one, key, 1, &decisions[0]); s.Take() }); n > 0 && !race.Enabled {
		t.Errorf("%v allocations", n)
	}
}

// TestEachSeesNewKeysOnce: the clock may be read again for a key that is new. The next call for it is not decided at an earlier
// time, at which less would remain. The process clock runs meanwhile.
func TestEachSeesNewKeysOnce(t *testing.T) {
	const burst = 3
	plan := ownPlan(t, weir.TokenBucket(every(time.Hour), burst))
	var s keyset.Batch
	var got [keyset.MostCharges]weir.Decision
	for round := range 100 {
		for i := range got {
			s.Add(plan, fmt.Appendf(nil, "%d.%d", round, i/burst), 1, &got[i])
		}
		s.Take()
		for i, d := range got {
			if want := int64(burst - 1 - i%burst); !d.Allowed || d.Remaining != want {
				t.Fatalf("call %d of round %d: %+v, want %d remaining", i, round, d, want)
			}
		}
	}
}

// TestEachContention: batches of many callers take no more of any key than it has, while keys come, go, wait and are overridden.
func TestEachContention(t *testing.T) {
	const callers, keys, permits = 16, 50, 3000
	k := keyedOf(t, weir.TokenBucket(every(time.Hour), 1), weir.KeyedOptions{MaxKeys: 1 << 16})
	p := planOf(t, k, weir.TokenBucket(every(time.Hour), permits))
	var taken [keys]atomic.Int64
	for key := range taken { // or an override that comes first leaves it what the limiter has for a new key
		p.TakeBytes([]byte(strconv.Itoa(-1-key)), 1)
		taken[key].Add(1)
	}
	var group sync.WaitGroup
	for g := range callers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(g)))
			var s keyset.Batch
			var decisions [keyset.MostCharges]weir.Decision
			var of [keyset.MostCharges]int
			for round := range 300 {
				for i := range of {
					key := strconv.Itoa(g*1000 + round*keyset.MostCharges + i)
					if of[i] = -1; random.IntN(4) > 0 {
						of[i] = random.IntN(keys)
						key = strconv.Itoa(-1 - of[i])
					}
					s.Add(p, []byte(key), 1, &decisions[i])
				}
				s.Take()
				for i, key := range of {
					if key >= 0 && decisions[i].Allowed {
						taken[key].Add(1)
					}
				}
				if random.IntN(16) == 0 {
					key := strconv.Itoa(-1 - random.IntN(keys))
					_ = keyset.Of(k).Override(key, p.Limit(), time.Millisecond)
				}
			}
		})
	}
	group.Wait()
	for key := range taken {
		left := p.PeekBytes([]byte(strconv.Itoa(-1-key)), 0).Remaining
		if n := taken[key].Load(); n > permits || n+left != permits {
			t.Errorf("key %d: %d taken, %d left of %d", key, n, left, permits)
		}
	}
}

// bare is the least that keeps a state for each key: one array of pairs of a hash and a count, half of it empty.
type bare struct {
	seed  maphash.Seed
	slots []struct{ hash, count atomic.Uint64 }
}

// timed is count with one reading of the clock when the slot was found.
func (t *bare) timed(key []byte) {
	n := t.find(key)
	now := uint64(time.Since(began))
	for {
		if old := n.Load(); n.CompareAndSwap(old, max(old+1, now)) {
			return
		}
	}
}

func (t *bare) count(key []byte) {
	n := t.find(key)
	for {
		if old := n.Load(); n.CompareAndSwap(old, old+1) {
			return
		}
	}
}

func (t *bare) find(key []byte) *atomic.Uint64 {
	h := maphash.Bytes(t.seed, key) | 1
	at, _ := bits.Mul64(h, uint64(len(t.slots)))
	for {
		switch slot := &t.slots[at]; slot.hash.Load() {
		case h:
			return &slot.count
		case 0:
			if slot.hash.CompareAndSwap(0, h) {
				continue
			}
		}
		if at++; at == uint64(len(t.slots)) {
			at = 0
		}
	}
}

// BenchmarkKeys is what one of a thousand, a million and ten million keys costs: in batches of 64 beside a bare table without a
// clock, and in calls one by one beside one that reads a clock for each.
func BenchmarkKeys(b *testing.B) {
	const batch = 64
	for _, keys := range []int{1000, 1_000_000, 10_000_000} {
		// The keys that are asked for lie in their order, as in what a client has sent.
		random := rand.New(rand.NewPCG(1, 1))
		name := func(b []byte, i int) []byte { return fmt.Appendf(b, "user:%011d", i) }
		const asks = 1 << 21
		text := make([]byte, 0, 16*asks)
		for range asks {
			text = name(text, random.IntN(keys))
		}
		of := func(i int) []byte { return text[16*i : 16*i+16 : 16*i+16] }
		p := planOf(b, keyedOf(b, weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{MaxKeys: keys}), weir.TokenBucket(weir.PerSecond(1000), 1e6))
		plain, err := weir.NewKeyed[string](p.Limit(), weir.KeyedOptions{MaxKeys: keys})
		if err != nil {
			b.Fatal(err)
		}
		table := &bare{maphash.MakeSeed(), make([]struct{ hash, count atomic.Uint64 }, 2*keys)}
		for i := range keys {
			key := name(nil, i)
			p.TakeBytes(key, 1)
			keyset.AllowBytes(plain, key)
			table.count(key)
		}
		var s keyset.Step
		var together keyset.Batch
		var decisions [batch]weir.Decision
		least := map[string]float64{}
		b.Run(strconv.Itoa(keys), func(b *testing.B) {
			at := 0
			for b.Loop() {
				for name, call := range map[string]func(){
					"bare": func() {
						for i := range batch {
							table.count(of(at + i))
						}
					},
					"clock": func() {
						for i := range batch {
							table.timed(of(at + i))
						}
					},
					"allow": func() {
						for i := range batch {
							keyset.AllowBytes(plain, of(at+i))
						}
					},
					"each": func() {
						for i := range batch {
							together.Add(p, of(at+i), 1, &decisions[i])
						}
						together.Take()
					},
					"all": func() {
						for i := range batch {
							s.Add(p, of(at+i), 1, &decisions[i])
						}
						s.Take()
					},
					"single": func() {
						for i := range batch {
							decisions[i] = p.TakeBytes(of(at+i), 1)
						}
					},
				} {
					const rounds = 512
					start := time.Now()
					for range rounds {
						call()
						if at += batch; at == asks {
							at = 0
						}
					}
					ns := float64(time.Since(start).Nanoseconds()) / rounds / batch
					if old, ok := least[name]; !ok || ns < old {
						least[name] = ns
					}
				}
			}
			for name, ns := range least {
				b.ReportMetric(ns, "ns/"+name)
			}
			b.ReportMetric(least["each"]/least["bare"], "each/bare")
			b.ReportMetric(least["allow"]/least["clock"], "allow/clock")
		})
	}
}

// BenchmarkFirstSight is what a key costs that comes for the first time, until a limiter without keys has a million, and how long
// the slowest call takes: then, and while other keys take the place of those that are fresh.
func BenchmarkFirstSight(b *testing.B) {
	const keys = 1_000_000
	text := make([]byte, 0, 32*keys)
	for i := range 2 * keys {
		text = fmt.Appendf(text, "user:%011d", i)
	}
	runtime.GC()
	cost, came, gone := math.Inf(1), math.Inf(1), math.Inf(1)
	for b.Loop() {
		runtime.GC()
		k, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(100_000_000), 1), weir.KeyedOptions{MaxKeys: keys})
		if err != nil {
			b.Fatal(err)
		}
		ask := func(first int) (longest time.Duration) {
			before := time.Since(began)
			for i := first; i < first+keys; i++ {
				keyset.AllowBytes(k, text[16*i:16*i+16:16*i+16])
				now := time.Since(began)
				longest, before = max(longest, now-before), now
			}
			return longest
		}
		start := time.Now()
		longest := ask(0)
		cost = min(cost, float64(time.Since(start).Nanoseconds())/keys)
		came, gone = min(came, float64(longest)), min(gone, float64(ask(keys)))
		if s := k.Stats(); s.Allowed != 2*keys {
			b.Fatalf("%+v", s)
		}
	}
	b.ReportMetric(cost, "ns/key")
	b.ReportMetric(came, "ns/came")
	b.ReportMetric(gone, "ns/gone")
}

var began = time.Now()
