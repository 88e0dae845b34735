package tiers

import (
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/guard"
)

// Options configure [Tiers]. The zero value is valid.
type Options struct {
	// Name comes before the name of the tier in the Policy of the decisions: "8/s burst 4" without it. Default: "".
	Name string
	// RPS are the tiers of requests per second, ascending: 1 to 64 numbers from 0.001 to 10^9. Default: 1, 2, 4, 8, 16, 32,
	// 64, 128.
	RPS []float64
	// Burst are the tiers of bursts, ascending: 1 to 64 numbers from 1 to 2147483647. Default: 1, 2, 4, 8, 16, 32, 64.
	Burst []int
	// Guard is what the limiters are made of. Its Name, CapacityTokens and RefillTokensPerSecond are ignored, as each
	// tier has its own, and InitialTokens above a burst means all of that burst. Default: guard.DefaultOptions().
	Guard *guard.Options
	// MaxPolicies is how many limiters there are at most: from 1 to 64. Default: 64.
	MaxPolicies int
	// Unused is for how long a limiter must not have been asked before it is swept away: from 1 s to 2147483647 s.
	// Default: 1800 s.
	Unused time.Duration
	// SweepEvery is the number of checks after which limiters that are unused are looked for: from 1 to 2147483647.
	// Default: 1024.
	SweepEvery int
	// Clock replaces the monotonic clock of the process, also in the limiters. Default: that of Guard.
	Clock weir.Clock
	// Logger logs at level Debug that limiters are made and swept away, at level Warn that another limiter has to serve a tier,
	// and at level Error that a limiter could not be made. Default: that of Guard.
	Logger *slog.Logger
}

const (
	of          = "tiers.Options."
	maxTiers    = 64
	maxPolicies = 64
	maxUnused   = math.MaxInt32 * time.Second
	retryLater  = 1000 * time.Millisecond
)

var (
	defaultRPS   = []float64{1, 2, 4, 8, 16, 32, 64, 128}
	defaultBurst = []int{1, 2, 4, 8, 16, 32, 64}
)

// Tiers round what handlers ask for up to tiers. All handlers of one pair of tiers share one limiter, in which each opcode of
// each address has a bucket of its own. The port of the address does not count. A check takes no lock of Tiers and allocates
// nothing (TestCheckAllocatesNothing), unless it makes a limiter or looks for another that serves its tier.
//
// At most MaxPolicies limiters exist. A limiter is made when its tier is first asked for. Once there are MaxPolicies, the closest
// limiter that is not looser, in neither RPS nor burst, serves a further tier. It is the one with the smallest |difference of
// RPS| + |difference of burst|, then with the lowest RPS, then with the lowest burst. If all are looser, the closest of all
// serves it, in the same order.
//
// A limiter that was not used for longer than Unused is swept away. It is kept for longer if its lockouts, or the time in which
// an empty bucket becomes full, are longer: so sweeping never allows a request that would be refused. For the same reason a tier
// that another limiter serves stays with it until that is swept away. It also changes when there is room, and the tier has been
// quiet until its buckets are full and its lockouts over.
//
// One in SweepEvery checks starts a goroutine that sweeps for some microseconds; between sweeps there is none. A limiter in use
// is not swept away. The zero Tiers is not usable: call [New].
type Tiers struct {
	name      string
	rps       []float64
	burst     []int
	guard     guard.Options
	max       int
	unused    int64
	every     uint64
	everyMask uint64 // of the bits that are 0 in every multiple of every, which is cheaper to see than a remainder
	clock     weir.Clock
	start     time.Time
	logger    *slog.Logger
	slots     []atomic.Pointer[binding] // for each pair of tiers, which limiter serves it

	closed atomic.Bool
	sweep  func() // in a variable, so that a goroutine starts without an allocation

	mu      sync.Mutex // guards entries, their bindings, and what is stored in slots
	entries []*entry

	sweeping sync.Mutex // held while a sweep is under way

	_      [64]byte // every check writes what follows
	checks atomic.Uint64
	_      [56]byte
}

// New returns Tiers without any limiter. The error names the option that cannot be used, also if the options of Guard do not fit
// some tier.
func New(o Options) (*Tiers, error) {
	if o.RPS == nil {
		o.RPS = defaultRPS
	}
	if o.Burst == nil {
		o.Burst = defaultBurst
	}
	if err := checkTiers(of+"RPS", o.RPS, 0.001, 1e9); err != nil {
		return nil, err
	}
	if err := checkTiers(of+"Burst", o.Burst, 1, math.MaxInt32); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		name         string
		value        *int
		preset, most int
	}{
		{"MaxPolicies", &o.MaxPolicies, maxPolicies, maxPolicies},
		{"SweepEvery", &o.SweepEvery, 1024, math.MaxInt32},
	} {
		if *c.value == 0 {
			*c.value = c.preset
		}
		if *c.value < 1 || *c.value > c.most {
			return nil, &weir.OptionError{
				Option: of + c.name, Value: strconv.Itoa(*c.value), Accepted: fmt.Sprintf("from 1 to %d", c.most),
			}
		}
	}
	if o.Unused == 0 {
		o.Unused = 1800 * time.Second
	}
	if o.Unused < time.Second || o.Unused > maxUnused {
		return nil, &weir.OptionError{
			Option: of + "Unused", Value: o.Unused.String(), Accepted: fmt.Sprintf("from 1s to %v", maxUnused),
		}
	}
	each := guard.DefaultOptions()
	if o.Guard != nil {
		each = *o.Guard
	}
	if o.Clock == nil {
		o.Clock = each.Clock
	}
	if o.Logger == nil {
		o.Logger = each.Logger
	}
	each.Clock, each.Logger = o.Clock, o.Logger
	t := &Tiers{
		name: o.Name, rps: slices.Clone(o.RPS), burst: slices.Clone(o.Burst), guard: each, max: o.MaxPolicies,
		unused: int64(o.Unused), every: uint64(o.SweepEvery), everyMask: uint64(o.SweepEvery&-o.SweepEvery) - 1,
		clock: o.Clock, start: time.Now(), logger: o.Logger,
		slots: make([]atomic.Pointer[binding], len(o.RPS)*len(o.Burst)),
	}
	t.sweep = t.sweepInTurn
	if err := t.tryCorners(); err != nil {
		return nil, err
	}
	return t, nil
}

// tryCorners makes the guards with the lowest and the highest tiers. If they can be made, so can all between them.
func (t *Tiers) tryCorners() error {
	for _, rps := range []float64{t.rps[0], t.rps[len(t.rps)-1]} {
		for _, burst := range []int{t.burst[0], t.burst[len(t.burst)-1]} {
			p := pair{rps, burst}
			g, err := guard.New(t.guardOptions(p))
			if err != nil {
				return fmt.Errorf("weir: %sGuard for the tier %v: %w", of, p, err)
			}
			_ = g.Close() // is always nil
		}
	}
	return nil
}

func (t *Tiers) guardOptions(p pair) guard.Options {
	o := t.guard
	o.Name = p.String()
	if t.name != "" {
		o.Name = t.name + " " + o.Name
	}
	o.CapacityTokens, o.RefillTokensPerSecond = p.burst, p.rps
	o.InitialTokens = min(o.InitialTokens, p.burst)
	return o
}

func (t *Tiers) now() int64 {
	if t.clock != nil {
		return t.clock.Now()
	}
	return int64(time.Since(t.start))
}

// Check takes one token from the bucket that addr has for op in the limiter of the tier that a is rounded to. In this order:
//
//   - After Close everything is refused with ReasonClosed and a RetryAfter of 0.
//   - An attribute that is not a number is refused with ReasonInvalid and a RetryAfter of Never. [Tiers.Tier] returns an error
//     for it.
//   - Without an attribute, or with an RPS of 0 or less, everything is allowed, and [guard.Credit] is 65535.
//   - With a burst of 0 or less everything is refused, with ReasonHardLockout and a RetryAfter of Never.
//   - An address that is not valid is refused with ReasonSoftThrottle and a RetryAfter of 1000 ms.
//   - So is a message whose limiter is just being closed.
//   - Otherwise the bucket decides, see [guard.Guard.CheckOperation].
//
// Only the checks that come to a limiter are counted, and sweep.
func (t *Tiers) Check(a *Attribute, op uint64, addr netip.Addr) weir.Decision {
	return t.check(t.place(a), op, addr)
}

// CheckEndpoint is Check for an address in text, with or without a port. Text that is no address is refused like an
// address that is not valid.
func (t *Tiers) CheckEndpoint(a *Attribute, op uint64, endpoint string) weir.Decision {
	addr, _ := clientip.Parse(endpoint)
	return t.check(t.place(a), op, addr)
}

func (t *Tiers) check(at place, op uint64, addr netip.Addr) weir.Decision {
	switch {
	case t.closed.Load():
		return weir.Decision{Reason: weir.ReasonClosed, Policy: t.name}
	case at == unlimited:
		return unlimitedDecision(t.name)
	case at < firstPair:
		return t.refusal(at)
	case !addr.IsValid():
		return t.later()
	}
	if n := t.checks.Add(1); n&t.everyMask == 0 && n%t.every == 0 {
		defer t.startSweep() // when the limiter is left
	}
	b := t.slots[at-firstPair].Load()
	if b == nil {
		if b = t.bind(at); b == nil {
			return t.later()
		}
	}
	e := b.entry
	if !e.enter() {
		return t.later()
	}
	defer e.leave() // also if the clock panics
	b.used.Store(t.now())
	d, err := e.guard.CheckOperation(op, addr)
	if err != nil {
		return t.later()
	}
	return d
}

// refusal is the decision for an attribute that allows nothing.
func (t *Tiers) refusal(at place) weir.Decision {
	reason := weir.ReasonHardLockout
	if at == invalid {
		reason = weir.ReasonInvalid
	}
	return weir.Decision{Reason: reason, RetryAfter: weir.Never, Policy: t.name}
}

// later is the decision of a limiter that cannot be asked.
func (t *Tiers) later() weir.Decision {
	if t.closed.Load() {
		return weir.Decision{Reason: weir.ReasonClosed, Policy: t.name}
	}
	return weir.Decision{Reason: weir.ReasonSoftThrottle, RetryAfter: retryLater, Policy: t.name}
}

func unlimitedDecision(name string) weir.Decision {
	return weir.Decision{Allowed: true, Limit: math.MaxInt64, Remaining: math.MaxInt64, Policy: name}
}
