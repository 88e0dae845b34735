package respapi

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/keyset"
)

// limitKey is a limit as a call brings it: burst permits more than one, of which count come back in period nanoseconds.
type limitKey struct{ burst, count, period int64 }

const (
	mostSeconds = int64(algo.MaxPeriod / time.Second)
	mostFill    = int64(algo.MaxFill / time.Second)
	mostBurst   = algo.MaxPermits - 1
)

// errZeroRate has the words that clients know.
var errZeroRate = errors.New("Zero rates are not supported") //nolint:staticcheck // see above

// check says what is wrong with a limit whose period is in the range of [weir.Rate], or returns nil.
func (l limitKey) check(n names) error {
	switch {
	case l.count == 0 || l.period == 0:
		return errZeroRate
	case l.burst < 0 || l.burst > mostBurst:
		return fmt.Errorf("%s is %d: must be from 0 to %d", n.burst, l.burst, mostBurst)
	case l.count < 0 || l.count > algo.MaxPermits:
		return fmt.Errorf("%s is %d: must be from 1 to %d", n.count, l.count, algo.MaxPermits)
	case l.count > l.period:
		return fmt.Errorf("%s is %d: must be at most 1000000000 a second, here %d", n.count, l.count, l.period)
	}
	// How many permits come back in the longest time that a bucket may take to fill: at least 5, as a permit takes no more than
	// the longest period.
	hi, lo := bits.Mul64(uint64(algo.MaxFill), uint64(l.count))
	if hi >= uint64(l.period) {
		return nil
	}
	most, _ := bits.Div64(hi, lo, uint64(l.period))
	if uint64(l.burst)+1 > most {
		const wrong = "%s is %d: must be small enough for all permits to come back" +
			" within %d seconds (18300 days), here at most %d"
		return fmt.Errorf(wrong, n.burst, l.burst, mostFill, most-1)
	}
	return nil
}

// planCache has the plans of limits that were brought lately, so that a call whose limit is known neither locks nor allocates.
// It is as large as it is: a limit takes the place of another one, and then costs some hundred nanoseconds when it comes again.
type planCache struct {
	keys  *weir.Keyed[string]
	seed  uint64
	slots [2 * cacheSets]atomic.Pointer[cachedPlan]
}

// A limit has its place in one set, where two are kept: that which came last, and one before it.
const (
	cacheBits = 13
	cacheSets = 1 << cacheBits
)

type cachedPlan struct {
	limit limitKey
	plan  *keyset.Plan
}

func newPlanCache(keys *weir.Keyed[string]) *planCache {
	return &planCache{keys: keys, seed: maphash.Bytes(maphash.MakeSeed(), nil)}
}

// set is where the plan of a limit may stand. The seed keeps others from choosing limits that all want one place.
func (c *planCache) set(l limitKey) int {
	hi, lo := bits.Mul64(uint64(l.burst)^c.seed, uint64(l.period)|1<<63)
	h := (hi ^ lo ^ uint64(l.count)) * 0x9E3779B97F4A7C15
	return int(h>>(64-cacheBits)) * 2
}

// lookup is the plan of a limit, or nil.
func (c *planCache) lookup(l limitKey) *keyset.Plan {
	at := c.set(l)
	if e := c.slots[at].Load(); e != nil && e.limit == l {
		return e.plan
	}
	if e := c.slots[at+1].Load(); e != nil && e.limit == l {
		return e.plan
	}
	return nil
}

// add checks a limit and returns its plan. The error is what is wrong with it, or [keyset.ErrTableFull] if keys have as many
// other limits as there can be.
func (c *planCache) add(l limitKey, n names) (*keyset.Plan, error) {
	if err := l.check(n); err != nil {
		return nil, err
	}
	plan, err := keyset.Of(c.keys).Plan(weir.TokenBucket(weir.Rate{Permits: l.count, Period: time.Duration(l.period)}, l.burst+1))
	if err != nil {
		return nil, err
	}
	at := c.set(l)
	if old := c.slots[at].Swap(&cachedPlan{l, plan}); old != nil {
		c.slots[at+1].Store(old)
	}
	return plan, nil
}
