package durable_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/bounds"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/store"
)

var (
	fleetSeed = flag.Uint64("fleet", 0, "the seed of a simulated fleet to be played alone, or the first of a campaign")
	fleetFor  = flag.Duration("fleetfor", 0, "how long a campaign of simulated fleets goes on")
)

// simulation is a fleet in one bubble: processes that share limits in a store, leased and optimistic ones. Whatever happens by
// chance follows from the seed.
type simulation struct {
	seed  uint64
	net   *network
	redis *store.Memory
	clock *driftingClock            // of redis
	begun map[store.Consistency]int // processes, those included that have taken the place of another one

	ctx     context.Context //nolint:containedctx // until the traffic ends
	mu      sync.Mutex
	events  map[string][]bounds.Event
	wrong   []string
	work    sync.WaitGroup
	granted int64
	refused int64
	unknown int64
}

// fleetTime is how long a fleet is simulated for.
const fleetTime = 2 * time.Minute

// simulate plays the fleet of a seed, and returns what it has found.
func simulate(t *testing.T, seed uint64) (s *simulation) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), fleetTime)
		defer cancel()
		s = &simulation{seed: seed, net: newNetwork(seed, fleetTime), ctx: ctx, events: map[string][]bounds.Event{}, begun: map[store.Consistency]int{}}
		s.share(t)
		owned := s.own()
		s.work.Wait()
		owned.check()
		s.net.calls.Wait()
		s.checkShared(t)
	})
	return s
}

// chance is the source of an actor.
func (s *simulation) chance(actor string) *rand.Rand { return chance(s.seed, actor) }

// failf notes an invariant that does not hold.
func (s *simulation) failf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// note notes what has happened to the permits of a limit, since an instant. What may still happen, as its message may be on its
// way, has a time until when it can.
func (s *simulation) note(limit string, kind bounds.Kind, n int64, since, until time.Duration) {
	s.event(limit, bounds.Event{Sent: int64(since), Received: int64(until), N: n, Kind: kind})
}

// event notes something that has happened to the permits of a limit.
func (s *simulation) event(limit string, e bounds.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[limit] = append(s.events[limit], e)
	switch e.Kind {
	case bounds.Granted:
		s.granted++
	case bounds.Refused:
		s.refused++
	case bounds.Maybe:
		s.unknown++
	default:
	}
}

// straggle is how much later than its caller has given up a message arrives at most, the second time included.
const straggle = latest + time.Second

// pause waits between two requests, for about so long, or for hardly any time while there are many at once. It reports whether
// the traffic goes on.
func pause(ctx context.Context, r *rand.Rand, about time.Duration, hasty *int) bool {
	d := time.Duration(r.Int64N(2 * int64(about)))
	if *hasty > 0 {
		*hasty--
		d = time.Duration(r.Int64N(int64(4 * time.Millisecond)))
	} else if r.IntN(25) == 0 {
		*hasty = r.IntN(40)
	}
	return lasts(ctx, d)
}

// lasts reports whether a time has passed before ctx has ended.
func lasts(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// TestFleetContention plays fleets, each of another seed: nothing of what docs/guarantees.md promises is broken. The seeds are
// the same each time; `make fleet` goes on for longer, from any other.
func TestFleetContention(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	first, rounds := *fleetSeed, 1
	switch {
	case first != 0:
	case race.Enabled || testing.Short():
		first, rounds = 1, 3
	default:
		first, rounds = 1, 8
	}
	begin := time.Now()
	var granted, refused, unknown, played int64
	for seed := first; rounds > 0 || time.Since(begin) < *fleetFor; seed++ {
		rounds--
		s := simulate(t, seed)
		played++
		granted, refused, unknown = granted+s.granted, refused+s.refused, unknown+s.unknown
		if len(s.wrong) > 0 {
			t.Fatalf("seed %d, trace %x: %s\nagain: go test -run '^TestFleetContention$' ./durable -fleet %d", seed, s.net.trace(""),
				strings.Join(s.wrong, "\n"), seed)
		}
	}
	hours := time.Duration(played) * fleetTime
	t.Logf("from seed %d: %v simulated, %.0f times as fast; %d requests granted, %d refused, %d unknown", first, hours,
		hours.Seconds()/time.Since(begin).Seconds(), granted, refused, unknown)
	if granted < 100*played || refused < 100*played {
		t.Error("that shows nothing")
	}
}

// TestFleetReplayContention: a seed plays the same messages to the store again, and mostly those between the nodes, too. Go
// fires timers of the same instant in random order, which few seeds in a hundred show: such a seed is played again. With the
// race detector goroutines run in random order, and nothing is compared.
func TestFleetReplayContention(t *testing.T) {
	const attempts = 5
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	seeds := uint64(4)
	if race.Enabled {
		seeds = 1
	}
	whole := 0
	for seed := uint64(1); seed <= seeds; seed++ {
		one := simulate(t, seed)
		same := false
		for attempt := 0; attempt < attempts && !same; attempt++ {
			other := simulate(t, seed)
			same = race.Enabled || one.net.trace(">redis") == other.net.trace(">redis")
			if one.net.trace("") == other.net.trace("") {
				whole++
			}
			one = other
		}
		if !same {
			t.Errorf("seed %d: no two runs of %d send the store the same messages", seed, attempts+1)
		}
	}
	if t.Logf("of %d seeds, %d are the same in every message", seeds, whole); whole == 0 && !race.Enabled {
		t.Error("no seed plays the messages of the nodes again")
	}
}

// known reports whether an error says that nothing was taken.
func known(err error) bool {
	return errors.Is(err, store.ErrNotReserved) || errors.Is(err, store.ErrClosed)
}

// told is what a request was told, Maybe if that does not tell what was taken.
func told(err error, decisions []weir.Decision) bounds.Kind {
	kind := bounds.Granted
	for i := range decisions {
		switch d := &decisions[i]; {
		case err != nil || d.Reason == weir.ReasonUnavailable:
			return bounds.Maybe
		case !d.Allowed:
			kind = bounds.Refused
		}
	}
	return kind
}
