package weir_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

// chosen returns a Keyed whose keys are held to what limit is at the moment.
func chosen(t *testing.T, usual weir.Limit, o weir.KeyedOptions, limit *atomic.Pointer[weir.Limit]) *weir.Keyed[string] {
	t.Helper()
	k, err := anyKeyed(usual, o, func(string) weir.Limit {
		if l := limit.Load(); l != nil {
			return *l
		}
		return weir.Limit{}
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func remaining[K comparable](t *testing.T, k *weir.Keyed[K], key K, want int64) {
	t.Helper()
	if got := k.Peek(key, 0).Remaining; got != want {
		t.Fatalf("%d permits remain, want %d", got, want)
	}
}

func TestKeyedFuncChoosesForEachKey(t *testing.T) {
	plans := map[string]weir.Limit{
		"free": weir.TokenBucket(weir.PerDay(1), 1),
		"paid": weir.TokenBucket(weir.PerDay(100), 10),
	}
	o := weir.KeyedOptions{Clock: manualclock.New(1)}
	k, err := weir.NewKeyedFunc(weir.TokenBucket(weir.PerDay(3), 0), o, func(key string) weir.Limit { return plans[key] })
	if err != nil {
		t.Fatal(err)
	}
	for key, limit := range map[string]int64{"free": 1, "paid": 10, "anybody": 3} {
		d := k.Take(key, limit)
		if !d.Allowed || d.Limit != limit || d.Remaining != 0 {
			t.Errorf("%s: %+v", key, d)
		}
		if d := k.Take(key, 1); d.Allowed || d.RetryAfter <= 0 {
			t.Errorf("%s: %+v", key, d)
		}
		if d := k.Take(key, limit+1); d.Reason != weir.ReasonNever {
			t.Errorf("%s: %+v", key, d)
		}
	}
	if _, err := weir.NewKeyedFunc[string](weir.TokenBucket(weir.PerMinute(3), 0), weir.KeyedOptions{}, nil); err == nil {
		t.Error("no function is no error")
	}
}

// TestChangedLimitKeepsTheState changes the limit of a key that has used a part of it.
func TestChangedLimitKeepsTheState(t *testing.T) {
	for _, c := range []struct {
		name                 string
		old, new             weir.Limit
		taken, before, after int64
	}{
		{"raised", weir.TokenBucket(weir.PerHour(10), 0), weir.TokenBucket(weir.PerHour(50), 0), 7, 3, 3},
		{"lowered, still enough", weir.TokenBucket(weir.PerHour(10), 0), weir.TokenBucket(weir.PerHour(5), 0), 7, 3, 3},
		{"lowered below what is left", weir.TokenBucket(weir.PerHour(10), 0), weir.TokenBucket(weir.PerHour(5), 0), 1, 9, 5},
		{
			"fixed window raised",
			weir.FixedWindow(weir.PerHour(10)),
			weir.FixedWindow(weir.PerHour(50)),
			7, 3, 43,
		},
		{
			"fixed window lowered",
			weir.FixedWindow(weir.PerHour(10)),
			weir.FixedWindow(weir.PerHour(5)),
			7, 3, 0,
		},
		{
			"fixed window of another length",
			weir.FixedWindow(weir.PerHour(10)),
			weir.FixedWindow(weir.PerDay(20)),
			7, 3, 13,
		},
		{
			"sliding window",
			weir.SlidingWindow(weir.PerHour(10), 0),
			weir.SlidingWindow(weir.PerDay(8), 0),
			7, 3, 1,
		},
		{
			"sliding counter",
			weir.SlidingCounter(weir.PerHour(10)),
			weir.SlidingCounter(weir.PerHour(8)),
			7, 3, 1,
		},
		{
			"concurrency",
			weir.AtOnce(10),
			weir.AtOnce(20),
			7, 3, 13,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var limit atomic.Pointer[weir.Limit]
				k := chosen(t, c.old, weir.KeyedOptions{}, &limit)
				k.TryAcquire("a", c.taken)
				remaining(t, k, "a", c.before)
				limit.Store(&c.new)
				remaining(t, k, "a", c.after)
				if d := k.Peek("a", 1); d.Limit != c.new.Permits() {
					t.Errorf("%+v", d)
				}
				if c.new.Algorithm() == weir.AlgorithmConcurrency {
					return
				}
				d := k.Peek("a", 0)
				if d.ResetAfter > 0 {
					time.Sleep(d.ResetAfter - 1)
					if early := k.Peek("a", d.Limit); early.Allowed {
						t.Errorf("all permits are back too early: %+v", early)
					}
					time.Sleep(1)
				}
				if d = k.Take("a", d.Limit); !d.Allowed {
					t.Errorf("not all permits are back: %+v", d)
				}
			})
		})
	}
}

// TestChangeServesWaiters raises the limit of a key that a call waits for, and lowers it below what another call waits for.
func TestChangeServesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limit atomic.Pointer[weir.Limit]
		k := chosen(t, weir.AtOnce(4), weir.KeyedOptions{QueueLimit: 10}, &limit)
		defer k.Close()
		held := k.TryAcquire("a", 4)
		results := make(chan string, 3)
		for _, n := range []int64{1, 4, 2} {
			go func() {
				l, err := k.Acquire(t.Context(), "a", n)
				results <- fmt.Sprintf("%d %v %v", n, l.Decision().Reason, errors.Is(err, weir.ErrRefused))
			}()
			synctest.Wait()
		}
		limit.Store(new(weir.AtOnce(3)))
		if d := k.Peek("a", 1); d.Limit != 3 || d.Allowed {
			t.Errorf("%+v", d)
		}
		if got := <-results; got != "4 never true" {
			t.Errorf("%s", got)
		}
		limit.Store(new(weir.AtOnce(7)))
		k.Peek("a", 0)
		got := []string{<-results, <-results}
		slices.Sort(got)
		if want := []string{"1 none false", "2 none false"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		remaining(t, k, "a", 0)
		held.Release()
		remaining(t, k, "a", 4)
		if st := k.Stats(); st.Waiters != 0 || st.Queued != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestUnusableLimitsAreRefused(t *testing.T) {
	for _, l := range []weir.Limit{
		weir.TokenBucket(weir.PerSecond(-1), 0),
		weir.TokenBucket(weir.PerSecond(1), -1),
		weir.FixedWindow(weir.PerSecond(1)),
	} {
		var limit atomic.Pointer[weir.Limit]
		limit.Store(&l)
		k := chosen(t, weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{}, &limit)
		for range 2 {
			if d := k.Take("a", 1); d.Allowed || d.Reason != weir.ReasonInvalid || d.RetryAfter != weir.Never {
				t.Errorf("%v: %+v", l, d)
			}
		}
		if k.Allow("a") || k.Peek("a", 1).Allowed || k.TryReserve("a", 1).Allowed() {
			t.Errorf("%v is used", l)
		}
		var o *weir.OptionError
		l, err := k.Acquire(t.Context(), "a", 1)
		if l.Allowed() || l.Decision().Reason != weir.ReasonInvalid || !errors.Is(err, weir.ErrRefused) || !errors.As(err, &o) {
			t.Errorf("Acquire: %+v, %v", l.Decision(), err)
		}
		if err = k.TryAcquire("a", 1).Err(); !errors.Is(err, weir.ErrRefused) || !strings.HasSuffix(err.Error(), "cannot be used") {
			t.Errorf("Err() = %v", err)
		}
	}
}

func TestOverride(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		k := mustKeyed[string](t, weir.TokenBucket(weir.PerMinute(60), 10), weir.KeyedOptions{Clock: clock})
		defer k.Close()
		k.Take("a", 4)
		if err := keyset.Of(k).Override("a", weir.TokenBucket(weir.PerMinute(60), 3), time.Hour); err != nil {
			t.Fatal(err)
		}
		remaining(t, k, "a", 3)
		remaining(t, k, "b", 10)
		if d := k.Take("a", 4); d.Reason != weir.ReasonNever || d.Limit != 3 {
			t.Errorf("%+v", d)
		}
		if st := k.Stats(); st.Overridden != 1 {
			t.Errorf("%+v", st)
		}
		// Another one takes its place; what is available is kept.
		if err := keyset.Of(k).Override("a", weir.TokenBucket(weir.PerSecond(1001), 5000), 2*time.Second); err != nil {
			t.Fatal(err)
		}
		remaining(t, k, "a", 3)
		time.Sleep(2*time.Second - 1)
		remaining(t, k, "a", 2004)
		time.Sleep(1)
		remaining(t, k, "a", 10)
		synctest.Wait()
		if st := k.Stats(); st.Overridden != 0 || keyset.Of(k).Restore("a") {
			t.Errorf("%+v", st)
		}
		if err := keyset.Of(k).Override("new", weir.TokenBucket(weir.PerMinute(1), 0), time.Hour); err != nil {
			t.Fatal(err)
		}
		if !k.Allow("new") || k.Allow("new") {
			t.Error("a new key is not held to its override")
		}
		if !keyset.Of(k).Restore("new") || keyset.Of(k).Restore("new") {
			t.Error("Restore")
		}
		remaining(t, k, "new", 0)
	})
}

func TestOverrideNamesWhatIsWrong(t *testing.T) {
	k := mustKeyed[string](t, weir.SlidingWindow(weir.PerSecond(3), 3), weir.KeyedOptions{MaxKeys: 1})
	for _, c := range []struct {
		limit weir.Limit
		d     time.Duration
		want  string
	}{
		{weir.TokenBucket(weir.PerSecond(1), 0), 1, "weir: Override.limit.Algorithm is token-bucket: must be sliding-window, as for all keys"},
		{weir.SlidingWindow(weir.PerSecond(3), 4), 1, "weir: Override.limit.Segments is 4: must be 3, as for all keys"},
		{weir.SlidingWindow(weir.PerSecond(3), 3), 0, "weir: Override.d is 0s: must be from 1ns to 87840h (3660 days)"},
	} {
		var o *weir.OptionError
		if err := keyset.Of(k).Override("a", c.limit, c.d); !errors.As(err, &o) || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	fits := weir.SlidingWindow(weir.PerSecond(9), 3)
	if err := keyset.Of(k).Override("a", fits, time.Hour); err != nil {
		t.Error(err)
	}
	if err := keyset.Of(k).Override("b", fits, time.Hour); !errors.Is(err, keyset.ErrTableFull) {
		t.Error(err)
	}
	k.Close()
	if err := keyset.Of(k).Override("a", fits, time.Hour); !errors.Is(err, weir.ErrClosed) {
		t.Error(err)
	}
}

// TestOverriddenKeyIsNotForgotten lets other keys take every place.
func TestOverriddenKeyIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := mustKeyed[int](t, weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{MaxKeys: 10})
		defer k.Close()
		if err := keyset.Of(k).Override(-1, weir.TokenBucket(weir.PerSecond(5), 0), time.Hour); err != nil {
			t.Fatal(err)
		}
		for key := range 1000 {
			if !k.Allow(key) {
				time.Sleep(time.Second)
			}
		}
		if d := k.Peek(-1, 5); !d.Allowed || d.Limit != 5 {
			t.Errorf("%+v", d)
		}
	})
}

func TestTopAndAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := mustKeyed[string](t, weir.TokenBucket(weir.PerHour(10), 0), weir.KeyedOptions{QueueLimit: 5})
		defer k.Close()
		for i := range int64(9) {
			k.Take(fmt.Sprint("user ", i), i+1)
		}
		for range 3 {
			k.Take("user 8", 5)
		}
		if top := keyset.Of(k).Top(0); top != nil {
			t.Errorf("%+v", top)
		}
		top := keyset.Of(k).Top(2)
		if len(top) != 2 {
			t.Fatalf("%+v", top)
		}
		for i, want := range []keyset.State[string]{
			{Key: "user 8", Named: true, Limit: 10, Remaining: 1, ResetAfter: 54 * time.Minute, Refused: 3},
			{Key: "user 7", Named: true, Limit: 10, Remaining: 2, ResetAfter: 48 * time.Minute},
		} {
			got := top[i]
			if got.ID == "" {
				t.Error("a key has no ID")
			}
			if got.Held.String() != "10/h, burst 10" {
				t.Errorf("it is held to %v", got.Held)
			}
			if got.ID, got.Held = "", want.Held; got != want {
				t.Errorf("%d: %+v, want %+v", i, got, want)
			}
		}
		seen := map[string]bool{}
		for s := range keyset.Of(k).All() {
			if seen[s.ID] {
				t.Errorf("%s is seen twice", s.ID)
			}
			seen[s.ID] = true
		}
		if len(seen) != 9 {
			t.Errorf("%d keys are seen, want 9", len(seen))
		}
		for range keyset.Of(k).All() {
			break
		}
	})
}

func TestTopPutsWhoIsWaitedForFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := mustKeyed[string](t, weir.TokenBucket(weir.PerHour(10), 0), weir.KeyedOptions{QueueLimit: 5})
		defer k.Close()
		k.Take("busy", 10)
		k.Take("waited for", 8)
		go k.Acquire(t.Context(), "waited for", 3) // it waits until the limiter is closed
		synctest.Wait()
		if err := keyset.Of(k).Override("overridden", weir.TokenBucket(weir.PerHour(1), 0), time.Hour); err != nil {
			t.Fatal(err)
		}
		top := keyset.Of(k).Top(10)
		if len(top) != 3 || top[0].Key != "waited for" || top[0].Queued != 3 || top[0].Waiters != 1 || top[1].Key != "busy" ||
			top[2].Overridden != time.Hour || top[2].Limit != 1 {
			t.Errorf("%+v", top)
		}
	})
}

func TestBytesAreKeysLikeStrings(t *testing.T) {
	k := mustKeyed[string](t, weir.TokenBucket(weir.PerHour(1), 3), weir.KeyedOptions{})
	key := []byte("alice")
	if !keyset.AllowBytes(k, key) || !k.Allow("alice") || !keyset.TakeBytes(k, key, 1).Allowed || keyset.AllowBytes(k, key) {
		t.Error("alice has not three permits")
	}
	copy(key, "bobby")
	if !keyset.AllowBytes(k, key) {
		t.Error("the key of a refusal is kept, not a copy of it")
	}
	if !keyset.AllowBytes(k, nil) || !k.Allow("") || k.Peek("", 1).Remaining != 1 {
		t.Error("no bytes are not the empty string")
	}
	if top := keyset.Of(k).Top(1); len(top) != 1 || top[0].Key != "alice" || top[0].Refused != 1 {
		t.Errorf("%+v", top)
	}
	if n := testing.AllocsPerRun(100, func() { keyset.AllowBytes(k, key); keyset.TakeBytes(k, key, 1) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestLongKeysAreNotKept has strangers send keys that would fill the memory if they were remembered by name.
func TestLongKeysAreNotKept(t *testing.T) {
	k := mustKeyed[string](t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})
	long := strings.Repeat("x", 256)
	for _, key := range []string{long, long + "y"} {
		if !k.Allow(key) || k.Allow(key) || k.Take(key, 1).Allowed {
			t.Errorf("a key of %d bytes has not one permit", len(key))
		}
	}
	for _, s := range keyset.Of(k).Top(2) {
		if s.Named != (s.Refused == 2) || s.Named != (s.Key == long) {
			t.Errorf("%+v", s)
		}
	}
}

func TestLimitText(t *testing.T) {
	for text, l := range map[string]weir.Limit{
		"10/s, burst 20":                    weir.TokenBucket(weir.PerSecond(10), 20),
		"8/min, burst 8":                    weir.TokenBucket(weir.PerMinute(8), 0),
		"fixed-window 100/min":              weir.FixedWindow(weir.PerMinute(100)),
		"sliding-window 5/s in 10 segments": weir.SlidingWindow(weir.PerSecond(5), 0),
		"sliding-counter 5/h":               weir.SlidingCounter(weir.PerHour(5)),
		"3 at once":                         weir.AtOnce(3),
		"3 per month, UTC":                  weir.CalendarWindow(3, algo.Calendar{Unit: algo.CalendarMonth}),
	} {
		if l.String() != text || l.Check() != nil {
			t.Errorf("%q, %v, want %q", l.String(), l.Check(), text)
		}
		if parsed, err := weir.ParseLimit(text); err != nil || parsed != l {
			t.Errorf("%q is read as %v, %v", text, parsed, err)
		}
	}
	for i, name := range []string{"token-bucket", "fixed-window", "sliding-window", "sliding-counter", "concurrency", "calendar-window"} {
		if a := weir.Algorithm(i); a.String() != name {
			t.Errorf("%v, want %s", a, name)
		}
	}
	for want, l := range map[string]weir.Limit{
		"weir: Limit.Rate is 0 permits per 0s: must be from 1 to 10^15 permits": {},
		"weir: Limit.Permits is 0: must be from 1 to 10^15":                     weir.AtOnce(0),
	} {
		if err := l.Check(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPeekTellsThoseWhoWaitTheNewLimit: a look at the key is enough for those who wait under another limit.
func TestPeekTellsThoseWhoWaitTheNewLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limit atomic.Pointer[weir.Limit]
		k := chosen(t, weir.TokenBucket(weir.PerHour(1), 1), weir.KeyedOptions{QueueLimit: 10}, &limit)
		k.Take("a", 1)
		began := time.Now()
		at := make(chan time.Duration, 3)
		for range 3 {
			go func() {
				if l, err := k.Acquire(t.Context(), "a", 1); err != nil || !l.Allowed() {
					t.Error(l.Decision(), err)
				}
				at <- time.Since(began)
			}()
		}
		synctest.Wait()
		limit.Store(new(weir.TokenBucket(weir.PerSecond(1), 1)))
		k.Peek("a", 0)
		for i := range 3 {
			if got, want := <-at, time.Duration(i+1)*time.Second; (got - want).Abs() > time.Microsecond {
				t.Errorf("request %d was allowed after %v, want %v", i, got, want)
			}
		}
	})
}
