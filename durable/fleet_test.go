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
	"github.com/weirhq/weir/store"
)

var (
	fleetSeed = flag.Uint64("fleet", 0, "the seed of a simulated fleet to be played alone, or the first of a campaign")
	fleetFor  = flag.Duration("fleetfor", 0, "how long a campaign of simulated fleets goes on")
)

// simulation is a fleet in one bubble: processes that share limits in a store, leased and optimistic ones. Whatever happens by chance
// follows from the seed.
type simulation struct {
	seed  uint64
	net   *network
	redis *store.Memory
	clock *driftingClock // of redis
	begun int            // processes, those included that have taken the place of another one

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

// simulate plays the fleet of a seed, and returns what it has found, and the hash of its trace.
func simulate(t *testing.T, seed uint64) (s *simulation, trace uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), fleetTime)
		defer cancel()
		s = &simulation{seed: seed, net: newNetwork(seed, fleetTime), ctx: ctx, events: map[string][]bounds.Event{}}
		s.share(t)
		s.work.Wait()
		s.net.calls.Wait()
		trace = s.net.trace()
		s.checkShared(t)
	})
	return s, trace
}

// chance is the source of an actor.
func (s *simulation) chance(actor string) *rand.Rand { return chance(s.seed, actor) }

// fail notes an invariant that does not hold.
func (s *simulation) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// note notes what has happened to the permits of a limit, since an instant. What may still happen, as its message may be on its way, has
// a time until when it can.
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
const straggle = 2 * time.Second

// pause waits between two requests, for about so long, or for hardly any time while there are many at once. It reports whether the
// traffic goes on.
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

// TestFleet plays fleets, each of another seed: nothing of what docs/guarantees.md promises is broken. `make fleet` goes on for longer.
func TestFleet(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	first, rounds := *fleetSeed, 1
	if first == 0 {
		first, rounds = rand.Uint64()>>16, 16
	}
	begin := time.Now()
	var granted, refused, unknown, played int64
	for seed := first; rounds > 0 || time.Since(begin) < *fleetFor; seed++ {
		rounds--
		s, trace := simulate(t, seed)
		played++
		granted, refused, unknown = granted+s.granted, refused+s.refused, unknown+s.unknown
		if len(s.wrong) > 0 {
			t.Fatalf("seed %d, trace %x: %s\nagain: go test -run '^TestFleet$' ./durable -fleet %d", seed, trace,
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

// TestFleetReplays: two runs of a seed are the same, message by message.
func TestFleetReplays(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for seed := range uint64(3) {
		_, first := simulate(t, 1+seed)
		if _, second := simulate(t, 1+seed); first != second {
			t.Errorf("seed %d: the traces are %x and %x", 1+seed, first, second)
		}
	}
}

// known reports whether an error says that nothing was taken.
func known(err error) bool { return errors.Is(err, store.ErrNotReserved) || errors.Is(err, store.ErrClosed) }

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
