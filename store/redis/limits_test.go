package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

func TestLimitsThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		limit  weir.Limit
		option string
	}{
		{weir.FixedWindow(weir.Per(1, 1500*time.Nanosecond)), "Limit.Rate.Period"},
		{weir.SlidingCounter(weir.Per(1, time.Nanosecond)), "Limit.Rate.Period"},
		{weir.SlidingWindow(weir.Per(1, 10*time.Microsecond), 11), "Limit.Segments"},
		{weir.TokenBucket(weir.Per(1, 3660*24*time.Hour-time.Nanosecond), 1), "Limit.Rate"},
		{weir.TokenBucket(weir.Per(0, time.Second), 0), "Limit.Rate"},
	} {
		_, err := newLaw(c.limit)
		if wrong, ok := errors.AsType[*weir.OptionError](err); !ok || wrong.Option != c.option {
			t.Errorf("%+v: %v", c.limit, err)
		}
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	for option, o := range map[string]Options{
		"Options.URL":         {URL: "http://user:secret@host"},
		"Options.Addresses":   {URL: "redis://host", Addresses: []string{"host:1"}},
		"Options.Prefix":      {Prefix: "a{"},
		"Options.Timeout":     {Timeout: time.Hour},
		"Options.MaxInFlight": {MaxInFlight: -1},
		"Options.DB":          {DB: -1},
		"Options.Connections": {Connections: 3},
	} {
		_, err := Open(o)
		if wrong, ok := errors.AsType[*weir.OptionError](err); !ok || wrong.Option != option || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", option, err)
		}
	}
	if _, err := Open(Options{URL: "redis://127.0.0.1:1"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}

// TestAddressesThatAreNone: an address that can never be reached is a wrong option, where a program would try it again for ever.
// So is a URL of which a part would be ignored, and another server asked.
func TestAddressesThatAreNone(t *testing.T) {
	for option, all := range map[string][]Options{
		"Options.URL": {
			{URL: "redis:127.0.0.1:6379"},
			{URL: "rediss:redis.example.com"},
			{URL: "redis://127.0.0.1:65536"},
			{URL: "redis://127.0.0.1:0"},
			{URL: "redis://127.0.0.1?addr=127.0.0.1:70000"},
			{URL: "unix://run/redis.sock"},
		},
		"Options.Addresses[0]": {{Addresses: []string{"127.0.0.1"}}, {Addresses: []string{""}}, {Addresses: []string{"redis://127.0.0.1:6379"}}},
		"Options.Addresses[1]": {{Addresses: []string{"127.0.0.1:1", "127.0.0.1:65536"}}, {Addresses: []string{"127.0.0.1:1", "127.0.0.1:0"}}},
	} {
		for _, o := range all {
			_, err := Open(o)
			if wrong, ok := errors.AsType[*weir.OptionError](err); !ok || wrong.Option != option {
				t.Errorf("%q %q: %v, want an error about %s", o.URL, o.Addresses, err, option)
			}
		}
	}
}

// TestKeysDiffer has names of keys and policies that could be mistaken for others.
func TestKeysDiffer(t *testing.T) {
	texts := []string{"a", "a}b", "a}", "}", "%", "%25", "%7D", "{a}", "a}:b", "b}+c", ":", "+", "!", ":a", "F", "F:a", "F+a"}
	known := map[string]string{}
	s := &Store{options: Options{Prefix: "weir:"}}
	for _, key := range append(texts, "") {
		for _, policy := range texts {
			for i, name := range s.keysOfAll(policy, key) {
				what := fmt.Sprintf("%d of %q, %q", i, key, policy)
				if other, ok := known[name]; ok {
					t.Errorf("%q is the name of %s and %s", name, other, what)
				}
				known[name] = what
			}
		}
	}
}

// TestBucketsFasterThanTheResolution compares buckets of more than a permit per microsecond with package algo in nanoseconds, at
// times of whole microseconds.
func TestBucketsFasterThanTheResolution(t *testing.T) {
	s := startServer(t).open(Options{})
	for _, l := range []weir.Limit{
		weir.TokenBucket(weir.PerSecond(1_000_000_000), 5000), weir.TokenBucket(weir.PerSecond(12_345_679), 30), weir.TokenBucket(weir.Per(7, 3*time.Microsecond), 0),
	} {
		burst := limitOf(l)
		b := must(algo.NewTokenBucket(l.Rate().Permits, l.Rate().Period, burst))
		var state algo.TokenBucketState
		now := time.Now().UnixMicro()
		random := rand.New(rand.NewPCG(1, 2))
		d := make([]weir.Decision, 1)
		for i := range 500 {
			now += random.Int64N(6)
			s.virtual.Store(now)
			c := store.Charge{Policy: l.String(), Key: "k", Limit: l, N: random.Int64N(burst + 2)}
			if err := store.Take(context.Background(), s, []store.Charge{c}, d); err != nil {
				t.Fatal(err)
			}
			var r algo.Result
			state, r = b.Take(state, now*1000, c.N)
			if r.RetryAfter != algo.Never {
				r.RetryAfter = (r.RetryAfter + 999) / 1000 * 1000
			}
			r.ResetAfter = (r.ResetAfter + 999) / 1000 * 1000
			if want := store.DecisionOf(c, burst, r); d[0] != want {
				t.Fatalf("%v, step %d, take %d:\n got %+v\nwant %+v", l, i, c.N, d[0], want)
			}
		}
	}
}

// TestCallersClockDoesNotCount has a caller whose clock is years off choose the windows of a calendar.
func TestCallersClockDoesNotCount(t *testing.T) {
	server := startServer(t)
	a, b := server.open(Options{}), server.open(Options{})
	l := weir.CalendarWindow(3, year())
	c := []store.Charge{{Policy: "p", Key: "k", Limit: l, N: 1}}
	d := make([]weir.Decision, 1)
	for i := range 6 {
		s := a
		if i%2 == 1 {
			s = b
			s.ahead.Store(int64(time.Duration(i-3)*3*365*24*time.Hour) / microsecond)
		}
		if err := store.Take(context.Background(), s, c, d); err != nil || d[0].Allowed != (i < 3) {
			t.Fatalf("%d: %+v, %v", i, d[0], err)
		}
	}
}

// TestMemoryIsGivenBack takes permits that come back soon: nothing is left of the keys a little later.
func TestMemoryIsGivenBack(t *testing.T) {
	s := startServer(t).open(Options{})
	l := weir.TokenBucket(weir.Per(1, 50*time.Millisecond), 0)
	d := make([]weir.Decision, 1)
	for i := range 100 {
		c := []store.Charge{{Policy: "p", Key: string(rune('a' + i)), Limit: l, N: 1}}
		if _, err := store.Reserve(context.Background(), s, c, d, 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "no key is left", func() bool { return s.do(t, "DBSIZE") == "0" })
}
