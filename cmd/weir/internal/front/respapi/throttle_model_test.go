package respapi

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/manualclock"
)

// cell is what CL.THROTTLE should answer, in rational numbers: each key holds some permits, a part of one included, which grow by
// count in period seconds until there are max_burst + 1.
type cell struct {
	keys map[string]*cellKey
}

type cellKey struct {
	permits *big.Rat
	limit   limitKey
	at      int64
}

func (l limitKey) capacity() *big.Rat { return new(big.Rat).SetInt64(l.burst + 1) }

// rate is permits in a nanosecond.
func (l limitKey) rate() *big.Rat { return big.NewRat(l.count, l.period) }

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// floor is r rounded down to a whole number, which must not be negative.
func floor(r *big.Rat) *big.Int { return new(big.Int).Quo(r.Num(), r.Denom()) }

// wholeSeconds is a number of nanoseconds in seconds, rounded up.
func wholeSeconds(ns *big.Rat) int64 {
	s := new(big.Rat).Quo(ns, big.NewRat(1e9, 1))
	n := floor(s)
	if !s.IsInt() {
		n.Add(n, big.NewInt(1))
	}
	return n.Int64()
}

// now makes the key one that is held to l, at time at.
func (k *cellKey) now(l limitKey, at int64) {
	gone := new(big.Rat).SetInt64(at - k.at)
	grown := new(big.Rat).Add(k.permits, gone.Mul(gone, k.limit.rate()))
	k.permits, k.at = least(grown, k.limit.capacity()), at
	if l == k.limit {
		return
	}
	// The permits are kept up to the new capacity, in units of what comes back in 1 ns divided by the permits of the rate.
	k.limit = l
	if k.permits = least(k.permits, l.capacity()); k.permits.Cmp(l.capacity()) < 0 {
		unit := new(big.Rat).SetFrac(big.NewInt(1), l.rate().Denom())
		k.permits.Mul(unit, new(big.Rat).SetInt(floor(new(big.Rat).Quo(k.permits, unit))))
	}
}

func (c *cell) call(key string, l limitKey, quantity, at int64) [5]int64 {
	k := c.keys[key]
	if k == nil {
		k = &cellKey{l.capacity(), l, at}
	} else {
		k.now(l, at)
	}
	limited, retry := int64(0), int64(-1)
	q := new(big.Rat).SetInt64(quantity)
	switch {
	case quantity > l.burst+1:
		limited = 1
	case quantity > 0 && k.permits.Cmp(q) < 0:
		limited = 1
		lacks := new(big.Rat).Sub(q, k.permits)
		retry = wholeSeconds(lacks.Quo(lacks, l.rate()))
	case quantity > 0:
		k.permits = new(big.Rat).Sub(k.permits, q)
		c.keys[key] = k // a key is remembered from the first permit on that it has got
	default:
		k.permits = least(new(big.Rat).Sub(k.permits, q), l.capacity())
	}
	lacks := new(big.Rat).Sub(l.capacity(), k.permits)
	return [5]int64{limited, l.burst + 1, floor(k.permits).Int64(), retry, wholeSeconds(lacks.Quo(lacks, l.rate()))}
}

// asker calls a command as the server does.
type asker struct {
	t    testing.TB
	w    resp.Writer
	byIt map[string]command
}

func newAsker(t testing.TB, c commander) *asker {
	a := &asker{t: t, byIt: map[string]command{}}
	for _, command := range c.commands() {
		a.byIt[command.name] = command
	}
	return a
}

// ask returns the reply to a line, in the form it has on the wire.
func (a *asker) ask(line ...string) string {
	args := make([][]byte, 0, len(line))
	for _, arg := range line {
		args = append(args, []byte(arg))
	}
	c, ok := a.byIt[strings.ToLower(line[0])]
	if !ok {
		a.t.Fatalf("there is no command %s", line[0])
	}
	a.w.Reset(a.w.Bytes())
	c.run(nil, &a.w, args)
	return string(a.w.Bytes())
}

func fiveIntegers(n [5]int64) string {
	return fmt.Sprintf("*5\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", n[0], n[1], n[2], n[3], n[4])
}

func clockedThrottle(t testing.TB, maxKeys int) (*throttle, *manualclock.Clock) {
	t.Helper()
	clock := manualclock.New(0)
	th, err := throttleAt(maxKeys, clock)
	if err != nil {
		t.Fatal(err)
	}
	return th, clock
}

// TestThrottleIsTheModel compares every reply on random histories with the model: of limits that change, of quantities that are 0,
// negative or larger than the capacity, at times that are no whole milliseconds.
func TestThrottleIsTheModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 7))
		th, clock := clockedThrottle(t, 0)
		asks := newAsker(t, th)
		model := &cell{keys: map[string]*cellKey{}}
		limits := make([]limitKey, 1+random.IntN(5))
		for i := range limits {
			limits[i] = randomLimit(random)
		}
		names := []string{"CL.THROTTLE", "throttle", "Rl.Throttle", "gcra"}
		now := int64(0)
		for step := range 300 {
			l := limits[random.IntN(len(limits))]
			if step < 50 {
				l = limits[0] // one limit alone, to begin with
			}
			if pause := randomPause(random, l); now < 1<<61 || pause < 1e9 { // a process runs for less than 70 years
				now += pause
			}
			clock.Set(now)
			key, quantity := strconv.Itoa(random.IntN(3)), randomQuantity(random, l)
			name := names[random.IntN(len(names))]
			line := []string{name, key, fmt.Sprint(l.burst), fmt.Sprint(l.count), fmt.Sprint(l.period / 1e9)}
			switch {
			case quantity == 1 && random.IntN(2) == 0:
			case name == "gcra" && quantity < 0:
				line[0] = "cl.throttle"
				line = append(line, fmt.Sprint(quantity))
			case name == "gcra":
				line = append(line, "tokens", fmt.Sprint(quantity))
			default:
				line = append(line, fmt.Sprint(quantity))
			}
			if got, want := asks.ask(line...), fiveIntegers(model.call(key, l, quantity, now)); got != want {
				t.Fatalf("seed %d, step %d, at %v, %v: %q, want %q", seed, step, time.Duration(now), line, got, want)
			}
		}
	}
}

func randomLimit(random *rand.Rand) limitKey {
	l := limitKey{random.Int64N(20), 1 + random.Int64N(50), (1 + random.Int64N(20)) * 1e9}
	switch random.IntN(6) {
	case 0: // fast
		l.count = 1 + random.Int64N(l.period)
		l.burst = random.Int64N(1e6)
	case 1: // slow
		l.period = (1 + random.Int64N(mostSeconds)) * 1e9
		l.burst = random.Int64N(5)
	case 2: // large
		l.count = 1 + random.Int64N(1e9)
		l.period = (1 + random.Int64N(1000)) * 1e9
		l.burst = random.Int64N(l.count)
	case 3:
		l.burst = 0
	}
	return l
}

// randomPause is mostly as long as some permits take to come back, to a nanosecond.
func randomPause(random *rand.Rand, l limitKey) int64 {
	interval := max(l.period/l.count, 1)
	switch random.IntN(6) {
	case 0:
		return 0
	case 1:
		return random.Int64N(1e6)
	case 2:
		return interval
	case 3:
		return max(interval-1, 0)
	case 4:
		return random.Int64N(min(interval, math.MaxInt64/64)*8 + 1)
	default:
		return random.Int64N(3e9)
	}
}

func randomQuantity(random *rand.Rand, l limitKey) int64 {
	switch random.IntN(10) {
	case 0:
		return 0
	case 1:
		return -1 - random.Int64N(l.burst+2)
	case 2:
		return l.burst + 1
	case 3:
		return l.burst + 2
	case 4:
		return 1 + random.Int64N(l.burst+2)
	case 5:
		return math.MinInt64
	case 6:
		return math.MaxInt64
	default:
		return 1
	}
}
