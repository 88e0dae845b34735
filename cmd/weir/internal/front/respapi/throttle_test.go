package respapi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/internal/race"
)

// TestThrottleReplies are cases that are easy to check by hand.
func TestThrottleReplies(t *testing.T) {
	th, clock := clockedThrottle(t, 0)
	asks := newAsker(t, th)
	for i, c := range []struct {
		after time.Duration
		line  string
		want  [5]int64
	}{
		{0, "CL.THROTTLE user 15 30 60", [5]int64{0, 16, 15, -1, 2}},
		{0, "cl.throttle user 15 30 60 17", [5]int64{1, 16, 15, -1, 2}}, // never
		{0, "cl.throttle user 15 30 60 16", [5]int64{1, 16, 15, 2, 2}},
		{0, "cl.throttle user 15 30 60 0", [5]int64{0, 16, 15, -1, 2}},
		{0, "cl.throttle user 15 30 60 15", [5]int64{0, 16, 0, -1, 32}},
		{0, "cl.throttle user 15 30 60 0", [5]int64{0, 16, 0, -1, 32}}, // a look is never limited
		{0, "cl.throttle user 15 30 60", [5]int64{1, 16, 0, 2, 32}},
		{time.Nanosecond, "cl.throttle user 15 30 60", [5]int64{1, 16, 0, 2, 32}},
		{time.Second, "cl.throttle user 15 30 60", [5]int64{1, 16, 0, 1, 31}},
		{time.Second - 2*time.Nanosecond, "cl.throttle user 15 30 60", [5]int64{1, 16, 0, 1, 31}}, // a nanosecond too early
		{time.Nanosecond, "cl.throttle user 15 30 60", [5]int64{0, 16, 0, -1, 32}},
		{0, "cl.throttle user 15 30 60 -4", [5]int64{0, 16, 4, -1, 24}},
		{0, "cl.throttle user 15 30 60 -100", [5]int64{0, 16, 16, -1, 0}},
		{0, "cl.throttle user 15 30 60 -9223372036854775808", [5]int64{0, 16, 16, -1, 0}},
		{0, "cl.throttle user 15 30 60 9223372036854775807", [5]int64{1, 16, 16, -1, 0}},
		// The limit is that of the call: what is available stays so.
		{0, "cl.throttle user 15 30 60 6", [5]int64{0, 16, 10, -1, 12}},
		{0, "cl.throttle user 99 30 60 0", [5]int64{0, 100, 10, -1, 180}},
		{0, "cl.throttle user 4 1 1 1", [5]int64{0, 5, 4, -1, 1}},
		{0, "cl.throttle user 99 30 60 0", [5]int64{0, 100, 4, -1, 192}},
		// Another key.
		{0, "throttle  0 1 1", [5]int64{0, 1, 0, -1, 1}},
		{0, "RL.THROTTLE  0 1 1", [5]int64{1, 1, 0, 1, 1}},
		{0, "gcra  0 1 1", [5]int64{1, 1, 0, 1, 1}},
		{time.Second / 2, "GCRA  0 1 0.5 TOKENS 0", [5]int64{0, 1, 0, -1, 1}},
		{time.Second / 4, "gcra  0 1 0.5 num_requests 1", [5]int64{0, 1, 0, -1, 1}},
		{0, "gcra  0 1 0.000000001 tokens 2", [5]int64{1, 1, 0, -1, 1}},
		{time.Nanosecond, "gcra  +0 1 0.0000000010", [5]int64{0, 1, 0, -1, 1}},
	} {
		clock.Advance(c.after)
		if got := asks.ask(strings.Split(c.line, " ")...); got != fiveIntegers(c.want) {
			t.Errorf("%d: %s answers %q, want %v", i, c.line, got, c.want)
		}
	}
}

func TestThrottleErrors(t *testing.T) {
	th, _ := clockedThrottle(t, 0)
	asks := newAsker(t, th)
	const usage = "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
	for line, want := range map[string]string{
		"cl.throttle k 1 1 1 1 1":                        usage,
		"throttle k 1 1 1 1 1":                           strings.Replace(usage, "cl.throttle", "throttle", 1),
		"cl.throttle k x 1 1":                            "Couldn't parse as integer: x",
		"cl.throttle k 1 1.0 1":                          "Couldn't parse as integer: 1.0",
		"cl.throttle k 1 1 ":                             "Couldn't parse as integer: ",
		"cl.throttle k 1 1 1 -":                          "Couldn't parse as integer: -",
		"cl.throttle k 1 1 1 9223372036854775808":        "Couldn't parse as integer: 9223372036854775808",
		"cl.throttle k 1 1 1 18446744073709551617":       "Couldn't parse as integer: 18446744073709551617",
		"cl.throttle k 1 1 1 -9223372036854775809":       "Couldn't parse as integer: -9223372036854775809",
		"cl.throttle k 1 1 1 0x10":                       "Couldn't parse as integer: 0x10",
		"cl.throttle k 1 1 1 a\r\nb":                     `Couldn't parse as integer: "a\r\nb"`,
		"cl.throttle k 1 1 1 \xff":                       `Couldn't parse as integer: "\xff"`,
		"cl.throttle k 1 1 1 " + strings.Repeat("1", 70): "Couldn't parse as integer: " + strings.Repeat("1", 61) + "...",
		"cl.throttle k 1 0 1":                            "Zero rates are not supported",
		"cl.throttle k 1 1 0":                            "Zero rates are not supported",
		"cl.throttle k -1 0 0":                           "Zero rates are not supported",
		"cl.throttle k -1 1 1":                           "max_burst is -1: must be from 0 to 999999999999999",
		"cl.throttle k 1000000000000000 1 1":             "max_burst is 1000000000000000: must be from 0 to 999999999999999",
		"cl.throttle k 9223372036854775807 1 1":          "max_burst is 9223372036854775807: must be from 0 to 999999999999999",
		"cl.throttle k 1 -1 1":                           "count is -1: must be from 1 to 1000000000000000",
		"cl.throttle k 1 1000000000000001 316224000":     "count is 1000000000000001: must be from 1 to 1000000000000000",
		"cl.throttle k 1 1 -1":                           "period is -1: must be from 1 to 316224000 seconds",
		"cl.throttle k 1 1 316224001":                    "period is 316224001: must be from 1 to 316224000 seconds",
		"cl.throttle k 1 1000000001 1":                   "count is 1000000001: must be at most 1000000000 a second, here 1000000000",
		"cl.throttle k 5 1 316224000":                    "max_burst is 5: must be small enough for all permits to come back within 1581120000 seconds (18300 days), here at most 4",
		"cl.throttle k 999999999999999 316224000 1":      "",
		"cl.throttle k 4 1 316224000":                    "",
		"gcra k 1 1 x":                                   "period is x: must be a number of seconds from 0.000000001 to 316224000, without exponent",
		"gcra k 1 1 -1":                                  "period is -1: must be a number of seconds from 0.000000001 to 316224000, without exponent",
		"gcra k 1 1 1e3":                                 "period is 1e3: must be a number of seconds from 0.000000001 to 316224000, without exponent",
		"gcra k 1 1 1.":                                  "period is 1.: must be a number of seconds from 0.000000001 to 316224000, without exponent",
		"gcra k 1 1 0.0000000001":                        "period is 0.0000000001: must be a number of seconds from 0.000000001 to 316224000, without exponent",
		"gcra k 1 1 316224000.1":                         "period is 316224000.1: must be a number of seconds from 0.000000001 to 316224000, without exponent",
		"gcra k 1 1 0.0":                                 "Zero rates are not supported",
		"gcra k x 1 1":                                   "Couldn't parse as integer: x",
		"gcra k 1 x 1":                                   "Couldn't parse as integer: x",
		"gcra k -7 1 1":                                  "max-burst is -7: must be from 0 to 999999999999999",
		"gcra k 1 -7 1":                                  "tokens-per-period is -7: must be from 1 to 1000000000000000",
		"gcra k 1 1 1 TOKENS -1":                         "TOKENS is -1: must be a whole number from 0 to 9223372036854775807",
		"gcra k 1 1 1 TOKENS":                            "syntax error: must be GCRA key max-burst tokens-per-period period [TOKENS count]",
		"gcra k 1 1 1 COUNT 1":                           "syntax error: must be GCRA key max-burst tokens-per-period period [TOKENS count]",
	} {
		got := asks.ask(strings.Split(line, " ")...)
		if want != "" && got != "-ERR "+want+"\r\n" || want == "" && got[0] != '*' {
			t.Errorf("%s answers %q, want %q", line, got, want)
		}
	}
	if s := th.keys.Stats(); s.Keys != 1 {
		t.Errorf("%d keys are kept", s.Keys)
	}
	for _, c := range th.commands() {
		if c.name != "gcra" && c.arityError != "ERR "+strings.Replace(usage, "cl.throttle", c.name, 1) {
			t.Errorf("%s: %s", c.name, c.arityError)
		}
	}
	for _, maxKeys := range []int{-1, math.MaxInt} {
		if _, err := newThrottle(Options{MaxKeys: maxKeys}); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("weir: MaxKeys is %d: must be", maxKeys)) {
			t.Errorf("MaxKeys %d: %v", maxKeys, err)
		}
	}
}

// TestThrottleTableFull: a key that finds no room is limited, and told to come back when there may be some.
func TestThrottleTableFull(t *testing.T) {
	th, clock := clockedThrottle(t, 10)
	asks := newAsker(t, th)
	for i := range 10 {
		asks.ask("cl.throttle", strconv.Itoa(i), "1", "1", "10")
	}
	for line, want := range map[string][5]int64{
		"cl.throttle new 1 1 10":    {1, 2, 0, 10, 0},
		"cl.throttle new 1 1 10 3":  {1, 2, 2, -1, 0},
		"cl.throttle new 1 1 10 0":  {0, 2, 0, -1, 0},
		"cl.throttle new 1 1 10 -1": {0, 2, 0, -1, 0},
		"cl.throttle 1 1 1 10 0":    {0, 2, 1, -1, 10},
	} {
		if got := asks.ask(strings.Split(line, " ")...); got != fiveIntegers(want) {
			t.Errorf("%s answers %q, want %v", line, got, want)
		}
	}
	clock.Advance(10 * time.Second)
	if got := asks.ask("cl.throttle", "new", "1", "1", "10"); got != fiveIntegers([5]int64{0, 2, 1, -1, 10}) {
		t.Errorf("once there is room: %q", got)
	}
	into := map[string]any{}
	th.status(into)
	if s := fmt.Sprint(into); s != "map[throttle:map[allowed:11 keys:10 max_keys:10 refused:2]]" {
		t.Errorf("the status is %s", s)
	}
}

// TestThrottleWithTooManyLimits: a client that brings another limit with each call uses up the limits that there can be. Then it
// is refused as one that brings other keys is. Other clients do not notice.
func TestThrottleWithTooManyLimits(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		return // TestPlanCallsUnderALimitTooMany has as many limits, which take seconds
	}
	th, clock := clockedThrottle(t, 0)
	asks := newAsker(t, th)
	asks.ask("cl.throttle", "mine", "9", "1", "100")
	limited := 0
	for i := range 65600 {
		if asks.ask("cl.throttle", strconv.Itoa(i), strconv.Itoa(10+i), "1", "1000")[:8] == "*5\r\n:1\r\n" {
			limited++
		}
	}
	if limited != 65600-65533 {
		t.Errorf("%d of 65600 limits were refused", limited)
	}
	for line, want := range map[string]string{
		"cl.throttle mine 9 1 100 3":   fiveIntegers([5]int64{0, 10, 6, -1, 400}),
		"cl.throttle yours 9 1 100 3":  fiveIntegers([5]int64{0, 10, 7, -1, 300}),
		"cl.throttle mine 7 7 700":     fiveIntegers([5]int64{1, 8, 0, 1, 0}),
		"cl.throttle mine 7 7 700 10":  fiveIntegers([5]int64{1, 8, 0, -1, 0}),
		"cl.throttle other 7 7 700 0":  "-ERR keys are held to 65534 other limits already: use fewer, or wait until the keys of some have all permits\r\n",
		"cl.throttle other 7 7 700 -1": "-ERR keys are held to 65534 other limits already: use fewer, or wait until the keys of some have all permits\r\n",
	} {
		if got := asks.ask(strings.Split(line, " ")...); got != want {
			t.Errorf("%s answers %q, want %q", line, got, want)
		}
	}
	clock.Advance(1000 * time.Second)
	if got := asks.ask("cl.throttle", "other", "7", "7", "700"); got != fiveIntegers([5]int64{0, 8, 7, -1, 100}) {
		t.Errorf("once the keys of the others have all permits: %q", got)
	}
}

// TestThrottlePlansAreBounded: the cache of plans stays as large as it is, and returns the right one.
func TestThrottlePlansAreBounded(t *testing.T) {
	th, _ := clockedThrottle(t, 0)
	random := rand.New(rand.NewPCG(1, 2))
	hits := 0
	for range 20_000 {
		l := limitKey{random.Int64N(50), 1 + random.Int64N(10), (1 + random.Int64N(10)) * 1e9}
		plan := th.plans.lookup(l)
		if plan != nil {
			hits++
		} else {
			var err error
			if plan, err = th.plans.add(l, cellNames); err != nil {
				t.Fatal(err)
			}
		}
		if got := plan.Limit(); got.Permits() != l.burst+1 || got.Rate() != (weir.Rate{Permits: l.count, Period: time.Duration(l.period)}) {
			t.Fatalf("the plan of %+v is %v", l, got)
		}
	}
	if hits < 3000 {
		t.Errorf("%d of 20000 limits of 5000 were found", hits)
	}
	// A few limits have their places all the time.
	few := make([]limitKey, 20)
	for i := range few {
		few[i] = limitKey{int64(i) * 10, 10, 60e9}
		if _, err := th.plans.add(few[i], cellNames); err != nil {
			t.Fatal(err)
		}
	}
	missing := 0
	for _, l := range few {
		if th.plans.lookup(l) == nil {
			missing++
		}
	}
	if missing > 1 { // three of them in one set of 1024: once in a thousand runs
		t.Errorf("%d of 20 limits have no place", missing)
	}
}

// TestThrottleDoesNotAllocate: a call whose limit is known.
func TestThrottleDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		return // its instrumentation allocates
	}
	th, _ := clockedThrottle(t, 0)
	asks := newAsker(t, th)
	for _, line := range []string{
		"cl.throttle a-key 1000000 10 60", "cl.throttle a-key 1000000 10 60 -1", "cl.throttle a-key 1000000 10 60 0",
		"cl.throttle a-key 1000000 10 60 5000000", "gcra a-key 1000000 10 60 TOKENS 3",
	} {
		var args [][]byte
		for arg := range strings.SplitSeq(line, " ") {
			args = append(args, []byte(arg))
		}
		c := asks.byIt[string(args[0])]
		w := resp.Writer{}
		w.Reset(make([]byte, 0, 256))
		if n := testing.AllocsPerRun(100, func() {
			w.Reset(w.Bytes())
			c.run(nil, &w, args)
		}); n != 0 {
			t.Errorf("%s allocates %v times", line, n)
		}
	}
}

// TestThrottleContention has clients take, give back and look at the permits of one key under two limits of the same capacity,
// while the clock stands still: what was granted and not given back is what is missing at the end.
func TestThrottleContention(t *testing.T) {
	const capacity = 40
	th, _ := clockedThrottle(t, 0)
	var out atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			asks := newAsker(t, th)
			random := rand.New(rand.NewPCG(uint64(i), 3))
			mine := int64(0)
			for range 2000 {
				n := 1 + random.Int64N(5)
				if random.IntN(2) == 0 {
					if n = min(n, mine); n == 0 {
						continue
					}
					n = -n
				}
				reply := asks.ask("cl.throttle", "key", strconv.Itoa(capacity-1), []string{"1", "2"}[random.IntN(2)], "100000", fmt.Sprint(n))
				if reply[:8] == "*5\r\n:0\r\n" {
					mine += n
					if now := out.Add(n); n > 0 && now > capacity+8*5 {
						t.Errorf("%d permits are out", now)
					}
				}
			}
		})
	}
	wg.Wait()
	asks := newAsker(t, th)
	reply := asks.ask("cl.throttle", "key", strconv.Itoa(capacity-1), "1", "100000", "0")
	if !strings.HasPrefix(reply, fmt.Sprintf("*5\r\n:0\r\n:%d\r\n:%d\r\n", capacity, capacity-out.Load())) {
		t.Errorf("%d permits are out, and the reply is %q", out.Load(), reply)
	}
}

// FuzzThrottle: whatever the arguments are, there is one reply: five integers, or an error.
func FuzzThrottle(f *testing.F) {
	f.Add("k", "15", "30", "60", "1", byte(6))
	f.Add("", "-1", "999999999999", "0.5", "-9223372036854775808", byte(5))
	f.Add("k", "999999999999999", "1000000000000000", "316224000", "TOKENS", byte(4))
	th, clock := clockedThrottle(f, 100)
	asks := newAsker(f, th)
	f.Fuzz(func(t *testing.T, key, burst, count, period, quantity string, kind byte) {
		asks.t = t
		clock.Advance(time.Millisecond)
		line := []string{[]string{"cl.throttle", "throttle", "rl.throttle", "gcra"}[kind%4], key, burst, count, period}
		asked := int64(1)
		if kind&12 != 0 {
			asked, _ = strconv.ParseInt(quantity, 10, 64) // of 0 and less a new key for which there is no room has nothing
		}
		if kind&4 != 0 {
			line = append(line, quantity)
		}
		if kind&8 != 0 {
			line = append(line, "tokens", quantity)
		}
		reply := asks.ask(line...)
		limited, limit, left, retry, reset := 0, int64(0), int64(0), int64(0), int64(0)
		if n, err := fmt.Sscanf(reply, "*5\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", &limited, &limit, &left, &retry, &reset); err == nil && n == 5 {
			if limited < 0 || limited > 1 || limit < 1 || left < 0 || left > limit || retry < -1 || retry == 0 || limited == 0 && retry != -1 ||
				reset < 0 || left < limit && reset == 0 && limited == 0 && (left > 0 || asked > 0) {
				t.Errorf("%q answers %q", line, reply)
			}
			return
		}
		if !strings.HasPrefix(reply, "-ERR ") || strings.Count(reply, "\r\n") != 1 || !strings.HasSuffix(reply, "\r\n") {
			t.Errorf("%q answers %q", line, reply)
		}
	})
}

func BenchmarkThrottle(b *testing.B) {
	for _, limits := range []int{1, 50, 10_000} {
		b.Run(fmt.Sprintf("%d limits", limits), func(b *testing.B) {
			th, err := newThrottle(Options{})
			if err != nil {
				b.Fatal(err)
			}
			c := newAsker(b, th).byIt["cl.throttle"]
			lines := make([][][]byte, limits)
			for i := range lines {
				lines[i] = [][]byte{[]byte("cl.throttle"), []byte("user:" + strconv.Itoa(i)), []byte(strconv.Itoa(1000 + i)), []byte("1000"), []byte("1")}
			}
			w := resp.Writer{}
			b.ReportAllocs()
			at := 0
			for b.Loop() {
				w.Reset(w.Bytes())
				c.run(nil, &w, lines[at])
				if at++; at == limits {
					at = 0
				}
			}
		})
	}
}
