package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/limits"
)

const testNow = int64(1_790_000_000_123_456_789)

func mustTerms(t testing.TB, l weir.Limit) *terms {
	t.Helper()
	held, err := termsOf(l)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// someLimits are limits of every algorithm.
func someLimits(t testing.TB) []weir.Limit {
	return []weir.Limit{
		weir.TokenBucket(weir.PerSecond(10), 0),
		weir.TokenBucket(weir.Per(7, 3*time.Second), 20),
		weir.TokenBucket(weir.PerSecond(1_000_000), 1),
		weir.FixedWindow(weir.PerMinute(10)),
		weir.SlidingWindow(weir.PerMinute(10), 0),
		weir.SlidingWindow(weir.PerMinute(10), 64),
		weir.SlidingCounter(weir.PerMinute(10)),
		weir.AtOnce(10),
		weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarDay}),
		weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarMonth, Zone: zone(t, "Europe/Vienna"), Day: 15, Hour: 8}),
	}
}

// drive makes random changes of a record, and calls each after every one of them.
func drive(t testing.TB, rng *rand.Rand, r *record, steps int, each func(r *record)) {
	t.Helper()
	now := r.at
	ids := 0
	for range steps {
		now += rng.Int64N(int64(3 * time.Second))
		r.ready(now, nil)
		n := rng.Int64N(4)
		switch rng.IntN(6) {
		case 0, 1:
			if r.terms.limit.Algorithm() != weir.AlgorithmConcurrency {
				r.take(n)
			}
		case 2, 3:
			if r.take(n).Allowed {
				ids++
				of := ""
				if rng.IntN(5) == 0 && r.terms.limit.Algorithm() != weir.AlgorithmConcurrency {
					of = recordName(recordKey{policy: "policy", key: "key"})
				}
				r.hold(fmt.Sprintf("id-%d", ids), n, r.at+rng.Int64N(int64(time.Minute)), of)
			}
		case 4:
			if len(r.held) > 0 {
				if i := rng.IntN(len(r.held)); rng.IntN(2) == 0 {
					r.cancel(i)
				} else {
					r.commit(i, rng.Int64N(6))
				}
			}
		case 5:
			r.refund(rng.Int64N(2))
		}
		each(r)
	}
}

// TestRecordsAreReadAsTheyWereWritten writes records of every algorithm after random histories.
func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	all := someLimits(t)
	for _, l := range all {
		held := mustTerms(t, l)
		r := newRecord(held, testNow)
		drive(t, rng, r, 300, func(r *record) {
			if rng.IntN(30) == 0 {
				r.finished(fmt.Sprintf("done-%d", rng.Int()), r.at+1e9, 1+rng.Int64N(3))
			}
			if rng.IntN(30) == 0 {
				r.seal(r.at)
			}
			b := r.encode()
			for _, want := range []*terms{held, nil} {
				got, err := decodeRecord(b, want)
				if err != nil {
					t.Fatalf("%v: %v", l, err)
				}
				if got.terms.text != held.text || got.at != r.at || got.sealed != r.sealed || got.unsealed != r.unsealed || !reflect.DeepEqual(got.state, r.state) ||
					len(got.held) != len(r.held) || len(got.held) > 0 && !reflect.DeepEqual(got.held, r.held) ||
					len(got.done) != len(r.done) || len(got.done) > 0 && !reflect.DeepEqual(got.done, r.done) {
					t.Fatalf("%v: read %+v, wrote %+v", l, got, r)
				}
			}
		})
		if len(r.encode()) > 20_000 {
			t.Errorf("%v: %d bytes", l, len(r.encode()))
		}
	}
}

// TestRecordsThatAreCutOrLongerAreRefused cuts records at every byte, and appends to them.
func TestRecordsThatAreCutOrLongerAreRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, l := range someLimits(t) {
		r := newRecord(mustTerms(t, l), testNow)
		drive(t, rng, r, 40, func(*record) {})
		b := r.encode()
		for n := range b {
			if _, err := decodeRecord(b[:n], nil); err == nil {
				t.Errorf("%v: %d of %d bytes were read", l, n, len(b))
			}
		}
		if _, err := decodeRecord(append(bytes.Clone(b), 0), nil); err == nil {
			t.Errorf("%v: a byte too many was read", l)
		}
	}
}

// FuzzDecodeRecord has any bytes read as a record: what is accepted is written as it was, and whatever is asked of it
// afterwards neither fails nor answers what cannot be.
func FuzzDecodeRecord(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, l := range someLimits(f) {
		r := newRecord(mustTerms(f, l), testNow)
		f.Add(r.encode(), testNow, int64(1))
		drive(f, rng, r, 30, func(*record) {})
		r.finished("request", r.at+5, 2)
		r.seal(r.at)
		f.Add(r.encode(), testNow+int64(time.Minute), int64(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, now, n int64) {
		r, err := decodeRecord(b, nil)
		if err != nil {
			return
		}
		if again := r.encode(); !bytes.Equal(again, b) {
			t.Fatalf("%x was read and written as %x", b, again)
		}
		if !validTime(now) || n < 0 || n > algo.MaxPermits {
			return
		}
		most := r.terms.most
		check := func(what string, n int64, res algo.Result) {
			if res.Remaining < 0 || res.Remaining > most || res.RetryAfter < 0 || res.ResetAfter < 0 || res.Allowed && n > most {
				t.Fatalf("%s: %+v of %v", what, res, r.terms.limit)
			}
		}
		r.ready(now, nil)
		check("peek", n, r.peek(n))
		if res := r.take(n); res.Allowed {
			r.hold("id", n, r.at+1, "")
			check("take", n, res)
		}
		for len(r.held) > 1 {
			r.commit(len(r.held)-1, n)
			r.cancel(0)
		}
		r.refund(n)
		if r.terms.limit.Algorithm() != weir.AlgorithmConcurrency {
			_, res := r.lend(1, max(n, 1))
			check("lend", 1, res)
			r.takeBack(n, now)
			check("debit", 0, r.debit(n))
		}
		check("peek", n, r.peek(n))
		r.freshAt()
		r.ready(min(now, latest-int64(time.Hour))+int64(time.Hour), nil)
		for _, n := range []int64{3, 7} {
			r.carry(mustTerms(t, limits.WithPermits(r.terms.limit, n)))
			most = r.terms.most
			check("carried", 0, r.peek(0))
		}
		r.reset()
		if r.peek(0).Remaining != r.terms.most {
			t.Fatalf("after reset: %+v", r)
		}
	})
}

// pairsOfLimits are limits of one algorithm each, to be carried to one another.
func pairsOfLimits() [][]weir.Limit {
	day, hour := algo.Calendar{Unit: algo.CalendarDay}, algo.Calendar{Unit: algo.CalendarHour, Minute: 30}
	return [][]weir.Limit{
		{weir.TokenBucket(weir.PerSecond(1), 10), weir.TokenBucket(weir.Per(7, 3*time.Second), 5), weir.TokenBucket(weir.Per(1, 3*time.Second), 30)},
		{weir.FixedWindow(weir.PerMinute(10)), weir.FixedWindow(weir.PerMinute(4)), weir.FixedWindow(weir.Per(20, 7*time.Second))},
		{weir.SlidingWindow(weir.PerMinute(10), 0), weir.SlidingWindow(weir.PerMinute(4), 0), weir.SlidingWindow(weir.Per(20, 7*time.Second), 3)},
		{weir.SlidingCounter(weir.PerMinute(10)), weir.SlidingCounter(weir.PerMinute(4)), weir.SlidingCounter(weir.Per(20, 7*time.Second))},
		{weir.AtOnce(10), weir.AtOnce(3)},
		{weir.CalendarWindow(10, day), weir.CalendarWindow(6, hour)},
	}
}

// TestCarriedRecordsMintNothing changes the limit of a record at random while it has reservations. A change makes no more
// permits available than there were, and the end of a reservation no more than it had taken.
func TestCarriedRecordsMintNothing(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, pair := range pairsOfLimits() {
		for range 60 {
			r := newRecord(mustTerms(t, pair[0]), testNow)
			drive(t, rng, r, 60, func(r *record) {
				left := r.peek(0).Remaining
				next := mustTerms(t, pair[rng.IntN(len(pair))])
				grown := max(0, next.most-r.terms.most) // what windows hold is counted by what was taken of them
				was := r.terms.limit
				if rng.IntN(3) == 0 {
					if r.carry(next); was.Algorithm() == weir.AlgorithmTokenBucket {
						grown = 0
					}
					if got := r.peek(0).Remaining; got > left+grown || got > next.most {
						t.Fatalf("seed %d: %d are left under %v, and %d under %v", seed, left, was, got, next.limit)
					}
				}
				left = r.peek(0).Remaining
				if len(r.held) > 0 && rng.IntN(4) == 0 {
					i := rng.IntN(len(r.held))
					n := r.held[i].n
					if r.cancel(i); r.peek(0).Remaining > left+n {
						t.Fatalf("seed %d: a reservation of %d brought %d permits to %d", seed, n, left, r.peek(0).Remaining)
					}
				}
				if _, err := decodeRecord(r.encode(), nil); err != nil {
					t.Fatalf("seed %d: %v: %+v", seed, err, r)
				}
			})
		}
	}
}

// TestReservationsSurviveAChangeOfTheLimit cancels at once what was taken under another limit: all of it comes back, where
// windows are new too.
func TestReservationsSurviveAChangeOfTheLimit(t *testing.T) {
	for _, pair := range pairsOfLimits() {
		for _, from := range pair {
			for _, to := range pair {
				r := newRecord(mustTerms(t, from), testNow)
				r.take(3)
				r.hold("id", 3, testNow+1e9, "")
				r.ready(testNow, mustTerms(t, to))
				if i := r.find("id", testNow+1e9); i < 0 {
					t.Fatal("the reservation is gone")
				} else {
					r.cancel(i)
				}
				want := r.terms.most
				if from.Algorithm() == weir.AlgorithmTokenBucket { // what is there is carried, not what is missing
					want = min(want, max(from.Permits(), 3))
				}
				if got := r.peek(0).Remaining; got < want-1 || got > r.terms.most {
					t.Errorf("from %v to %v: %d are left, want %d", from, to, got, want)
				}
			}
		}
	}
}

// TestClockThatIsBehind has a record written by a clock that is ahead of another: by up to MostAhead the record waits, and says so;
// by more the clock was wrong, and the record goes on from now.
func TestClockThatIsBehind(t *testing.T) {
	for _, l := range someLimits(t) {
		for _, ahead := range []time.Duration{
			time.Second, MostAhead, MostAhead + 1, time.Hour, 25 * time.Hour, 20 * 365 * 24 * time.Hour,
		} {
			wrong := testNow + int64(ahead)
			r := newRecord(mustTerms(t, l), wrong)
			for r.take(1).Allowed {
				r.hold(fmt.Sprint(r.at, len(r.held)), 1, wrong+int64(time.Hour), "")
			}
			at, keep := r.ready(testNow, nil)
			if behind := ahead <= MostAhead; behind != (at == wrong) || behind == keep || !behind && at != testNow {
				t.Errorf("%v, ahead by %v: the time is %d (%v)", l, ahead, at-testNow, keep)
			}
			if r.take(1).Allowed {
				t.Errorf("%v, ahead by %v: a clock that is behind minted a permit", l, ahead)
			}
			if keep { // what was taken comes back from now on
				r.ready(testNow+int64(time.Hour), nil)
				if len(r.held) != 0 {
					t.Errorf("%v, ahead by %v: %d reservations have not expired", l, ahead, len(r.held))
				}
				if !r.take(1).Allowed {
					t.Errorf("%v, ahead by %v: frozen: %+v", l, ahead, r)
				}
			}
		}
	}
}

func TestNamesOfRecords(t *testing.T) {
	names := map[string]recordKey{}
	for _, k := range recordKeys([]Charge{
		{Policy: "a", Key: "b:c"},
		{Policy: "a:b", Key: "c"},
		{Policy: "a"},
		{Policy: "1:a", Key: ":"},
		{Policy: "F1:a", Key: "F"},
		{Policy: strings.Repeat("p", MostPolicyBytes), Key: strings.Repeat("k", MostKeyBytes)},
	}) {
		name := recordName(k)
		if read, ok := named(name); !ok || read != k || len(name) > mostNameBytes {
			t.Errorf("%q, of %d bytes, is read as %+v, %v", name, len(name), read, ok)
		}
		if other, twice := names[name]; twice {
			t.Errorf("%q is the name of %+v and %+v", name, other, k)
		}
		names[name] = k
	}
	for _, bad := range []string{"", ":", "1", "0::", "2:a:b", "01:a:b", "-1:a:b", "9:a:b", "1:ab", "T1:a:b", "f1:a:b", "FF1:a:b", "F"} {
		if _, ok := named(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

// TestReservationsUnderAFasterRate carries a bucket that has regained most of what is reserved to one that regains nothing: only the
// rest is given back.
func TestReservationsUnderAFasterRate(t *testing.T) {
	r := newRecord(mustTerms(t, weir.TokenBucket(weir.PerSecond(100), 10)), testNow)
	r.take(5)
	r.hold("id", 5, testNow+1e12, "")
	r.ready(testNow+40e6, mustTerms(t, weir.TokenBucket(weir.PerSecond(1), 10)))
	if res := r.take(9); !res.Allowed || res.Remaining != 0 {
		t.Fatalf("%+v", res)
	}
	if r.cancel(0); r.peek(0).Remaining != 1 {
		t.Errorf("%d permits were given back, want 1", r.peek(0).Remaining)
	}
}

// TestReservationsOfAWindowThatHasEnded carries a window to others, the current one of which happens to have the number of the one in
// which permits were reserved: nothing is given back in it.
func TestReservationsOfAWindowThatHasEnded(t *testing.T) {
	const second = int64(time.Second)
	fixed := func(window time.Duration) *terms {
		return mustTerms(t, weir.FixedWindow(weir.Per(10, window)))
	}
	r := newRecord(fixed(time.Minute), 60*second)
	r.take(3)
	r.hold("id", 3, 1000*second, "")
	r.ready(150*second, fixed(100*time.Second))
	r.take(5)
	if r.cancel(0); r.peek(0).Remaining != 5 {
		t.Errorf("%d are left, want 5", r.peek(0).Remaining)
	}
}

// TestExpiryIsKeptByWhoeverSeesIt looks at a reservation when it expires, and later: that it was canceled then makes a difference to
// what a bucket has regained since.
func TestExpiryIsKeptByWhoeverSeesIt(t *testing.T) {
	clock := &standing{testNow}
	memory, err := NewMemory(MemoryOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	locked, err := NewLocked(NewMemoryLocks(clock), LockedOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Home{"Memory": memory, "Locked": locked} {
		clock.now = testNow
		c := []Charge{{Policy: name, Key: "k", Limit: weir.TokenBucket(weir.PerSecond(1), 10), N: 5}}
		ds := make([]weir.Decision, 1)
		if _, err := Reserve(t.Context(), s, c, ds, 2*time.Second); err != nil || !ds[0].Allowed {
			t.Fatalf("%+v, %v", ds, err)
		}
		if err := Take(t.Context(), s, c, ds); err != nil || !ds[0].Allowed {
			t.Fatalf("%+v, %v", ds, err)
		}
		for _, want := range []int64{5, 7} { // 3 of the 5 had not been regained
			clock.now += int64(2 * time.Second)
			if err := Peek(t.Context(), s, c, ds); err != nil || ds[0].Remaining != want {
				t.Errorf("%s: %d are left, want %d, %v", name, ds[0].Remaining, want, err)
			}
		}
	}
}

// TestReturnAfterTheTimeWentBack returns loans to records whose clock was wrong: nothing that can have come back meanwhile is
// given back, however long ago it seems to be.
func TestReturnAfterTheTimeWentBack(t *testing.T) {
	for _, l := range someLimits(t) {
		if l.Algorithm() == weir.AlgorithmConcurrency {
			continue
		}
		held := mustTerms(t, l)
		const hour = int64(time.Hour)
		for _, at := range []int64{0, 10, 29, 39} { // hours
			r := newRecord(held, testNow+at*hour)
			lent, _ := r.lend(1, held.most)
			loan := r.at
			r.ready(testNow+40*hour, nil) // much has come back, and is lent again
			r.lend(1, held.most)
			for _, now := range []int64{1, 9, 10, 24} {
				r.ready(testNow+now*hour, nil)
				before := r.clone()
				if r.takeBack(lent, loan); !reflect.DeepEqual(r, before) {
					t.Errorf("%v: what was lent at %d h was given back at %d h", l, at, now)
				}
			}
		}
	}
}
