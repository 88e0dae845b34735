package weir_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

const day = 24 * time.Hour

// TestLimitsOutOfRange has every parameter of every limit that can be out of range: all that take a limit refuse it with the
// same words.
func TestLimitsOutOfRange(t *testing.T) {
	month := algo.Calendar{Unit: algo.CalendarMonth}
	for _, c := range []struct {
		limit        weir.Limit
		option, text string
	}{
		{weir.Limit{}, "Limit.Rate", "0 permits per 0s: must be from 1 to 10^15 permits"},
		{weir.TokenBucket(weir.Rate{}, 20), "Limit.Rate", "0 permits per 0s: must be from 1 to 10^15 permits"},
		{weir.TokenBucket(weir.PerSecond(-3), 20), "Limit.Rate", "-3 permits per 1s: must be from 1 to 10^15 permits"},
		{weir.TokenBucket(weir.PerSecond(1e15+1), 20), "Limit.Rate", "1000000000000001 permits per 1s: must be from 1 to 10^15 permits"},
		{weir.TokenBucket(weir.Per(10, 0), 20), "Limit.Rate", "10 permits per 0s: must be per 1ns to 87840h (3660 days)"},
		{weir.TokenBucket(weir.Per(10, -1), 20), "Limit.Rate", "10 permits per -1ns: must be per 1ns to 87840h (3660 days)"},
		{weir.TokenBucket(weir.Per(10, 3660*day+1), 20), "Limit.Rate", "10 permits per 87840h0m0.000000001s: must be per 1ns to 87840h (3660 days)"},
		{weir.TokenBucket(weir.PerSecond(1e9+1), 20), "Limit.Rate", "1000000001 permits per 1s: must be at most 1000000000 permits per second"},
		{weir.TokenBucket(weir.PerSecond(10), -1), "Limit.Burst", "-1: must be from 1 to 10^15"},
		{weir.TokenBucket(weir.PerSecond(10), 1e15+1), "Limit.Burst", "1000000000000001: must be from 1 to 10^15"},
		{weir.TokenBucket(weir.PerDay(1), 18301), "Limit.Burst", "18301: must be small enough to be regained within 439200h (18300 days)"},

		{weir.FixedWindow(weir.PerSecond(0)), "Limit.Rate", "0 permits per 1s: must be from 1 to 10^15 permits"},
		{weir.FixedWindow(weir.PerSecond(-1)), "Limit.Rate", "-1 permits per 1s: must be from 1 to 10^15 permits"},
		{weir.FixedWindow(weir.Per(1e15+1, 3660*day)), "Limit.Rate", "1000000000000001 permits per 87840h0m0s: must be from 1 to 10^15 permits"},
		{weir.FixedWindow(weir.PerSecond(1e9 + 1)), "Limit.Rate", "1000000001 permits per 1s: must be at most 1000000000 permits per second"},
		{weir.FixedWindow(weir.Per(10, 0)), "Limit.Rate", "10 permits per 0s: must be per 1ns to 87840h (3660 days)"},
		{weir.FixedWindow(weir.Per(10, -time.Second)), "Limit.Rate", "10 permits per -1s: must be per 1ns to 87840h (3660 days)"},
		{weir.FixedWindow(weir.Per(10, 3661*day)), "Limit.Rate", "10 permits per 87864h0m0s: must be per 1ns to 87840h (3660 days)"},

		{weir.SlidingWindow(weir.PerSecond(0), 0), "Limit.Rate", "0 permits per 1s: must be from 1 to 10^15 permits"},
		{weir.SlidingWindow(weir.PerSecond(1e15+1), 0), "Limit.Rate", "1000000000000001 permits per 1s: must be from 1 to 10^15 permits"},
		{weir.SlidingWindow(weir.PerSecond(1e9+1), 0), "Limit.Rate", "1000000001 permits per 1s: must be at most 1000000000 permits per second"},
		{weir.SlidingWindow(weir.Per(10, 0), 0), "Limit.Rate", "10 permits per 0s: must be per 1ns to 87840h (3660 days)"},
		{weir.SlidingWindow(weir.Per(10, 3661*day), 0), "Limit.Rate", "10 permits per 87864h0m0s: must be per 1ns to 87840h (3660 days)"},
		{weir.SlidingWindow(weir.PerSecond(10), -1), "Limit.Segments", "-1: must be from 1 to 64"},
		{weir.SlidingWindow(weir.PerSecond(10), 65), "Limit.Segments", "65: must be from 1 to 64"},
		{weir.SlidingWindow(weir.Per(5, 9), 0), "Limit.Segments", "10: must be from 1 to 9, as a segment is at least 1ns long"},

		{weir.SlidingCounter(weir.PerSecond(0)), "Limit.Rate", "0 permits per 1s: must be from 1 to 10^15 permits"},
		{weir.SlidingCounter(weir.PerSecond(1e9 + 1)), "Limit.Rate", "1000000001 permits per 1s: must be at most 1000000000 permits per second"},
		{weir.SlidingCounter(weir.Per(10, -1)), "Limit.Rate", "10 permits per -1ns: must be per 1ns to 87840h (3660 days)"},

		{weir.CalendarWindow(0, month), "Limit.Permits", "0: must be from 1 to 10^15"},
		{weir.CalendarWindow(1e15+1, month), "Limit.Permits", "1000000000000001: must be from 1 to 10^15"},
		{weir.CalendarWindow(1, algo.Calendar{}), "Limit.Calendar.Unit", "CalendarUnit(0): must be minute, "},

		{weir.AtOnce(0), "Limit.Permits", "0: must be from 1 to 10^15"},
		{weir.AtOnce(-1), "Limit.Permits", "-1: must be from 1 to 10^15"},
		{weir.AtOnce(1e15 + 1), "Limit.Permits", "1000000000000001: must be from 1 to 10^15"},
	} {
		wrongOption(t, c.limit.Check(), c.option, c.text)
		_, err := anyKeyed(c.limit, weir.KeyedOptions{}, nil)
		wrongOption(t, err, c.option, c.text)
		if c.limit.Algorithm() == weir.AlgorithmConcurrency {
			_, err = weir.NewKeyedConcurrency[string](c.limit.Permits(), weir.KeyedOptions{})
			wrongOption(t, err, c.option, c.text)
			_, err = weir.NewConcurrency(c.limit.Permits(), weir.Options{})
			c.option = "Concurrency limit"
		} else {
			_, err = weir.New(c.limit, weir.Options{})
		}
		wrongOption(t, err, c.option, c.text)
	}
	_, err := weir.New(weir.AtOnce(4), weir.Options{})
	wrongOption(t, err, "New limit", "4 at once: must be one whose permits come back with time: use NewConcurrency")
}

// TestOptionsOutOfRange has every option of every constructor that can be out of range.
func TestOptionsOutOfRange(t *testing.T) {
	type wrong struct {
		change       func(o *weir.Options)
		option, text string
	}
	queues := []wrong{
		{func(o *weir.Options) { o.QueueLimit = -1 }, "Options.QueueLimit", "-1: must be from 0 to 10^15"},
		{func(o *weir.Options) { o.QueueLimit = 1e15 + 1 }, "Options.QueueLimit", "1000000000000001: must be from 0 to 10^15"},
	}
	debts := []wrong{
		{func(o *weir.Options) { o.MaxDebt = -2 }, "Options.MaxDebt", "-2: must be from 1 to 10^15 permits, 0 for the limit, or NoDebt"},
		{func(o *weir.Options) { o.MaxDebt = 1e15 + 1 }, "Options.MaxDebt", "1000000000000001: must be from 1 to 10^15 permits, 0 for the limit, or NoDebt"},
	}
	for _, limit := range []weir.Limit{
		weir.TokenBucket(weir.PerSecond(10), 20),
		weir.FixedWindow(weir.PerSecond(10)),
		weir.SlidingWindow(weir.PerSecond(10), 0),
		weir.SlidingCounter(weir.PerSecond(10)),
		weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarMonth}),
	} {
		for _, c := range append(debts, queues...) {
			var o weir.Options
			c.change(&o)
			_, err := weir.New(limit, o)
			wrongOption(t, err, c.option, c.text)
			_, err = weir.NewKeyed[string](limit, weir.KeyedOptions{QueueLimit: o.QueueLimit, NewestFirst: o.NewestFirst, MaxDebt: o.MaxDebt})
			wrongOption(t, err, "Keyed"+c.option, c.text)
		}
	}
	for _, c := range append(queues, wrong{
		func(o *weir.Options) { o.MaxDebt = 1 }, "Options.MaxDebt", "1: must be 0, as permits come back when they are released",
	}) {
		var o weir.Options
		c.change(&o)
		_, err := weir.NewConcurrency(10, o)
		wrongOption(t, err, c.option, c.text)
	}
	mostKeys := int64(1) << 31
	tooManyKeys := int(mostKeys + 1) // negative where an int has 32 bits
	for _, c := range []struct {
		o            weir.KeyedOptions
		option, text string
	}{
		{weir.KeyedOptions{MaxKeys: -1}, "KeyedOptions.MaxKeys", "-1: must be from 1 to 2147483648"},
		{weir.KeyedOptions{MaxKeys: tooManyKeys}, "KeyedOptions.MaxKeys", strconv.Itoa(tooManyKeys) + ": must be from 1 to 2147483648"},
	} {
		_, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), 20), c.o)
		wrongOption(t, err, c.option, c.text)
	}
}

// wrongOption checks that err names the option, and says text of it.
func wrongOption(t *testing.T, err error, option, text string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: %s: no error", option, text)
		return
	}
	if wrong, ok := errors.AsType[*weir.OptionError](err); !ok || wrong.Option != option {
		t.Errorf("%s: error %T %+v", option, err, err)
	}
	if want := "weir: " + option + " is " + text; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestOptionsAtTheEndsOfTheirRange(t *testing.T) {
	for _, c := range []struct {
		limit weir.Limit
		o     weir.Options
	}{
		{weir.TokenBucket(weir.PerSecond(1), 0), weir.Options{}},
		{weir.TokenBucket(weir.PerSecond(1e9), 1e15), weir.Options{QueueLimit: 1e15, MaxDebt: 1e15, NewestFirst: true}},
		{weir.TokenBucket(weir.Per(1, 1), 1), weir.Options{}},
		{weir.TokenBucket(weir.Per(1e15, 1e15), 1e15), weir.Options{}},
		{weir.TokenBucket(weir.Per(1, 3660*day), 5), weir.Options{MaxDebt: weir.NoDebt}},
		{weir.TokenBucket(weir.PerDay(1), 18300), weir.Options{}},
		{weir.TokenBucket(weir.Per(3, 7), 1), weir.Options{}},
		{weir.FixedWindow(weir.Per(1, 1)), weir.Options{}},
		{weir.FixedWindow(weir.PerSecond(1e9)), weir.Options{}},
		{weir.FixedWindow(weir.Per(1e15, 3660*day)), weir.Options{QueueLimit: 1e15, MaxDebt: 1e15, NewestFirst: true}},
		{weir.SlidingWindow(weir.Per(1, 10), 0), weir.Options{}},
		{weir.SlidingWindow(weir.Per(1, 1), 1), weir.Options{}},
		{weir.SlidingCounter(weir.Per(1, 1)), weir.Options{}},
		{weir.SlidingWindow(weir.Per(1e15, 3660*day), 64), weir.Options{QueueLimit: 1e15, MaxDebt: 1e15}},
		{weir.SlidingCounter(weir.Per(1e15, 3660*day)), weir.Options{QueueLimit: 1e15, MaxDebt: 1e15}},
		{weir.CalendarWindow(1e15, algo.Calendar{Unit: algo.CalendarYear}), weir.Options{QueueLimit: 1e15, MaxDebt: 1e15}},
	} {
		l, err := weir.New(c.limit, c.o)
		if err != nil {
			t.Errorf("%v, %+v: %v", c.limit, c.o, err)
			continue
		}
		if all := l.TryAcquire(c.limit.Permits()); !all.Allowed() || all.Decision().Limit != c.limit.Permits() {
			t.Errorf("%v, %+v: all permits at once are refused: %+v", c.limit, c.o, all.Decision())
		}
	}
	for n, o := range map[int64]weir.Options{1: {}, 1e15: {QueueLimit: 1e15, NewestFirst: true}} {
		if c, err := weir.NewConcurrency(n, o); err != nil || !c.TryAcquire(n).Allowed() {
			t.Errorf("%d, %+v: %v", n, o, err)
		}
	}
	for _, o := range []weir.KeyedOptions{{MaxKeys: 1}, {AdmitWhenFull: true}} {
		if k, err := weir.NewKeyed[int](weir.TokenBucket(weir.PerSecond(1), 0), o); err != nil || !k.Allow(1) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	if l := weir.TokenBucket(weir.PerMinute(8), 0); l != weir.TokenBucket(weir.PerMinute(8), 8) || l.Permits() != 8 {
		t.Errorf("the burst is by default that of the rate: %v", l)
	}
	if l := weir.SlidingWindow(weir.PerMinute(8), 0); l != weir.SlidingWindow(weir.PerMinute(8), 10) || l.Segments() != 10 {
		t.Errorf("there are 10 segments by default: %v", l)
	}
	b, err := weir.New(weir.TokenBucket(weir.PerMinute(8), 0), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := b.Peek(1); d.Limit != 8 || d.Policy != "" {
		t.Errorf("the burst is by default that of the rate, the name empty: %+v", d)
	}
	k, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerMinute(8), 0), weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if d := k.Peek("a", 1); d.Limit != 8 || k.Stats().MaxKeys != 1_000_000 {
		t.Errorf("%+v, %+v", d, k.Stats())
	}
}

func TestTextOfReasons(t *testing.T) {
	want := []string{
		"none", "limited", "never", "queue-full", "deadline", "evicted", "canceled", "closed", "table-full", "invalid",
		"soft-throttle", "hard-lockout", "tracking-cap", "overloaded", "unavailable", "denied",
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
	if got := weir.Reason(len(want)).String(); got != "Reason(16)" {
		t.Errorf("an unknown reason is %q", got)
	}
	r := weir.ReasonClosed
	err := r.UnmarshalText([]byte("perhaps"))
	if err == nil || err.Error() != `weir: unknown reason "perhaps"` || r != weir.ReasonClosed {
		t.Errorf("%v, %v", r, err)
	}
}
