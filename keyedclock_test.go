package weir_test

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/bounds"
	"github.com/weirhq/weir/keyset"
)

// TestKeysByProcessClock has callers ask for a few keys at once, by every call that may decide by a time that was read before the
// key was locked, while other keys have theirs forgotten. Nothing is granted that is not there, and nothing refused that is.
func TestKeysByProcessClock(t *testing.T) {
	const callers, rounds, keys, period = 4, 3000, 3, 2 * time.Microsecond
	limit := weir.TokenBucket(weir.Per(1, period), 3)
	for _, chosen := range []bool{false, true} {
		t.Run(strconv.FormatBool(chosen), func(t *testing.T) {
			of := func(string) weir.Limit { return limit }
			base := limit
			if chosen { // so that the keys have a limit of their own
				base = weir.TokenBucket(weir.PerSecond(1), 1)
			}
			k := must(weir.NewKeyedFunc(base, weir.KeyedOptions{MaxKeys: 64}, of))
			if !chosen {
				k = must(weir.NewKeyed[string](limit, weir.KeyedOptions{MaxKeys: 64}))
			}
			var all [keys][]bounds.Event
			var mu sync.Mutex
			var group sync.WaitGroup
			start := time.Now()
			for g := range callers {
				group.Go(func() {
					c := clockCaller{k: k, random: rand.New(rand.NewPCG(7, uint64(g))), start: start}
					if chosen {
						c.plan = must(keyset.Of(k).Plan(limit))
					}
					for range rounds {
						c.ask()
					}
					mu.Lock()
					defer mu.Unlock()
					for i := range all {
						all[i] = append(all[i], c.events[i]...)
					}
				})
			}
			group.Wait()
			for i, events := range all {
				of := bounds.Bucket{Rate: float64(time.Second / period), Burst: 3}
				minted, lost := of.Minted(events), of.Lost(events)
				if minted.Broken() || lost.Broken() {
					t.Errorf("key %d, %d events: granted too many %+v, refused too many %+v", i, len(events), minted, lost)
				}
			}
		})
	}
}

type clockCaller struct {
	k      *weir.Keyed[string]
	plan   *keyset.Plan // nil if keys have one limit
	random *rand.Rand
	start  time.Time
	batch  keyset.Batch
	events [3][]bounds.Event
}

// ask makes one call, some of which are for keys that come once.
func (c *clockCaller) ask() {
	switch c.random.IntN(8) {
	case 0, 1:
		for range c.random.IntN(10) {
			runtime.Gosched()
		}
	case 2:
		c.k.Allow("other " + strconv.FormatUint(c.random.Uint64(), 36))
	default:
	}
	at, n := c.random.IntN(len(c.events)), int64(1)
	key, sent := strconv.Itoa(at), time.Since(c.start)
	var d weir.Decision
	switch kind := c.random.IntN(4); {
	case kind == 0:
		d.Allowed = c.k.Allow(key)
		d.Reason = weir.ReasonLimited
	case kind == 1 && c.plan != nil:
		c.together()
		return
	case kind == 2:
		d = c.k.TryReserve(key, n).Decision()
	default:
		n += c.random.Int64N(3)
		d = c.k.Take(key, n)
	}
	c.note(at, sent, n, d)
}

// together asks for several keys at once, some of them twice.
func (c *clockCaller) together() {
	var decisions [6]weir.Decision
	var of [6]int
	var n [6]int64
	for i := range decisions {
		of[i], n[i] = c.random.IntN(len(c.events)), 1+c.random.Int64N(2)
		c.batch.Add(c.plan, []byte(strconv.Itoa(of[i])), n[i], &decisions[i])
	}
	sent := time.Since(c.start)
	c.batch.Take()
	for i, d := range decisions {
		c.note(of[i], sent, n[i], d)
	}
}

// note keeps what a caller was told. It is never for want of room: few keys are in use.
func (c *clockCaller) note(at int, sent time.Duration, n int64, d weir.Decision) {
	e := bounds.Event{Sent: int64(sent), Received: int64(time.Since(c.start)), N: n, Kind: bounds.Refused}
	if d.Allowed {
		e.Kind = bounds.Granted
	}
	if d.Allowed || d.Reason == weir.ReasonLimited {
		c.events[at] = append(c.events[at], e)
	}
}
