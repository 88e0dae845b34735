package bench

import (
	"math"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/juju/ratelimit"
	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/weirhq/weir"
)

// Peer is a library that weir is measured beside.
type Peer struct {
	// Name is how the tables call it, Module where it is from.
	Name   string
	Module string
	// Differs says what a reader has to know before comparing numbers.
	Differs string
}

// The short names of the subjects.
const (
	byWeir      = "weir"
	byXTime     = "x/time/rate"
	byUber      = "uber"
	byJuju      = "juju"
	byFailsafe  = "failsafe-go"
	byGoLimiter = "go-limiter"
	bySemaphore = "x/sync"
	byChannel   = "channel"
)

// Peers are the libraries that weir is measured beside, in the versions that the go.mod of this module requires.
func Peers() []Peer {
	return []Peer{
		{
			byXTime, xtimeModule,
			"A token bucket of float64 tokens under a lock. Allow reads the clock before it takes the lock. Wait books a " +
				"place in time and sleeps on a timer of its own.",
		},
		{
			byUber, "go.uber.org/ratelimit",
			"A leaky bucket that can only block: Take sleeps until its turn, so it has no row where calls are refused, and " +
				"it cannot be canceled. Slack, the permits it may save up, is set to the burst of the row. It starts " +
				"empty, so it has no row where a large burst is drained.",
		},
		{
			byJuju, "github.com/juju/ratelimit",
			"A token bucket under a lock, which the clock is read under as well. TakeAvailable takes what there is, up " +
				"to n. NewBucketWithRate may be off by up to 1 % of the rate. Waits cannot be canceled.",
		},
		{
			byFailsafe, "github.com/failsafe-go/failsafe-go",
			"NewSmooth spaces calls evenly and has no burst; NewBursty is a fixed window. The rows that are always full " +
				"use the first, those that drain a burst the second. Here the policies are called directly, without " +
				"the executor that composes them.",
		},
		{
			byGoLimiter, "github.com/sethvargo/go-limiter",
			"A store of many keys, in memory, asked for one key here: a row includes the search of the key in a map, " +
				"which an unkeyed limiter does not need. Tokens come back all at once at the end of an interval, not " +
				"evenly, so it has no row where the bucket is always full again.",
		},
		{
			bySemaphore, "golang.org/x/sync",
			"semaphore.Weighted: permits come back when they are released, not with time, as with weir's Concurrency.",
		},
	}
}

// budget is what a limiter is set to.
type budget struct {
	permits int64 // per period
	period  time.Duration
	burst   int64
}

func (b budget) limit() weir.Limit { return weir.TokenBucket(weir.Per(b.permits, b.period), b.burst) }

// The regimes of a token bucket.
var (
	// alwaysFull regains a permit faster than a call takes, so that each call finds the bucket full.
	alwaysFull = budget{1_000_000_000, time.Second, 1000}
	// ample is full nearly all of the time, and would lose nothing in a millisecond without calls.
	ample = budget{1_000_000_000, time.Second, 1_000_000}
	// draining has a burst that outlasts any measurement, and regains next to nothing.
	draining = budget{1000, time.Second, 10_000_000_000}
	// awkward drains a bucket whose permits come every 81004.455… ns.
	awkward = budget{12_345, time.Second, 150_000_000}
	// empty regains one permit a day.
	empty = budget{1, 24 * time.Hour, 1}
)

func (b budget) perSecond() float64 { return float64(b.permits) / b.period.Seconds() }

// refill is the time in which all of the burst comes back: the window of a limiter that knows only windows.
func (b budget) refill() time.Duration {
	return time.Duration(math.Round(float64(b.burst) / float64(b.permits) * float64(b.period)))
}

// must is for limiters whose settings are written in this package.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (b budget) weir() *weir.Limiter {
	return must(weir.New(weir.TokenBucket(weir.Per(b.permits, b.period), b.burst), weir.Options{}))
}

func (b budget) xtime() *rate.Limiter {
	return rate.NewLimiter(rate.Limit(b.perSecond()), int(b.burst))
}

//nolint:ireturn // the library has no other type for it
func (b budget) uber() uber.Limiter {
	return uber.New(int(b.permits), uber.Per(b.period), uber.WithSlack(int(b.burst)))
}

func (b budget) juju() *ratelimit.Bucket { return ratelimit.NewBucketWithRate(b.perSecond(), b.burst) }

func (b budget) smooth() ratelimiter.RateLimiter[any] {
	return ratelimiter.NewSmooth[any](uint(b.permits), b.period)
}

func (b budget) bursty() ratelimiter.RateLimiter[any] {
	return ratelimiter.NewBursty[any](uint(b.burst), b.refill())
}

//nolint:ireturn // the library has no other type for it
func (b budget) golimiter() limiter.Store {
	return must(memorystore.New(&memorystore.Config{Tokens: uint64(b.burst), Interval: b.refill()}))
}

// xtimeModule is the module of several of them.
const xtimeModule = "golang.org/x/time"
