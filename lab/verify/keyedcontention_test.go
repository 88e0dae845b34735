package verify_test

import (
	"fmt"
	"math"
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

// keyedQuotas are the ways to count, as limits of n permits a second that can be asked 4 times as often as that and let a stall
// of the machine of a quarter of a second pass, and what they may allow in a time.
func keyedQuotas(perSecond int64) []keyedQuota {
	quarter := perSecond / 4
	window := weir.Per(quarter, 250*time.Millisecond)
	windows := func(d time.Duration) float64 { return d.Seconds() * 4 }
	bucket := func(d time.Duration) float64 { return float64(quarter) + float64(perSecond)*d.Seconds() }
	rate := func(d time.Duration) float64 { return float64(perSecond) * d.Seconds() }
	most := func(d time.Duration) float64 { return float64(quarter) * (math.Ceil(windows(d)) + 1) }
	slides := func(d time.Duration) float64 { return float64(quarter) * math.Floor(windows(d)/slide) }
	return []keyedQuota{
		{"token bucket", weir.TokenBucket(weir.PerSecond(perSecond), quarter), bucket, stall, rate},
		{"token bucket at an awkward rate", weir.TokenBucket(weir.PerSecond(perSecond-1), quarter), bucket, stall, func(d time.Duration) float64 {
			return rate(d) - d.Seconds()
		}},
		{"fixed window", weir.FixedWindow(window), most, stall, func(d time.Duration) float64 {
			return float64(quarter) * math.Floor(windows(d))
		}},
		{"sliding window", weir.SlidingWindow(window, 0), most, closely, slides},
		{"sliding counter", weir.SlidingCounter(window), most, closely, func(d time.Duration) float64 {
			return spread * float64(quarter) * max(0, windows(d)-1)
		}},
	}
}

type keyedQuota struct {
	name      string
	limit     weir.Limit
	most      func(time.Duration) float64
	pause     time.Duration
	available func(time.Duration) float64 // again, after a refusal
}

// TestKeyedContentionOnOneKey asks for one key at 1 M/s from 64 goroutines: no more than the limit is allowed, and no less than
// 99.9 % of what it was due while it refused others.
func TestKeyedContentionOnOneKey(t *testing.T) {
	perSecond := int64(1_000_000)
	if race.Enabled { // which is too slow to ask so often
		perSecond = 100_000
	}
	for _, c := range keyedQuotas(perSecond) {
		for _, chosen := range []bool{false, true} {
			if (chosen || race.Enabled && c.limit.Algorithm() != weir.AlgorithmTokenBucket) && c.name != "token bucket" {
				continue
			}
			t.Run(fmt.Sprintf("%s/function %v", c.name, chosen), func(t *testing.T) {
				k := must(weir.NewKeyed[string](c.limit, weir.KeyedOptions{}))
				if chosen {
					k = must(weir.NewKeyedFunc(c.limit, weir.KeyedOptions{}, func(string) weir.Limit { return weir.Limit{} }))
				}
				allow := func() bool { return k.Allow("key") }
				h := hammer(allow)
				h.judge(t, c.most(h.atMost), h.refused.least(float64(perSecond/4), c.pause, c.available))
				if s := k.Stats(); s.Allowed != h.admitted || s.Allowed+s.Refused != h.calls || s.Keys != 1 {
					t.Errorf("%d calls, %d admitted, but %+v", h.calls, h.admitted, s)
				}
			})
		}
	}
}

// TestKeyedContentionOnManyKeys asks for 1000 keys, some of them much more often than others, in several ways at once: no key is
// allowed more than its limit, and the one that is asked for most no less than 97 % of what it was due while it was refused.
func TestKeyedContentionOnManyKeys(t *testing.T) {
	const keys, perSecond = 1000, 1000
	for _, c := range keyedQuotas(perSecond) {
		algorithm := c.limit.Algorithm()
		if algorithm == weir.AlgorithmSlidingCounter || race.Enabled && algorithm != weir.AlgorithmTokenBucket {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			k := must(weir.NewKeyed[int](c.limit, weir.KeyedOptions{}))
			var asked, admitted [keys]atomic.Int64
			var seed atomic.Uint64
			var sources sync.Pool
			sources.New = func() any {
				return rand.NewZipf(rand.New(rand.NewPCG(seed.Add(1), 1)), 1.1, 1, keys-1)
			}
			var lock sync.Mutex
			var refused refusals // of the first key, while none of its permits were reserved
			var reserves, canceled atomic.Int64
			start := time.Now()
			h := hammer(func() bool {
				zipf := sources.Get().(*rand.Zipf)
				key := int(zipf.Uint64())
				sources.Put(zipf)
				n := asked[key].Add(1)
				if n%100 == 0 { // what is canceled was not taken
					if key == 0 {
						reserves.Add(1)
						defer canceled.Add(1)
					}
					k.TryReserve(key, 3).Cancel()
				}
				take := func() bool { return k.Take(key, 1).Allowed }
				var allowed bool
				if over := canceled.Load(); key != 0 || n%16 != 1 {
					allowed = take()
				} else {
					var once refusals
					if allowed = once.note(start, take); reserves.Load() == over {
						lock.Lock()
						refused = append(refused, once...)
						lock.Unlock()
					}
				}
				if allowed {
					admitted[key].Add(1)
				}
				return allowed
			})
			for key := range keys {
				for k.Allow(key) {
					admitted[key].Add(1)
				}
				h.atMost = time.Since(h.began)
				if got, most := admitted[key].Load(), c.most(h.atMost); float64(got) > most {
					t.Errorf("key %d was admitted %d times, more than %.0f", key, got, most)
				}
			}
			got, least := admitted[0].Load(), refused.least(perSecond/4, c.pause, c.available)
			t.Logf("%d calls, %d of them for the first key, which was admitted %d times, at least %.0f", h.calls, asked[0].Load(), got, least)
			if float64(got) < 0.97*least {
				t.Errorf("the first key was admitted %d times of %d, want %.0f", got, asked[0].Load(), least)
			}
		})
	}
}

// TestKeyedContentionOnConcurrency takes and releases permits of a few keys from 64 goroutines, some of which wait: never are
// more than the limit out, and in the end none is.
func TestKeyedContentionOnConcurrency(t *testing.T) {
	const limit, keys = 10, 5
	k := must(weir.NewKeyedConcurrency[int64](limit, weir.KeyedOptions{
		QueueLimit: 1000, MaxKeys: keys,
	}))
	var turn atomic.Int64
	var out, most, served [keys]atomic.Int64
	hammer(func() bool {
		n := turn.Add(1)
		key := n / 7 % keys
		var l weir.Lease
		switch n % 4 {
		case 0:
			l, _ = k.Acquire(t.Context(), key, n%3+1)
		case 1:
			l = k.TryReserve(key, n%3+1)
		default:
			l = k.TryAcquire(key, n%3+1)
		}
		if !l.Allowed() {
			return false
		}
		now := out[key].Add(l.Permits())
		if now > limit {
			t.Errorf("%d permits of key %d are out", now, key)
		}
		most[key].Store(max(most[key].Load(), now))
		if served[key].Add(1)%64 == 0 {
			runtime.Gosched()
		}
		// The first ones keep their permits until others have some, too, whenever the machine runs those.
		for yields := 0; yields < 1000 && most[key].Load() < limit/2; yields++ {
			runtime.Gosched()
		}
		out[key].Add(-l.Permits())
		switch n % 3 {
		case 0:
			l.Release()
		case 1:
			l.Cancel()
		default:
			l.Commit(n % 20)
		}
		l.Release()
		return true
	})
	total := int64(0)
	for key := range int64(keys) {
		if d := k.Peek(key, limit); !d.Allowed || d.Remaining != limit {
			t.Errorf("key %d has not got all permits back: %+v", key, d)
		}
		if most[key].Load() < limit/2 {
			t.Errorf("no more than %d permits of key %d were ever out", most[key].Load(), key)
		}
		total += served[key].Load()
	}
	if s := k.Stats(); s.Waiters != 0 || s.Queued != 0 || s.Allowed != total || s.Keys > keys || s.Forgiven != 0 {
		t.Errorf("%d served, but in the end %+v", total, s)
	}
	for key := range keyset.OfConcurrency(k).All() {
		if key.Remaining != limit {
			t.Errorf("%+v", key)
		}
	}
}

// TestKeyedContentionOnFullTable fills a table with keys that are exhausted for a day, and sends others from 64 goroutines: not
// one gets in, no state is lost, and no more keys than MaxKeys are ever tracked.
func TestKeyedContentionOnFullTable(t *testing.T) {
	const maxKeys, burst = 5000, 3
	for _, whenFull := range []bool{false, true} {
		t.Run(strconv.FormatBool(whenFull), func(t *testing.T) {
			k := must(weir.NewKeyed[int64](weir.TokenBucket(weir.PerDay(1), burst), weir.KeyedOptions{MaxKeys: maxKeys, AdmitWhenFull: whenFull}))
			for key := range int64(maxKeys) {
				if !k.Take(key, burst).Allowed {
					t.Fatalf("key %d is refused", key)
				}
			}
			var turn, untracked, most atomic.Int64
			h := hammer(func() bool {
				n := turn.Add(1)
				if n%8 == 0 {
					if key := n % maxKeys; k.Allow(key) {
						t.Errorf("key %d is admitted again", key)
					}
				}
				if n%1024 == 0 {
					most.Store(max(most.Load(), k.Stats().Keys))
				}
				allowed := k.Allow(maxKeys + n)
				if allowed {
					untracked.Add(1)
				}
				return allowed
			})
			if allowed := h.admitted > 0; allowed != whenFull || h.admitted != k.Stats().Untracked {
				t.Errorf("%d of %d new keys got in: %+v", h.admitted, h.calls, k.Stats())
			}
			t.Logf("%d new keys, at most %d were tracked at a time", h.calls, most.Load())
			if s := k.Stats(); s.Keys != maxKeys || most.Load() > maxKeys {
				t.Errorf("%d keys are tracked, at most %d were, want %d", s.Keys, most.Load(), maxKeys)
			}
			for key := range int64(maxKeys) {
				if d := k.Peek(key, 1); d.Allowed || d.Remaining != 0 {
					t.Fatalf("key %d: %+v", key, d)
				}
			}
		})
	}
}

// TestKeyedContentionOnPlaces has 64 goroutines use ever new keys that are fresh again a moment later, in a table with room for
// few: it takes all of them, never more than it has room for, and forgets none that is exhausted.
func TestKeyedContentionOnPlaces(t *testing.T) {
	const maxKeys, exhausted = 2000, 1000
	short := weir.TokenBucket(weir.Per(1, time.Microsecond), 1)
	k := must(weir.NewKeyedFunc(weir.TokenBucket(weir.PerDay(1), 1), weir.KeyedOptions{MaxKeys: maxKeys}, func(key int64) weir.Limit {
		if key < exhausted {
			return weir.Limit{}
		}
		return short
	}))
	for key := range int64(exhausted) {
		k.Allow(key)
	}
	var turn, most, full atomic.Int64
	h := hammer(func() bool {
		n := turn.Add(1)
		if n%16 == 0 && k.Allow(n%exhausted) {
			t.Errorf("key %d is admitted again", n%exhausted)
		}
		if n%256 == 0 {
			most.Store(max(most.Load(), k.Stats().Keys))
		}
		d := k.Take(exhausted+n, 1)
		if d.Reason == weir.ReasonTableFull {
			full.Add(1)
		}
		return d.Allowed
	})
	t.Logf("%d of %d admitted, %d found the table full, at most %d were tracked at a time", h.admitted, h.calls, full.Load(), most.Load())
	if h.admitted+full.Load() != h.calls || full.Load() > h.calls/100 {
		t.Errorf("of %d calls %d were admitted, and %d found the table full", h.calls, h.admitted, full.Load())
	}
	if s := k.Stats(); s.Keys > maxKeys || most.Load() > maxKeys {
		t.Errorf("%d keys are tracked, at most %d were, want %d at most", s.Keys, most.Load(), maxKeys)
	}
}
