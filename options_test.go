package weir_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
)

const day = 24 * time.Hour

// TestOptionsOutOfRange has every option of every constructor that can be out of range.
func TestOptionsOutOfRange(t *testing.T) {
	bucket := func(change func(o *weir.TokenBucketOptions)) func() error {
		return func() error {
			o := weir.TokenBucketOptions{Rate: weir.PerSecond(10), Burst: 20}
			change(&o)
			_, err := weir.NewTokenBucket(o)
			return err
		}
	}
	fixed := func(change func(o *weir.FixedWindowOptions)) func() error {
		return func() error {
			o := weir.FixedWindowOptions{Limit: 10, Window: time.Second}
			change(&o)
			_, err := weir.NewFixedWindow(o)
			return err
		}
	}
	sliding := func(change func(o *weir.SlidingWindowOptions)) func() error {
		return func() error {
			o := weir.SlidingWindowOptions{Limit: 10, Window: time.Second}
			change(&o)
			_, err := weir.NewSlidingWindow(o)
			return err
		}
	}
	slots := func(change func(o *weir.ConcurrencyOptions)) func() error {
		return func() error {
			o := weir.ConcurrencyOptions{Limit: 10}
			change(&o)
			_, err := weir.NewConcurrency(o)
			return err
		}
	}
	keyed := func(change func(o *weir.KeyedOptions)) func() error {
		return func() error {
			o := weir.KeyedOptions{Rate: weir.PerSecond(10), Burst: 20}
			change(&o)
			_, err := weir.NewKeyed[string](o)
			return err
		}
	}
	mostKeys := int64(1) << 31
	tooManyKeys := int(mostKeys + 1) // negative where an int has 32 bits
	for _, c := range []struct {
		build  func() error
		option string
		text   string
	}{
		{bucket(func(o *weir.TokenBucketOptions) { o.Rate = weir.Rate{} }), "TokenBucketOptions.Rate", "0 permits per 0s: must be from 1 to 10^15 permits"},
		{bucket(func(o *weir.TokenBucketOptions) { o.Rate.Permits = -3 }), "TokenBucketOptions.Rate", "-3 permits per 1s: must be from 1 to 10^15 permits"},
		{bucket(func(o *weir.TokenBucketOptions) { o.Rate.Permits = 1e15 + 1 }), "TokenBucketOptions.Rate", "1000000000000001 permits per 1s: must be from 1 to 10^15 permits"},
		{bucket(func(o *weir.TokenBucketOptions) { o.Rate.Period = 0 }), "TokenBucketOptions.Rate", "10 permits per 0s: must be per 1ns to 87840h (3660 days)"},
		{bucket(func(o *weir.TokenBucketOptions) { o.Rate.Period = -1 }), "TokenBucketOptions.Rate", "10 permits per -1ns: must be per 1ns to 87840h (3660 days)"},
		{bucket(func(o *weir.TokenBucketOptions) { o.Rate.Period = 3660*day + 1 }), "TokenBucketOptions.Rate", "10 permits per 87840h0m0.000000001s: must be per 1ns to 87840h (3660 days)"},
		{bucket(func(o *weir.TokenBucketOptions) { o.Rate = weir.PerSecond(1e9 + 1) }), "TokenBucketOptions.Rate", "1000000001 permits per 1s: must be at most 1000000000 permits per second"},
		{bucket(func(o *weir.TokenBucketOptions) { o.Burst = -1 }), "TokenBucketOptions.Burst", "-1: must be from 1 to 10^15"},
		{bucket(func(o *weir.TokenBucketOptions) { o.Burst = 1e15 + 1 }), "TokenBucketOptions.Burst", "1000000000000001: must be from 1 to 10^15"},
		{bucket(func(o *weir.TokenBucketOptions) { o.Rate, o.Burst = weir.PerDay(1), 18301 }), "TokenBucketOptions.Burst", "18301: must be small enough to be regained within 439200h (18300 days)"},
		{bucket(func(o *weir.TokenBucketOptions) { o.QueueLimit = -1 }), "TokenBucketOptions.QueueLimit", "-1: must be from 0 to 10^15"},
		{bucket(func(o *weir.TokenBucketOptions) { o.QueueLimit = 1e15 + 1 }), "TokenBucketOptions.QueueLimit", "1000000000000001: must be from 0 to 10^15"},
		{bucket(func(o *weir.TokenBucketOptions) { o.QueueOrder = 2 }), "TokenBucketOptions.QueueOrder", "Order(2): must be OldestFirst or NewestFirst"},
		{bucket(func(o *weir.TokenBucketOptions) { o.MaxDebt = -2 }), "TokenBucketOptions.MaxDebt", "-2: must be from 1 to 10^15 permits, 0 for the limit, or NoDebt"},
		{bucket(func(o *weir.TokenBucketOptions) { o.MaxDebt = 1e15 + 1 }), "TokenBucketOptions.MaxDebt", "1000000000000001: must be from 1 to 10^15 permits, 0 for the limit, or NoDebt"},

		{fixed(func(o *weir.FixedWindowOptions) { o.Limit = 0 }), "FixedWindowOptions.Limit", "0: must be from 1 to 10^15"},
		{fixed(func(o *weir.FixedWindowOptions) { o.Limit = -1 }), "FixedWindowOptions.Limit", "-1: must be from 1 to 10^15"},
		{fixed(func(o *weir.FixedWindowOptions) { o.Limit = 1e15 + 1 }), "FixedWindowOptions.Limit", "1000000000000001: must be from 1 to 10^15"},
		{fixed(func(o *weir.FixedWindowOptions) { o.Window = 0 }), "FixedWindowOptions.Window", "0s: must be from 1ns to 87840h (3660 days)"},
		{fixed(func(o *weir.FixedWindowOptions) { o.Window = -time.Second }), "FixedWindowOptions.Window", "-1s: must be from 1ns to 87840h (3660 days)"},
		{fixed(func(o *weir.FixedWindowOptions) { o.Window = 3661 * day }), "FixedWindowOptions.Window", "87864h0m0s: must be from 1ns to 87840h (3660 days)"},
		{fixed(func(o *weir.FixedWindowOptions) { o.QueueLimit = -1 }), "FixedWindowOptions.QueueLimit", "-1: must be from 0 to 10^15"},
		{fixed(func(o *weir.FixedWindowOptions) { o.QueueOrder = 9 }), "FixedWindowOptions.QueueOrder", "Order(9): must be OldestFirst or NewestFirst"},
		{fixed(func(o *weir.FixedWindowOptions) { o.MaxDebt = -9 }), "FixedWindowOptions.MaxDebt", "-9: must be from 1 to 10^15"},

		{sliding(func(o *weir.SlidingWindowOptions) { o.Limit = 0 }), "SlidingWindowOptions.Limit", "0: must be from 1 to 10^15"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.Limit = 1e15 + 1 }), "SlidingWindowOptions.Limit", "1000000000000001: must be from 1 to 10^15"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.Window = 0 }), "SlidingWindowOptions.Window", "0s: must be from 1ns to 87840h (3660 days)"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.Window = 3661 * day }), "SlidingWindowOptions.Window", "87864h0m0s: must be from 1ns to 87840h (3660 days)"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.Segments = -1 }), "SlidingWindowOptions.Segments", "-1: must be from 1 to 64"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.Segments = 65 }), "SlidingWindowOptions.Segments", "65: must be from 1 to 64"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.Window = 9 }), "SlidingWindowOptions.Segments", "10: must be from 1 to 9, as a segment is at least 1ns long"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.Approximate, o.Segments = true, 3 }), "SlidingWindowOptions.Segments", "3: must be 0 when Approximate is set"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.Approximate, o.Limit = true, 0 }), "SlidingWindowOptions.Limit", "0: must be from 1 to 10^15"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.Approximate, o.Window = true, -1 }), "SlidingWindowOptions.Window", "-1ns: must be from 1ns to 87840h (3660 days)"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.QueueLimit = -1 }), "SlidingWindowOptions.QueueLimit", "-1: must be from 0 to 10^15"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.QueueOrder = 3 }), "SlidingWindowOptions.QueueOrder", "Order(3): must be OldestFirst or NewestFirst"},
		{sliding(func(o *weir.SlidingWindowOptions) { o.MaxDebt = -2 }), "SlidingWindowOptions.MaxDebt", "-2: must be from 1 to 10^15"},

		{slots(func(o *weir.ConcurrencyOptions) { o.Limit = 0 }), "ConcurrencyOptions.Limit", "0: must be from 1 to 10^15"},
		{slots(func(o *weir.ConcurrencyOptions) { o.Limit = -1 }), "ConcurrencyOptions.Limit", "-1: must be from 1 to 10^15"},
		{slots(func(o *weir.ConcurrencyOptions) { o.Limit = 1e15 + 1 }), "ConcurrencyOptions.Limit", "1000000000000001: must be from 1 to 10^15"},
		{slots(func(o *weir.ConcurrencyOptions) { o.QueueLimit = -1 }), "ConcurrencyOptions.QueueLimit", "-1: must be from 0 to 10^15"},
		{slots(func(o *weir.ConcurrencyOptions) { o.QueueOrder = 255 }), "ConcurrencyOptions.QueueOrder", "Order(255): must be OldestFirst or NewestFirst"},

		{keyed(func(o *weir.KeyedOptions) { o.Rate = weir.Rate{} }), "KeyedOptions.Rate", "0 permits per 0s: must be from 1 to 10^15 permits"},
		{keyed(func(o *weir.KeyedOptions) { o.Burst = -1 }), "KeyedOptions.Burst", "-1: must be from 1 to 10^15"},
		{keyed(func(o *weir.KeyedOptions) { o.MaxKeys = -1 }), "KeyedOptions.MaxKeys", "-1: must be from 1 to 2147483648"},
		{keyed(func(o *weir.KeyedOptions) { o.MaxKeys = tooManyKeys }), "KeyedOptions.MaxKeys", strconv.Itoa(tooManyKeys) + ": must be from 1 to 2147483648"},
		{keyed(func(o *weir.KeyedOptions) { o.WhenFull = 2 }), "KeyedOptions.WhenFull", "WhenFull(2): must be Deny or Admit"},
	} {
		err := c.build()
		if err == nil {
			t.Errorf("%s: %s: no error", c.option, c.text)
			continue
		}
		if option, ok := errors.AsType[*weir.OptionError](err); !ok || option.Option != c.option {
			t.Errorf("%s: error %T %+v", c.option, err, err)
		}
		if want := "weir: " + c.option + " is " + c.text; !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %q, want %q", err, want)
		}
	}
}

func TestOptionsAtTheEndsOfTheirRange(t *testing.T) {
	for _, o := range []weir.TokenBucketOptions{
		{Rate: weir.PerSecond(1)},
		{Rate: weir.PerSecond(1e9), Burst: 1e15, QueueLimit: 1e15, MaxDebt: 1e15, QueueOrder: weir.NewestFirst},
		{Rate: weir.Per(1, 1), Burst: 1},
		{Rate: weir.Per(1e15, 1e15), Burst: 1e15},
		{Rate: weir.Per(1, 3660*day), Burst: 5, MaxDebt: weir.NoDebt},
		{Rate: weir.PerDay(1), Burst: 18300},
		{Rate: weir.Per(3, 7), Burst: 1},
	} {
		b, err := weir.NewTokenBucket(o)
		if err != nil {
			t.Errorf("%+v: %v", o, err)
			continue
		}
		burst := o.Burst
		if burst == 0 {
			burst = o.Rate.Permits
		}
		if l := b.TryAcquire(burst); !l.Allowed() || l.Decision().Limit != burst {
			t.Errorf("%+v: all of the burst is refused: %+v", o, l.Decision())
		}
	}
	for _, o := range []weir.FixedWindowOptions{
		{Limit: 1, Window: 1},
		{Limit: 1e15, Window: 3660 * day, QueueLimit: 1e15, MaxDebt: 1e15, QueueOrder: weir.NewestFirst},
	} {
		if w, err := weir.NewFixedWindow(o); err != nil || !w.TryAcquire(o.Limit).Allowed() {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []weir.SlidingWindowOptions{
		{Limit: 1, Window: 10},
		{Limit: 1, Window: 1, Segments: 1},
		{Limit: 1, Window: 1, Approximate: true},
		{Limit: 1e15, Window: 3660 * day, Segments: 64, QueueLimit: 1e15, MaxDebt: 1e15},
		{Limit: 1e15, Window: 3660 * day, Approximate: true, QueueLimit: 1e15, MaxDebt: 1e15},
	} {
		if w, err := weir.NewSlidingWindow(o); err != nil || !w.TryAcquire(o.Limit).Allowed() {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []weir.ConcurrencyOptions{{Limit: 1}, {Limit: 1e15, QueueLimit: 1e15, QueueOrder: weir.NewestFirst}} {
		if c, err := weir.NewConcurrency(o); err != nil || !c.TryAcquire(o.Limit).Allowed() {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []weir.KeyedOptions{{Rate: weir.PerSecond(1), MaxKeys: 1}, {Rate: weir.PerSecond(1), WhenFull: weir.Admit}} {
		if k, err := weir.NewKeyed[int](o); err != nil || !k.Allow(1) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	b, err := weir.NewTokenBucket(weir.TokenBucketOptions{Rate: weir.PerMinute(8)})
	if err != nil {
		t.Fatal(err)
	}
	if d := b.Peek(1); d.Limit != 8 || d.Policy != "" {
		t.Errorf("the burst is by default that of the rate, the name empty: %+v", d)
	}
	k, err := weir.NewKeyed[string](weir.KeyedOptions{Rate: weir.PerMinute(8)})
	if err != nil {
		t.Fatal(err)
	}
	if d := k.Peek("a", 1); d.Limit != 8 || k.Stats().MaxKeys != 1_000_000 {
		t.Errorf("%+v, %+v", d, k.Stats())
	}
}

func TestTextOfOrdersAndReasons(t *testing.T) {
	for got, want := range map[string]string{
		weir.OldestFirst.String(): "oldest-first", weir.NewestFirst.String(): "newest-first", weir.Order(2).String(): "Order(2)",
		weir.Deny.String(): "deny", weir.Admit.String(): "admit", weir.WhenFull(2).String(): "WhenFull(2)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	want := []string{
		"none", "limited", "never", "queue-full", "deadline", "evicted", "canceled", "closed", "table-full", "invalid",
		"soft-throttle", "hard-lockout", "tracking-cap", "overloaded", "unavailable",
	}
	for i, name := range want {
		r := weir.Reason(i)
		text, err := r.MarshalText()
		if r.String() != name || string(text) != name || err != nil {
			t.Errorf("reason %d is %q, %q, %v, want %q", i, r, text, err, name)
		}
		var back weir.Reason
		if err := back.UnmarshalText(text); err != nil || back != r {
			t.Errorf("%q is read as %v, %v", text, back, err)
		}
	}
	if got := weir.Reason(len(want)).String(); got != "Reason(15)" {
		t.Errorf("an unknown reason is %q", got)
	}
	r := weir.ReasonClosed
	err := r.UnmarshalText([]byte("perhaps"))
	if err == nil || err.Error() != `weir: unknown reason "perhaps"` || r != weir.ReasonClosed {
		t.Errorf("%v, %v", r, err)
	}
}
