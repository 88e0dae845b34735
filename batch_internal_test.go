package weir

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/internal/bounds"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inside"
)

// planned is a limiter of keys that bring their limit, and a plan of it.
func planned(t *testing.T, limit Limit, o KeyedOptions) (k *Keyed[string], plan any) {
	t.Helper()
	k, err := NewKeyedFunc(limit, o, func(string) Limit { return Limit{} })
	if err != nil {
		t.Fatal(err)
	}
	if plan, err = (&operator[string]{&k.keys}).Plan(limit); err != nil {
		t.Fatal(err)
	}
	return k, plan
}

// TestBatchDecidesAgain has callers ask for a few keys in batches, in which each refusal is believed only if the batch has taken less
// long. So they are decided again often, as permits come back within microseconds. No permit is granted that is not there, none is
// refused that is, and each call counts once.
func TestBatchDecidesAgain(t *testing.T) {
	const callers, rounds, keys, calls, period = 3, 2000, 3, 32, 2 * time.Microsecond
	limit := TokenBucket(Per(1, period), 3)
	k, plan := planned(t, limit, KeyedOptions{})
	var all [keys][]bounds.Event
	var mu sync.Mutex
	var group sync.WaitGroup
	start := time.Now()
	for g := range callers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(g)))
			b := new(batch) // whose refusals are never decided again at once
			var of [calls]int
			var asked [calls]inside.Call[Decision]
			var decisions [calls]Decision
			for range rounds {
				for i := range asked {
					of[i] = random.IntN(keys)
					asked[i] = inside.Call[Decision]{Plan: plan, Key: strconv.Itoa(of[i]), N: 1 + random.Int64N(3), Decision: &decisions[i]}
				}
				sent := int64(time.Since(start))
				b.Take(asked[:])
				received := int64(time.Since(start))
				mu.Lock()
				for i, d := range decisions {
					e := bounds.Event{Sent: sent, Received: received, N: asked[i].N, Kind: bounds.Refused}
					if d.Allowed {
						e.Kind = bounds.Granted
					}
					all[of[i]] = append(all[of[i]], e)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	granted := int64(0)
	for i, events := range all {
		of := bounds.Bucket{Rate: float64(time.Second / period), Burst: 3}
		minted, lost := of.Minted(events), of.Lost(events)
		if minted.Broken() || lost.Broken() {
			t.Errorf("key %d, %d events: granted too many %+v, refused too many %+v", i, len(events), minted, lost)
		}
		for _, e := range events {
			if e.Kind == bounds.Granted {
				granted++
			}
		}
	}
	if s := k.Stats(); s.Allowed != granted || s.Allowed+s.Refused != callers*rounds*calls {
		t.Errorf("%d allowed and %d refused are counted, want %d of %d", s.Allowed, s.Refused, granted, callers*rounds*calls)
	}
}

// pausingClock calls a function once, when it is read.
type pausingClock struct{ pause func() }

func (c *pausingClock) Now() int64 {
	if pause := c.pause; pause != nil {
		c.pause = nil
		pause()
	}
	return 1
}

func (*pausingClock) AfterFunc(time.Duration, func()) func() bool {
	return func() bool { return false }
}

// TestBatchThatWasHeldUp: while a batch is held up behind the reading of its clock, another one takes the only permit, and the next
// permit comes. The held up call gets that, whichever of its refusals are believed. One that is refused for longer is refused.
func TestBatchThatWasHeldUp(t *testing.T) {
	for _, believed := range []time.Duration{0, soonAgain, time.Hour} {
		for _, late := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				limit := TokenBucket(Per(1, time.Second), 1)
				paused := new(pausingClock)
				k, plan := planned(t, limit, KeyedOptions{})
				_, slowPlan := planned(t, limit, KeyedOptions{Clock: paused})
				take := func(soon time.Duration, plans ...any) (d [2]Decision) {
					var calls [2]inside.Call[Decision]
					for i, p := range plans {
						calls[i] = inside.Call[Decision]{Plan: p, Key: "a", N: 1, Decision: &d[i]}
					}
					b := &batch{soon: soon}
					b.Take(calls[:len(plans)])
					return d
				}
				if d := take(soonAgain, plan); !d[0].Allowed {
					t.Error("the first permit is refused")
				}
				take(soonAgain, plan) // with the slot that is there now
				time.Sleep(time.Second)
				paused.pause = func() {
					time.Sleep(time.Millisecond)
					if d := take(soonAgain, plan); !d[0].Allowed {
						t.Error("the other caller is refused")
					}
					if time.Sleep(time.Second - time.Microsecond); !late {
						time.Sleep(time.Microsecond)
					}
				}
				if d := take(believed, slowPlan, plan)[1]; d.Allowed == late || late && d.Reason != ReasonLimited {
					t.Errorf("believed from %v on, too early %v: %+v", believed, late, d)
				}
				if s := k.Stats(); s.Allowed+s.Refused != 4 || (s.Refused == 2) != late {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// TestStepWaitsForSeizedSlots: a step reads the clock when no batch has a state of it any more. A batch that goes on may grant by a
// later time than that of the moment when the step has locked all shards.
func TestStepWaitsForSeizedSlots(t *testing.T) {
	const most = 1000
	k, plan := planned(t, TokenBucket(Per(1, time.Millisecond), most), KeyedOptions{MaxDebt: NoDebt})
	for name, ask := range map[string]func(*step){
		"take": func(s *step) { s.Take() }, "peek": func(s *step) { s.Peek() }, "debit": func(s *step) { s.Debit() },
	} {
		k.states.Open()
		k.Reset("a")
		k.Take("a", most)
		h := hashOf("a")
		spot := k.states.Touch(h)
		slot, _ := spot.Seize(h)
		if slot == nil {
			t.Fatal("not seized")
		}
		begun, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			var d Decision
			s := new(step)
			s.Add(nil, "a", 1, plan, &d)
			close(begun)
			ask(s)
		}()
		<-begun
		for end := time.Now().Add(9 * time.Millisecond); time.Now().Before(end); {
			runtime.Gosched()
		}
		law, now := k.base.table, clock.Now()
		_, remaining, _, _ := law.Decide(slot.State(), now, 1, false)
		law.Decide(slot.State(), now, remaining, true)
		before := law.FreshAt(slot.State())
		slot.Leave()
		<-done
		shard := k.states.Lock(h)
		if after := law.FreshAt(shard.Find(h).State()); after < before {
			t.Errorf("%s: all permits are back %v earlier", name, time.Duration(before-after))
		}
		shard.Unlock()
	}
}
