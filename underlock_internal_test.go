package weir

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// underLock makes every call of a limiter take the lock, where the algorithm decides.
func underLock(a Acquirer) Acquirer {
	switch l := a.(type) {
	case *Limiter:
		l.fast.word.Store(raised)
		l.fast.scale, l.fast.burst, l.word, l.owner = 0, 0, nil, &l.gate
	case *Concurrency:
		l.fast.word.Store(raised)
		l.word = nil
	}
	return a
}

// gateOf is the gate of a limiter, and the word beside it.
func gateOf(a Acquirer) (g *gate, word uint64) {
	switch l := a.(type) {
	case *Limiter:
		return &l.gate, l.fast.word.Load()
	case *Concurrency:
		return &l.gate, l.fast.word.Load()
	}
	return nil, 0
}

// played is a limiter in a history: its open leases, and what it has answered to callers that waited.
type played struct {
	Acquirer

	open   []Lease
	cancel []context.CancelFunc

	mu    sync.Mutex
	ended map[int]string // by the step at which they began to wait
	got   map[int]Lease
}

// waited is what callers were told that have waited.
func (p *played) waited() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.ended)
}

// collect keeps the leases of callers that have waited.
func (p *played) collect() {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(p.got)) {
		p.keep(p.got[id])
	}
	clear(p.got)
}

// step does what rng says, and returns all that can be seen of it.
func (p *played) step(rng *rand.Rand, id int) string {
	n := rng.Int64N(4)
	switch rng.IntN(12) {
	case 0, 1, 2:
		return p.keep(p.TryAcquire(n))
	case 3, 4:
		return p.keep(p.TryReserve(n))
	case 5:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.Int64N(int64(5*time.Second))))
		p.cancel = append(p.cancel, cancel)
		go func() {
			l, err := p.Reserve(ctx, n)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ended[id] = fmt.Sprint(l.Decision(), l.Permits(), err)
			p.got[id] = l
		}()
	case 6, 7, 8, 9:
		if len(p.open) == 0 {
			return ""
		}
		i := rng.IntN(len(p.open))
		for range 2 { // the second time does nothing
			switch rng.IntN(3) {
			case 0:
				p.open[i].Release()
			case 1:
				p.open[i].Cancel()
			default:
				p.open[i].Commit(rng.Int64N(5))
			}
		}
		p.open = append(p.open[:i], p.open[i+1:]...)
	case 10:
		if c, ok := p.Acquirer.(*Concurrency); ok && rng.IntN(4) == 0 {
			return fmt.Sprint(c.SetLimit(1 + rng.Int64N(6)))
		}
		for range rng.IntN(200) { // all permits may come and go often enough for a watch
			l := p.TryAcquire(1)
			l.Release()
		}
	default:
		return fmt.Sprint(p.Peek(n))
	}
	return ""
}

func (p *played) keep(l Lease) string {
	if l.Allowed() {
		p.open = append(p.open, l)
	}
	return fmt.Sprint(l.Decision(), l.Permits())
}

// TestWordEqualsLock plays random histories, with callers that wait, limits that change and leases that end twice, on two limiters, one
// of which never decides without the lock. All that can be seen of both is the same, but for how long a pool has been idle while it
// is watched. And whenever a caller waits, the word is raised: no other call can overtake it there.
func TestWordEqualsLock(t *testing.T) {
	limiters := map[string]func(Options) (Acquirer, error){
		"token bucket": func(o Options) (Acquirer, error) { return New(TokenBucket(PerSecond(2), 5), o) },
		"odd bucket":   func(o Options) (Acquirer, error) { return New(TokenBucket(Per(7, 3*time.Second), 4), o) },
		"concurrency":  func(o Options) (Acquirer, error) { return NewConcurrency(5, o) },
	}
	for name, newLimiter := range limiters {
		t.Run(name, func(t *testing.T) {
			var words, waits, watches int
			for seed := range uint64(100) {
				synctest.Test(t, func(t *testing.T) {
					o := Options{QueueLimit: int64(seed % 4 * 4), NewestFirst: seed%3 == 0}
					var pair [2]played
					for i := range pair {
						l, err := newLimiter(o)
						if err != nil {
							t.Fatal(err)
						}
						pair[i].Acquirer, pair[i].ended, pair[i].got = l, map[int]string{}, map[int]Lease{}
					}
					underLock(pair[1].Acquirer)
					fast, slow := &pair[0], &pair[1]
					rng := rand.New(rand.NewPCG(seed, 1))
					for i := range 200 {
						if rng.IntN(3) == 0 {
							time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
						}
						pair[0].collect()
						pair[1].collect()
						step := rng.Uint64()
						got, want := fast.step(rand.New(rand.NewPCG(step, 2)), i), slow.step(rand.New(rand.NewPCG(step, 2)), i)
						synctest.Wait()
						if g, word := gateOf(fast.Acquirer); g.queue.Len() > 0 {
							waits++
							if word&raised == 0 {
								t.Fatalf("seed %d, step %d: a caller waits, and the word is %#x", seed, i, word)
							}
						} else if word&raised == 0 {
							words++
						}
						if c, ok := fast.Acquirer.(*Concurrency); ok && c.fast.timer != nil {
							watches++
						}
						a, b := fast.Stats(), slow.Stats()
						if late := b.Idle - a.Idle; a.Idle >= 0 && b.Idle >= 0 && late >= 0 && late <= watchPeriod && name == "concurrency" {
							a.Idle = b.Idle
						}
						got, want = fmt.Sprint(got, a, fast.waited()), fmt.Sprint(want, b, slow.waited())
						if got != want {
							t.Fatalf("seed %d, step %d:\n%s\nwant\n%s", seed, i, got, want)
						}
					}
					for i := range pair {
						for _, cancel := range pair[i].cancel {
							cancel()
						}
					}
				})
			}
			if words < 1000 || waits < 1000 || watches < 100 && name == "concurrency" {
				t.Errorf("the word was used %d times, callers waited %d times, the pool was watched %d times", words, waits, watches)
			}
		})
	}
}

// TestWatchedPoolIsIdleSinceTheLastRelease holds the bound of a watched pool, and that the watch ends.
func TestWatchedPoolIsIdleSinceTheLastRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewConcurrency(3, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			for i := range 5000 {
				l := c.TryAcquire(2)
				if i%100 == 0 {
					time.Sleep(watchPeriod / 7)
				}
				l.Release()
				if i > 2*watchedAfter && i%100 > 2*watchedAfter/2 && c.fast.word.Load()&freeWatched == 0 {
					t.Fatalf("not watched after %d releases", i)
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if c.fast.timer != nil || c.fast.word.Load()&freeWatched != 0 {
				t.Error("watched though nothing happens")
			}
			if d := c.Stats().Idle; d > time.Second || d < time.Second-watchPeriod {
				t.Errorf("idle for %v", d)
			}
		}
		l := c.TryAcquire(1)
		time.Sleep(time.Second)
		l.Release()
		time.Sleep(time.Second)
		if d := c.Stats().Idle; d != time.Second {
			t.Errorf("idle for %v after a release alone", d)
		}
	})
}
