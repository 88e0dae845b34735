package bounds_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/bounds"
)

const ms = int64(time.Millisecond)

// at is an event from one millisecond to another.
func at(kind bounds.Kind, n, sent, received int64) bounds.Event {
	return bounds.Event{Sent: sent * ms, Received: received * ms, N: n, Kind: kind}
}

// TestByHand: what is right is let pass, and what is wrong by one permit is found.
func TestByHand(t *testing.T) {
	t.Parallel()
	const granted, refused, maybe, returned = bounds.Granted, bounds.Refused, bounds.Maybe, bounds.Returned
	bucket := bounds.Bucket{Rate: 1, Burst: 10}
	quota := bounds.Bucket{Burst: 10}
	fixed := bounds.Window{Permits: 10, Length: time.Second, Segments: 1, Aligned: true}
	sliding := bounds.Window{Permits: 10, Length: 4 * time.Second, Segments: 4}
	for _, c := range []struct {
		name         string
		limit        bounds.Limit
		events       []bounds.Event
		minted, lost bool
	}{
		{"a burst", bucket, []bounds.Event{at(granted, 5, 0, 1), at(granted, 5, 1, 2)}, false, false},
		{"more than a burst", bucket, []bounds.Event{at(granted, 5, 0, 1), at(granted, 5, 1, 2), at(granted, 1, 2, 3)}, true, false},
		{"what has come back", bucket, []bounds.Event{at(granted, 10, 0, 1), at(granted, 1, 1, 1001)}, false, false},
		{"one that may have been late", bucket, []bounds.Event{at(granted, 10, 1000, 1001), at(granted, 10, 0, 30_000)}, false, false},
		{"two that cannot both", bucket, []bounds.Event{at(granted, 10, 1000, 1001), at(granted, 10, 0, 5000)}, true, false},
		{"what was returned", bucket, []bounds.Event{at(granted, 10, 0, 1), at(returned, 3, 2, 3), at(granted, 3, 3, 4)}, false, false},
		{"what was not returned yet", bucket, []bounds.Event{at(granted, 10, 0, 1), at(granted, 3, 3, 4), at(returned, 3, 5, 6)}, true, false},
		{"refused rightly", bucket, []bounds.Event{at(granted, 10, 0, 1), at(refused, 1, 2, 3)}, false, false},
		{"refused one that was there", bucket, []bounds.Event{at(granted, 9, 0, 1), at(refused, 1, 2, 3)}, false, true},
		{"refused one that has come back", bucket, []bounds.Event{at(granted, 10, 0, 1), at(refused, 1, 1102, 1103)}, false, true},
		{"refused what may be gone", bucket, []bounds.Event{at(granted, 9, 0, 1), at(maybe, 1, 1, 5000), at(refused, 1, 2, 3)}, false, false},
		{"refused what another may just take", bucket, []bounds.Event{at(granted, 10, 5, 9), at(refused, 1, 4, 6)}, false, false},
		{"refused what was returned", bucket, []bounds.Event{at(granted, 10, 0, 1), at(returned, 2, 1, 2), at(refused, 2, 3, 4)}, false, true},
		{"refused what came back as if never taken", bucket, []bounds.Event{
			at(granted, 5, 0, 1), at(granted, 7, 5000, 5001),
			{Sent: 5001 * ms, Received: 5002 * ms, N: 5, Since: 1, Kind: returned},
			at(refused, 4, 5003, 5004),
		}, false, false},
		{"refused in a debt", bucket, []bounds.Event{at(granted, 5, 0, 1), at(bounds.Charged, 9, 1, 2), at(refused, 1, 3, 4)}, false, false},
		{"a quota", quota, []bounds.Event{at(granted, 10, 0, 1), at(refused, 1, 1e6, 1e6)}, false, false},
		{"a quota and one", quota, []bounds.Event{at(granted, 10, 0, 1), at(granted, 1, 1e6, 1e6)}, true, false},
		{"a quota but one", quota, []bounds.Event{at(granted, 9, 0, 1), at(refused, 1, 1e6, 1e6)}, false, true},
		{"slots", quota, []bounds.Event{at(granted, 10, 0, 1), at(returned, 1, 9, 12), at(granted, 1, 2, 10)}, false, false},
		{"a slot too many", quota, []bounds.Event{at(granted, 10, 0, 1), at(returned, 1, 9, 12), at(granted, 1, 2, 8)}, true, false},
		{"a window", fixed, []bounds.Event{at(granted, 10, 10, 20), at(granted, 10, 1010, 1020)}, false, false},
		{"one in either window", fixed, []bounds.Event{at(granted, 10, 10, 20), at(granted, 1, 990, 1010)}, false, false},
		{"one too many in a window", fixed, []bounds.Event{at(granted, 10, 10, 20), at(granted, 1, 980, 990)}, true, false},
		{"a window that is used up", fixed, []bounds.Event{at(granted, 10, 10, 20), at(refused, 1, 980, 990)}, false, false},
		{"a window that is not", fixed, []bounds.Event{at(granted, 9, 10, 20), at(refused, 1, 980, 990)}, false, true},
		{"a sliding window", sliding, []bounds.Event{at(granted, 10, 10, 20), at(granted, 10, 3011, 3021)}, false, false},
		{"one too many in a sliding window", sliding, []bounds.Event{at(granted, 10, 10, 20), at(granted, 1, 2900, 2990)}, true, false},
		{"a sliding window that has passed", sliding, []bounds.Event{at(granted, 10, 10, 20), at(refused, 1, 4021, 4022)}, false, true},
		{"a sliding window that may not have", sliding, []bounds.Event{at(granted, 10, 10, 20), at(refused, 1, 4010, 4022)}, false, false},
	} {
		if b := c.limit.Minted(c.events); b.Broken() != c.minted {
			t.Errorf("%s: minted: %+v", c.name, b)
		}
		if b := c.limit.Lost(c.events); b.Broken() != c.lost {
			t.Errorf("%s: lost: %+v", c.name, b)
		}
	}
}

// TestDeposed: an owner that goes on after the next one has begun is found, and none that was asked before.
func TestDeposed(t *testing.T) {
	t.Parallel()
	of := func(epoch, sent, received int64) bounds.Event {
		return bounds.Event{Sent: sent, Received: received, N: 1, Epoch: epoch}
	}
	refused := of(1, 20, 21)
	refused.Kind = bounds.Refused
	right := []bounds.Event{of(1, 0, 1), of(1, 9, 30), of(2, 8, 12), of(2, 13, 14), refused, of(0, 20, 21)}
	if b := bounds.Deposed(right); b.Broken() {
		t.Errorf("%+v", b)
	}
	if b := bounds.Deposed(append(right, of(1, 13, 14))); b.Permits != 1 || b.Times != 1 {
		t.Errorf("%+v", b)
	}
}

// played is a history of a bucket that keeps to its limit: the moment at which each event really happened is between what is
// told.
type played struct {
	events   []bounds.Event
	happened []int64
	level    []float64 // what was there when it happened
}

// play has clients take permits in bursts and pauses. If all is certain, none are given back, and every answer arrives.
func play(random *rand.Rand, b bounds.Bucket, n int, certain bool) (p played) {
	level, now, last := b.Burst, int64(0), int64(0)
	for range n {
		gap := random.Int64N(int64(float64(time.Second) / max(b.Rate, 1)))
		if random.IntN(100) == 0 {
			gap *= 50
		}
		now += gap
		level = min(b.Burst, level+b.Rate*float64(now-last)/1e9)
		last = now
		e := bounds.Event{Sent: now - random.Int64N(3*ms), Received: now + random.Int64N(3*ms), N: 1 + random.Int64N(3)}
		p.level, p.happened = append(p.level, level), append(p.happened, now)
		rare := random.IntN(20)
		switch {
		case !certain && rare == 0:
			e.Kind = bounds.Returned
			level = min(b.Burst, level+float64(e.N))
		case level < float64(e.N):
			e.Kind = bounds.Refused
		case !certain && rare == 1:
			e.Kind = bounds.Maybe
			level -= float64(e.N)
		default:
			level -= float64(e.N)
		}
		p.events = append(p.events, e)
	}
	return p
}

// TestNoFalseAlarm: a bucket that keeps its limit is never reported. One permit too many is, and so is a refusal while a permit
// was certainly there.
func TestNoFalseAlarm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 8))
		b := bounds.Bucket{Rate: float64(1 + random.IntN(30)), Burst: float64(1 + random.IntN(20))}
		p := play(random, b, 2000, seed%4 == 0)
		random.Shuffle(len(p.events), func(i, j int) {
			p.events[i], p.events[j] = p.events[j], p.events[i]
			p.happened[i], p.happened[j] = p.happened[j], p.happened[i]
			p.level[i], p.level[j] = p.level[j], p.level[i]
		})
		if found := b.Minted(p.events); found.Broken() {
			t.Fatalf("seed %d: %+v minted: %+v", seed, b, found)
		}
		if found := b.Lost(p.events); found.Broken() {
			t.Fatalf("seed %d: %+v lost: %+v", seed, b, found)
		}
	}
}

// leastLevel is the obvious way to tell how much was there at least when a request was refused.
func leastLevel(b bounds.Bucket, events []bounds.Event) func(r bounds.Event) float64 {
	return func(r bounds.Event) float64 {
		least := b.Burst
		for _, from := range events {
			u := min(from.Received, r.Sent)
			level := b.Burst + b.Rate*float64(r.Sent-u)/1e9
			for _, e := range events {
				switch e.Kind {
				case bounds.Granted, bounds.Maybe, bounds.Charged:
					if e.Received >= u && e.Sent <= r.Received {
						level -= float64(e.N)
					}
				case bounds.Returned, bounds.Lapsed, bounds.Unheard:
					if e.Sent >= u && e.Received <= r.Sent {
						level += float64(e.N)
					}
				case bounds.Refused, bounds.MayReturn:
				}
			}
			least = min(least, level)
		}
		return least
	}
}

// mostOver is the obvious way to tell how much too much was granted.
func mostOver(b bounds.Bucket, events []bounds.Event) (most float64) {
	for _, first := range events {
		for _, last := range events {
			if first.Sent > last.Received {
				continue
			}
			over := -b.Burst - b.Rate*float64(last.Received-first.Sent)/1e9
			for _, e := range events {
				switch e.Kind {
				case bounds.Granted:
					if e.Sent >= first.Sent && e.Received <= last.Received {
						over += float64(e.N)
					}
				case bounds.Returned, bounds.MayReturn, bounds.Unheard:
					if e.Sent <= last.Received && e.Received >= first.Sent {
						over -= float64(e.N)
					}
				case bounds.Refused, bounds.Maybe, bounds.Charged, bounds.Lapsed:
				}
			}
			most = max(most, over)
		}
	}
	return most
}

// TestObviousReference compares what is found in histories that are wrong with what the definition says.
func TestObviousReference(t *testing.T) {
	t.Parallel()
	found := 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 9))
		b := bounds.Bucket{Rate: float64(1 + random.IntN(20)), Burst: float64(1 + random.IntN(9))}
		events := play(random, b, 60, false).events
		for range random.IntN(4) { // some answers are turned into others
			i := random.IntN(len(events))
			events[i].Kind = []bounds.Kind{bounds.Granted, bounds.Refused, bounds.MayReturn, bounds.Lapsed}[random.IntN(4)]
		}
		want, got := mostOver(b, events), b.Minted(events)
		if math.Abs(max(want-0.001, 0)-got.Permits) > 1e-6 {
			t.Errorf("seed %d: minted %v, not %v", seed, got, want)
		}
		level := leastLevel(b, events)
		times := 0
		for _, r := range events {
			if r.Kind == bounds.Refused && level(r)-float64(r.N) >= 0.0005 {
				times++
			}
		}
		// Where what came back overlaps with refusals, less of it may be counted.
		if lost := b.Lost(events); lost.Times > times || times > 0 && lost.Times < times/2 {
			t.Errorf("seed %d: lost %d times, not %d", seed, lost.Times, times)
		}
		if got.Broken() || times > 0 {
			found++
		}
	}
	if found < 20 {
		t.Errorf("only %d histories were wrong", found)
	}
}

// TestOneTooMany: one permit is found among thousands.
func TestOneTooMany(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 10))
		b := bounds.Bucket{Rate: 5, Burst: 10}
		p := play(random, b, 5000, true)
		empty := slices.IndexFunc(p.level, func(level float64) bool { return level < 0.5 })
		wrong := slices.Clone(p.events)
		wrong = append(wrong, bounds.Event{Sent: p.happened[empty], Received: p.happened[empty] + ms, N: 1})
		if found := b.Minted(wrong); !found.Broken() && p.events[empty].Kind == bounds.Refused {
			t.Errorf("seed %d: one permit too many is not found", seed)
		}
		full := 1000 + slices.IndexFunc(p.level[1000:], func(level float64) bool { return level >= b.Burst })
		wrong = append(slices.Clone(p.events), bounds.Event{Sent: p.happened[full], Received: p.happened[full] + 1, N: 1, Kind: bounds.Refused})
		if found := b.Lost(wrong); !found.Broken() {
			t.Errorf("seed %d: one permit that was lost is not found", seed)
		}
	}
}
