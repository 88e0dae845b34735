package policy_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// keeping is a store that keeps the limit of the last call for each key, which begins with some delay.
type keeping struct {
	*watched

	delay func()
	mu    sync.Mutex
	limit map[string]weir.Limit
}

func (k *keeping) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if ask.Mode != store.ModeDebit {
		return k.watched.Do(ctx, ask, charges, decisions)
	}
	k.delay()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.limit[charges[0].Key] = charges[0].Limit
	return store.Hold{}, nil
}

func (k *keeping) of(t testing.TB, e *policy.Engine, key string) (kept, holds weir.Limit) {
	t.Helper()
	c, ok := e.StoredCharges("login", key)
	if !ok {
		t.Fatal("there is nothing in a store")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.limit[c[0].Key], c[0].Limit
}

func overrideOf(key string, l weir.Limit, d time.Duration) *policy.Override {
	return &policy.Override{Policy: "login", Key: key, Limits: one(l), For: d}
}

// TestOverrideToldLastIsTheLast: of two changes of a key, of which the first one is still being told, the store keeps the second.
func TestOverrideToldLastIsTheLast(t *testing.T) {
	unlimited := &policy.Override{Policy: "login", Key: ann, Unlimited: true, For: time.Hour}
	for name, c := range map[string]struct {
		first, second func(e *policy.Engine) error
		want          weir.Limit
	}{
		"two overrides": {
			func(e *policy.Engine) error { return e.Override(overrideOf(ann, perHour(100), time.Hour)) },
			func(e *policy.Engine) error { return e.Override(overrideOf(ann, perHour(200), time.Hour)) },
			perHour(200),
		},
		"an override and its end": {
			func(e *policy.Engine) error { return e.Override(overrideOf(ann, perHour(100), time.Hour)) },
			func(e *policy.Engine) error { e.Restore("login", ann); return nil },
			perHour(10),
		},
		"an end and an override": {
			func(e *policy.Engine) error { e.Restore("login", ann); return nil },
			func(e *policy.Engine) error { return e.Override(overrideOf(ann, perHour(200), time.Hour)) },
			perHour(200),
		},
		"an end in time and an override": {
			func(*policy.Engine) error { time.Sleep(time.Second); return nil },
			func(e *policy.Engine) error { return e.Override(overrideOf(ann, perHour(200), time.Hour)) },
			perHour(200),
		},
		"an override and no limit": {
			func(e *policy.Engine) error { return e.Override(overrideOf(ann, perHour(100), time.Hour)) },
			func(e *policy.Engine) error { return e.Override(unlimited) },
			perHour(10),
		},
		"an override and a reload": {
			func(e *policy.Engine) error { e.Restore("login", ann); return nil },
			func(e *policy.Engine) error {
				_, err := e.Load(login(coherent, func(p *policy.Policy) { p.Limits = one(perHour(50)) }))
				return err
			},
			perHour(50),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slow atomic.Int64
				s := &keeping{
					watched: memory(t, nil), limit: map[string]weir.Limit{},
					delay: func() { time.Sleep(time.Duration(slow.Swap(0))) },
				}
				e := engine(t, login(coherent, func(p *policy.Policy) { p.Limits = one(perHour(10)) }),
					func(o *policy.EngineOptions) { o.Clock, o.Store = nil, s })
				if err := e.Override(overrideOf(ann, perHour(30), time.Second)); err != nil {
					t.Fatal(err)
				}
				slow.Store(int64(time.Second)) // only the next call is
				var done sync.WaitGroup
				done.Go(func() {
					if err := c.first(e); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				if name == "an end in time and an override" {
					time.Sleep(time.Second + time.Millisecond)
				}
				if err := c.second(e); err != nil {
					t.Error(err)
				}
				done.Wait()
				time.Sleep(10 * time.Second) // also for what the end of an override tells
				if kept, holds := s.of(t, e, ann); kept != c.want || holds != c.want {
					t.Errorf("the store keeps %v, the engine holds to %v, want %v", kept, holds, c.want)
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestOverrideDoesNotWaitForLong for a store that does not answer about another change of the key.
func TestOverrideDoesNotWaitForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keeping{watched: memory(t, nil), limit: map[string]weir.Limit{}, delay: func() { time.Sleep(time.Minute) }}
		e := engine(t, login(coherent), func(o *policy.EngineOptions) { o.Clock, o.Store = nil, s })
		var done sync.WaitGroup
		done.Go(func() {
			if err := e.Override(overrideOf(ann, perHour(100), time.Hour)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		began := time.Now()
		if err := e.Override(overrideOf(ann, perHour(200), time.Hour)); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("it has taken %v", d)
		}
		done.Wait()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOverridesToldContention changes, restores and ends overrides of a few keys at random, all at once. When all is quiet the
// store has the limits that hold.
func TestOverridesToldContention(t *testing.T) {
	rounds := 150
	if race.Enabled {
		rounds = 40
	}
	keys := []string{ann, ben}
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) { // in which no store is slow, however slow the machine is
			clock := manualclock.New(0)
			s := &keeping{watched: memory(t, clock), limit: map[string]weir.Limit{}, delay: func() {
				for range rand.N(20) {
					runtime.Gosched()
				}
			}}
			e := engine(t, login(coherent), manual(clock), func(o *policy.EngineOptions) { o.Store = s })
			for _, key := range keys { // so that all are known
				if err := e.Override(overrideOf(key, perHour(3), time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range 25 {
						o := overrideOf(keys[rand.N(len(keys))], perHour(1+rand.N[int64](100)), time.Second*time.Duration(1+rand.N(3)))
						switch rand.N(5) {
						case 0, 1:
							e.Restore("login", o.Key)
							continue
						case 2:
							o.Limits, o.Unlimited = nil, true
						}
						if err := e.Override(o); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Go(func() {
				for range 25 {
					clock.Advance(500 * time.Millisecond)
				}
			})
			all.Wait()
			clock.Advance(0)
			for _, key := range keys {
				if kept, holds := s.of(t, e, key); kept != holds {
					t.Fatalf("round %d: of %s the store keeps %v, the engine holds to %v", round, key, kept, holds)
				}
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRestoreSaysWhatItEnded: an override that would end while the store is told is ended by Restore, which reports so.
func TestRestoreSaysWhatItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keeping{watched: memory(t, nil), limit: map[string]weir.Limit{}, delay: func() { time.Sleep(time.Second) }}
		e := engine(t, login(coherent), func(o *policy.EngineOptions) { o.Clock, o.Store = nil, s })
		if err := e.Override(overrideOf(ann, perHour(30), 1500*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if !e.Restore("login", ann) {
			t.Error("it says that there was none")
		}
		if e.Restore("login", ann) {
			t.Error("it says that there was another one")
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}
