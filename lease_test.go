package weir_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

var timed = kinds[:len(kinds)-1]

func TestZeroLeaseIsARefusal(t *testing.T) {
	var l weir.Lease
	if l.Allowed() || l.Permits() != 0 || !errors.Is(l.Err(), weir.ErrRefused) || l.Decision() != (weir.Decision{}) {
		t.Errorf("%+v", l.Decision())
	}
	l.Release()
	l.Commit(1)
	l.Cancel()
}

func TestLeaseIsReleasedOnceHoweverOftenItIsCopiedAndAsked(t *testing.T) {
	forEach(t, kinds, setup{limit: 4}, func(t *testing.T, s *subject) {
		for _, end := range []func(weir.Lease){
			weir.Lease.Release, weir.Lease.Cancel, func(l weir.Lease) { l.Commit(1) },
		} {
			first, second := s.TryReserve(2), s.TryReserve(2)
			end(first)
			after := s.Stats()
			copied := first
			for _, again := range []weir.Lease{first, copied} {
				again.Release()
				again.Commit(0)
				again.Commit(1)
				again.Commit(4)
				again.Cancel()
			}
			if got := s.Stats(); got != after {
				t.Errorf("ended once more, a lease changed %+v to %+v", after, got)
			}
			if !first.Allowed() || first.Permits() != 2 {
				t.Errorf("an ended lease still tells what it was: %d, %+v", first.Permits(), first.Decision())
			}
			second.Cancel()
			first.Cancel()
			if s.kind.timed {
				s.Acquirer.(interface{ Refund(n int64) }).Refund(4) //nolint:forcetypeassert // all timed limiters have it
			}
			s.available(4)
		}
	})
}

// TestEndedLeaseDoesNotEndAnother ends leases whose memory has since been given to others.
func TestEndedLeaseDoesNotEndAnother(t *testing.T) {
	forEach(t, kinds, setup{limit: 100}, func(t *testing.T, s *subject) {
		var ended []weir.Lease
		for range 100 {
			l := s.TryReserve(1)
			l.Cancel()
			ended = append(ended, l)
		}
		for range 100 {
			s.held = append(s.held, s.TryReserve(1))
		}
		for _, l := range ended {
			l.Release()
			l.Commit(50)
			l.Cancel()
		}
		s.available(0)
		for _, l := range s.held {
			l.Cancel()
		}
		s.available(100)
	})
}

func TestLeaseIsReleasedOnceByManyAtATime(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			l, err := k.build(setup{limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			defer closeLimiter(t, l)
			others := l.TryAcquire(500)
			for range 200 {
				lease := l.TryReserve(1)
				var all sync.WaitGroup
				for range 4 {
					all.Go(lease.Cancel)
				}
				all.Wait()
			}
			if got := l.Stats().Remaining; got < 500 || !k.timed && got != 500 {
				t.Errorf("%d permits are available, 500 are out", got)
			}
			others.Release()
		})
	}
}

func TestReleaseGivesBackOnlyWhatDoesNotComeBackWithTime(t *testing.T) {
	forEach(t, withChain, setup{limit: 4}, func(t *testing.T, s *subject) {
		s.take(1).Release()
		s.TryReserve(1).Release() // it has cost what was reserved
		l, err := s.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
		want := int64(4)
		if s.kind.timed {
			want = 1
		}
		s.available(want)
	})
}

func TestLeaseThatIsNotReservedCostsWhatItTook(t *testing.T) {
	forEach(t, withChain, setup{limit: 4}, func(t *testing.T, s *subject) {
		s.take(1).Commit(4)
		s.take(1).Commit(0)
		s.take(1).Cancel()
		want := int64(4) // a concurrency limiter gets back what the lease holds
		if s.kind.timed {
			want = 1
		}
		s.available(want)
	})
}

func TestCommitSettlesWhatWasReserved(t *testing.T) {
	for _, c := range []struct {
		name         string
		actual, left int64 // of 10, of which 6 were reserved
	}{
		{"nothing", 0, 10},
		{"less than nothing", -5, 10},
		{"less", 2, 8},
		{"as much", 6, 4},
		{"more", 9, 1},
		{"all", 10, 0},
		{"more than there is", 13, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			forEach(t, kinds, setup{limit: 10}, func(t *testing.T, s *subject) {
				want := c.left
				if !s.kind.timed {
					want = 10 // whatever it cost, the permits are released
				}
				s.TryReserve(6).Commit(c.actual)
				s.available(want)

				again := s.kind.new(t, setup{limit: 10})
				l, err := again.Reserve(t.Context(), 6)
				if err != nil {
					t.Fatal(err)
				}
				l.Commit(c.actual)
				again.available(want)
			})
		})
	}
}

// TestReservationOfNothing is charged what it costs in the end, by a limiter of any kind.
func TestReservationOfNothing(t *testing.T) {
	limit := weir.TokenBucket(weir.PerHour(1), 10)
	for _, clock := range []weir.Clock{nil, manualclock.New(1)} {
		bucket := must(weir.New(limit, weir.Options{Clock: clock}))
		window := must(weir.New(weir.FixedWindow(weir.PerHour(10)), weir.Options{Clock: clock}))
		keyed := must(weir.NewKeyed[string](limit, weir.KeyedOptions{Clock: clock}))
		held := must(weir.NewConcurrency(10, weir.Options{Clock: clock}))
		chain := must(weir.NewChain(bucket, window, held))
		commit := func(l weir.Lease, err error) {
			t.Helper()
			if err != nil || !l.Allowed() {
				t.Errorf("%+v, %v", l, err)
			}
			l.Commit(2)
			l.Commit(3)
		}
		commit(bucket.TryReserve(0), nil)
		commit(bucket.Reserve(t.Context(), 0))
		commit(window.TryReserve(0), nil)
		commit(chain.TryReserve(0), nil)
		commit(chain.Reserve(t.Context(), 0))
		commit(keyed.TryReserve("a", 0), nil)
		commit(keyed.Reserve(t.Context(), "a", 0))
		chain.TryReserve(0).Cancel()
		keyed.TryReserve("b", 0).Cancel()
		for what, left := range map[string][2]int64{
			"token bucket": {bucket.Peek(0).Remaining, 2}, "fixed window": {window.Peek(0).Remaining, 4},
			"key": {keyed.Peek("a", 0).Remaining, 6}, "other key": {keyed.Peek("b", 0).Remaining, 10},
			"concurrency": {held.Peek(0).Remaining, 10},
		} {
			if left[0] != left[1] {
				t.Errorf("%s: %d left, want %d", what, left[0], left[1])
			}
		}
	}
}

func TestCancelGivesBackEverythingAtOnce(t *testing.T) {
	forEach(t, withChain, setup{limit: 10}, func(t *testing.T, s *subject) {
		rng := rand.New(rand.NewPCG(5, 6))
		for range 50 {
			var leases []weir.Lease
			for range rng.IntN(10) {
				leases = append(leases, s.TryReserve(1+rng.Int64N(4)))
			}
			rng.Shuffle(len(leases), func(i, j int) { leases[i], leases[j] = leases[j], leases[i] })
			for _, l := range leases {
				l.Cancel()
			}
			s.available(10)
			time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
		}
	})
}

func TestCancelServesThoseWhoWait(t *testing.T) {
	for _, end := range []struct {
		name string
		end  func(weir.Lease)
	}{
		{"cancel", weir.Lease.Cancel},
		{"commit", func(l weir.Lease) { l.Commit(1) }},
	} {
		t.Run(end.name, func(t *testing.T) {
			forEach(t, kinds, setup{limit: 4, queue: 10}, func(t *testing.T, s *subject) {
				l := s.TryReserve(4)
				first, second := s.wait(t.Context(), 2), s.wait(t.Context(), 1)
				expect(t, "waiting waiting", first, second)
				end.end(l)
				expect(t, "granted granted", first, second)
			})
		})
	}
}

func TestCommitOfMoreMakesThoseWhoWaitWaitLonger(t *testing.T) {
	forEach(t, timed, setup{limit: 4, queue: 10}, func(t *testing.T, s *subject) {
		s.take(2)
		time.Sleep(3 * time.Second)
		l := s.TryReserve(2)
		before := s.Peek(2).RetryAfter
		c := s.wait(t.Context(), 2)
		l.Commit(6)
		s.waiting.Wait()
		if c.took <= before || c.state() != "granted" {
			t.Errorf("it is %s after %v, before the debt it would have been %v", c.state(), c.took, before)
		}
	})
}

// TestCancelGivesBackWhatTheBucketStillLacks has the example of Lease.Cancel.
func TestCancelGivesBackWhatTheBucketStillLacks(t *testing.T) {
	forEach(t, timed[:2], setup{limit: 8}, func(t *testing.T, s *subject) { // 1 a second
		l := s.TryReserve(6)
		time.Sleep(2 * time.Second)
		s.available(4)
		l.Cancel() // of a bucket that was full: two have come back by themselves
		s.available(8)

		s.take(8)
		l = s.kind.new(t, setup{limit: 8}).TryReserve(6)
		time.Sleep(6 * time.Second)
		l.Cancel() // all have come back by themselves
		s.available(6)

		s.take(5)
		time.Sleep(7 * time.Second)
		s.available(8)
		s.take(8)
		time.Sleep(2 * time.Second)
		l = s.TryReserve(2) // the bucket was busy: its permits are regained last
		time.Sleep(4 * time.Second)
		s.available(4)
		l.Cancel()
		s.available(6)
	})
}

func TestWindowThatHasEndedRefundsNothing(t *testing.T) {
	forEach(t, kinds[2:4], setup{limit: 4}, func(t *testing.T, s *subject) {
		l := s.TryReserve(3)
		m := s.TryReserve(1)
		time.Sleep(regain)
		s.take(4)
		l.Cancel()
		s.available(0)
		m.Commit(0)
		s.available(0)
	})
}

func TestPermitsAreGivenBackInTheSegmentInWhichTheyWereTaken(t *testing.T) {
	forEach(t, kinds[3:4], setup{limit: 4}, func(t *testing.T, s *subject) { // segments of 2 s
		early := s.TryReserve(2)
		time.Sleep(4 * time.Second)
		late := s.TryReserve(2)
		late.Cancel()
		if d := s.refuse(3, weir.ReasonLimited); d.RetryAfter != 4*time.Second {
			t.Errorf("two are out until 8 s: %+v", d)
		}
		early.Cancel()
		s.available(4)
	})
}

func TestDebtIsPaidBack(t *testing.T) {
	// Of a limit of 4 in 8 s, 4 are reserved after 1 s, and cost 10: the debt is 6.
	want := map[string]time.Duration{
		"token bucket":               14 * time.Second, // until one is available
		"token bucket with a clock":  14 * time.Second,
		"fixed window":               15 * time.Second, // the windows from 8 s and from 16 s on are overdrawn by 6 and 2
		"sliding window":             7 * time.Second,  // what was charged leaves the window
		"approximate sliding window": 7*time.Second + 8*7*time.Second/10,
		"calendar window":            119 * time.Second, // as the fixed window, in minutes
	}
	forEach(t, timed, setup{limit: 4, maxDebt: 100}, func(t *testing.T, s *subject) {
		time.Sleep(time.Second)
		s.TryReserve(4).Commit(10)
		s.available(0)
		if s.idle() >= 0 {
			t.Error("a limiter in debt is idle")
		}
		if d := s.refuse(1, weir.ReasonLimited); d.RetryAfter != want[s.kind.of()] {
			t.Errorf("RetryAfter is %v, want %v", d.RetryAfter, want[s.kind.of()])
		}
		s.refuse(5, weir.ReasonNever)
		time.Sleep(want[s.kind.of()] - 1)
		s.refuse(1, weir.ReasonLimited)
		s.refuse(0, weir.ReasonLimited)
		time.Sleep(1)
		s.take(0)
		s.take(1)
	})
}

func TestDebtBeyondTheLargestIsForgiven(t *testing.T) {
	for _, c := range []struct {
		name                      string
		maxDebt, actual, forgiven int64 // 4 of 4 are reserved
	}{
		{"by default the limit, reached", 0, 8, 0},
		{"by default the limit, exceeded", 0, 11, 3},
		{"three, reached", 3, 7, 0},
		{"three, exceeded", 3, 8, 1},
		{"no debt", weir.NoDebt, 9, 5},
		{"very much", 1e15, 1 << 40, 0},
		{"the largest cost there is", 3, 1<<63 - 1, 1<<63 - 1 - 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			forEach(t, timed, setup{limit: 4, maxDebt: c.maxDebt}, func(t *testing.T, s *subject) {
				s.TryReserve(4).Commit(c.actual)
				st := s.Stats()
				if want := (weir.Stats{Allowed: 1, Forgiven: c.forgiven}); st != want && (c.maxDebt != 1e15 || st.Forgiven <= 0) {
					t.Errorf("Stats() = %+v, want %+v", st, want)
				}
			})
		})
	}
}

// TestForgivenEndsAtTheLargestNumber, also where it is the sum of several limiters or keys.
func TestForgivenEndsAtTheLargestNumber(t *testing.T) {
	limit := weir.TokenBucket(weir.PerHour(1), 10)
	chain := must(weir.NewChain(must(weir.New(limit, weir.Options{})), must(weir.New(limit, weir.Options{}))))
	chain.TryReserve(1).Commit(math.MaxInt64)
	keyed := must(weir.NewKeyed[string](limit, weir.KeyedOptions{}))
	keyed.TryReserve("a", 1).Commit(math.MaxInt64)
	if err := keyset.Of(keyed).Override("b", limit, time.Hour); err != nil {
		t.Fatal(err)
	}
	keyed.TryReserve("b", 1).Commit(math.MaxInt64)
	if c, k := chain.Stats().Forgiven, keyed.Stats().Forgiven; c != math.MaxInt64 || k != math.MaxInt64 {
		t.Errorf("%d by a chain, %d by keys", c, k)
	}
}

func TestNoDebtChargesWhatIsAvailable(t *testing.T) {
	forEach(t, timed, setup{limit: 8, maxDebt: weir.NoDebt}, func(t *testing.T, s *subject) {
		s.TryReserve(2).Commit(5)
		if got, want := s.Stats(), (weir.Stats{Remaining: 3, Allowed: 1}); got != want {
			t.Errorf("Stats() = %+v, want %+v", got, want)
		}
		s.TryReserve(2).Commit(5)
		if got, want := s.Stats(), (weir.Stats{Allowed: 2, Forgiven: 2}); got != want {
			t.Errorf("Stats() = %+v, want %+v", got, want)
		}
	})
}

// TestCommitDebtIsBounded plays random histories of reservations that cost less or more than was reserved. Whatever was charged
// must fit a bucket that is larger by the largest debt, or the windows with as much more, and what was not charged must have been
// counted as forgiven.
func TestCommitDebtIsBounded(t *testing.T) {
	for _, k := range timed {
		t.Run(k.name, func(t *testing.T) {
			for seed := range uint64(100) {
				synctest.Test(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, 13))
					o := setup{limit: 1 + rng.Int64N(12), maxDebt: []int64{0, weir.NoDebt, 1, 5, 40}[rng.IntN(5)]}
					debt := map[int64]int64{0: o.limit, weir.NoDebt: 0}[o.maxDebt]
					if o.maxDebt > 0 {
						debt = o.maxDebt
					}
					playCommits(t, k.new(t, o), rng, o.limit, debt)
				})
			}
		})
	}
}

type charge struct {
	at time.Duration
	n  int64
}

func playCommits(t *testing.T, s *subject, rng *rand.Rand, limit, debt int64) {
	t.Helper()
	start := time.Now()
	var (
		open    []weir.Lease
		began   []int // the charge of each
		charges []charge
	)
	step := time.Duration(1 + rng.Int64N(int64(regain/2)))
	for range 120 {
		switch rng.IntN(3) {
		case 0:
			time.Sleep(time.Duration(rng.Int64N(int64(step))))
		case 1:
			if len(open) == 0 {
				continue
			}
			i := rng.IntN(len(open))
			before := s.Stats()
			actual := rng.Int64N(2*open[i].Permits() + 3)
			open[i].Commit(actual)
			forgiven := s.Stats().Forgiven - before.Forgiven
			over := max(actual-open[i].Permits(), 0)
			charged := over - forgiven
			if charged < 0 || charged > over {
				t.Fatalf("of %d permits more %d are forgiven", over, forgiven)
			}
			if forgiven > 0 && (charged < before.Remaining || charged > before.Remaining+debt) {
				t.Fatalf("of %d permits more %d are forgiven, though %d were available and %d may be owed",
					over, forgiven, before.Remaining, debt)
			}
			charges[began[i]].n = min(actual, open[i].Permits())
			charges = append(charges, charge{time.Since(start), charged})
			open, began = slices.Delete(open, i, i+1), slices.Delete(began, i, i+1)
		default:
			if l := s.TryReserve(1 + rng.Int64N(limit)); l.Allowed() {
				open, began = append(open, l), append(began, len(charges))
				charges = append(charges, charge{time.Since(start), l.Permits()})
			}
		}
	}
	for i, from := range charges {
		var sum int64
		for _, to := range charges[i:] {
			sum += to.n
			if most := chargeable(s.kind, limit, debt, from.at, to.at); sum > most {
				t.Fatalf("limit %d, debt %d: from %v to %v %d permits are charged, more than %d", limit, debt, from.at, to.at, sum, most)
			}
		}
	}
}

// chargeable is how many permits a kind may charge from one time to another, both included, rounded down.
func chargeable(k kind, limit, debt int64, from, to time.Duration) int64 {
	const segment = regain / 4
	switch k.name {
	case "fixed window":
		return limit*int64(to/regain-from/regain+1) + debt
	case "sliding window": // every four segments
		return (limit + debt) * int64((to/segment-from/segment)/4+1)
	case "approximate sliding window":
		return (limit + debt) * int64(to/regain-from/regain+1)
	default:
		return limit + limit*int64(to-from)/int64(regain) + debt
	}
}

// reservation is one of the requests that a history is made of.
type reservation struct {
	at    time.Duration
	n     int64
	lease weir.Lease
}

// TestCancelNeverMints plays random histories of reservations, many of which are canceled, some of them long after, in
// any order. Those that are kept are then asked of a new limiter at the same times, which must grant them all: no
// cancellation has let through what would not have been let through had the canceled requests never come.
func TestCancelNeverMints(t *testing.T) {
	for _, k := range timed {
		t.Run(k.name, func(t *testing.T) {
			for seed := range uint64(500) {
				rng := rand.New(rand.NewPCG(seed, 11))
				limit := 1 + rng.Int64N(12)
				var kept []reservation
				synctest.Test(t, func(t *testing.T) {
					kept = playCancellations(k.new(t, setup{limit: limit}), rng, limit)
				})
				synctest.Test(t, func(t *testing.T) {
					s, start := k.new(t, setup{limit: limit}), time.Now()
					for i, r := range kept {
						time.Sleep(r.at - time.Since(start))
						if l := s.TryAcquire(r.n); !l.Allowed() {
							t.Fatalf("seed %d, limit %d: after %v request %d for %d permits could not have been granted: %+v",
								seed, limit, r.at, i, r.n, l.Decision())
						}
					}
				})
			}
		})
	}
}

// playCancellations returns the reservations that were granted and kept.
func playCancellations(s *subject, rng *rand.Rand, limit int64) (kept []reservation) {
	start := time.Now()
	var open []weir.Lease
	step, keep, cancel := time.Duration(1+rng.Int64N(int64(regain/2))), 1+rng.IntN(9), 1+rng.IntN(9)
	for range 100 {
		switch rng.IntN(3) {
		case 0:
			time.Sleep(time.Duration(rng.Int64N(int64(step))))
		case 1:
			if len(open) > 0 && rng.IntN(10) < cancel {
				i := rng.IntN(len(open))
				open[i].Cancel()
				open = append(open[:i], open[i+1:]...)
			}
		default:
			n := 1 + rng.Int64N(limit)
			l := s.TryReserve(n)
			switch {
			case !l.Allowed():
			case rng.IntN(10) < keep:
				kept = append(kept, reservation{time.Since(start), n, l})
			default:
				open = append(open, l)
			}
		}
	}
	return kept
}
