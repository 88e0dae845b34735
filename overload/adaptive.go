package overload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inside"
)

// AdaptiveOptions configure an [Adaptive]. The zero value is a good start for a service that responds within a second.
type AdaptiveOptions struct {
	// Name is the Policy of the decisions. Default: "".
	Name string
	// InitialLimit is the limit until something has been measured: from MinLimit to MaxLimit. It should be what the service can
	// surely do at a time, as the first latencies count as those without overload. Default: 20, or the nearest from MinLimit to
	// MaxLimit.
	InitialLimit int64
	// MinLimit and MaxLimit are what the limit never leaves: from 1 to 10^9, MinLimit at most MaxLimit. Requests for
	// more than MinLimit permits may be refused with ReasonNever at times. Defaults: 1 and 1000, or MinLimit if it is
	// more.
	MinLimit, MaxLimit int64
	// Tolerance is how many times the latency without load is still good: from 1.01 to 1.9. More of it makes for a higher
	// limit, which keeps the service busy though its latencies vary, and for a longer queue in it. Default: 1.25.
	Tolerance float64
	// Smoothing is how far the limit goes at each step toward what was just measured: from 0.01 to 1, all the way.
	// Default: 0.5.
	Smoothing float64
	// Window is the shortest time between two steps: from 1 ms to 1 min. It is extended until WindowSamples requests
	// that began within it have ended, and to twice the latency without load. Default: 100 ms.
	Window time.Duration
	// WindowSamples is how many requests, the last of the window, the median latency is taken of: from 1 to 10,000. Those that
	// were dropped are left out. Default: 100.
	WindowSamples int
	// ProbeInterval is how long a measurement of the latency without load counts: from 100 ms to 1 h. If more than half of the
	// limit was always in use for so long, the limit is halved for one window to measure it again. Default: 10 s.
	ProbeInterval time.Duration
	// QueueLimit bounds the sum of the permits that callers of Acquire wait for: from 0 to 10^15. Default: 0, no caller
	// waits.
	QueueLimit int64
	// NewestFirst is whether the last of the waiting callers is served first: see [weir.Options]. Default: false.
	NewestFirst bool
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock weir.Clock
}

func (o *AdaptiveOptions) defaults() {
	if o.MinLimit == 0 {
		o.MinLimit = 1
	}
	if o.MaxLimit == 0 {
		o.MaxLimit = max(1000, o.MinLimit)
	}
	if o.InitialLimit == 0 {
		o.InitialLimit = min(max(20, o.MinLimit), o.MaxLimit)
	}
	if o.Tolerance == 0 {
		o.Tolerance = 1.25
	}
	if o.Smoothing == 0 {
		o.Smoothing = 0.5
	}
	if o.Window == 0 {
		o.Window = 100 * time.Millisecond
	}
	if o.WindowSamples == 0 {
		o.WindowSamples = 100
	}
	if o.ProbeInterval == 0 {
		o.ProbeInterval = 10 * time.Second
	}
}

// maxAdaptive is the highest limit: it and all that is computed of it are exact in a float64.
const maxAdaptive = 1_000_000_000

const adaptiveOptions = "overload.AdaptiveOptions."

func (o *AdaptiveOptions) check() error {
	wrong := func(option, value, accepted string) error {
		return &weir.OptionError{Option: adaptiveOptions + option, Value: value, Accepted: accepted}
	}
	within := func(low, x, high float64) bool { return low <= x && x <= high } // NaN is not
	switch {
	case o.MinLimit < 1 || o.MinLimit > maxAdaptive:
		return wrong("MinLimit", fmt.Sprint(o.MinLimit), "from 1 to 10^9 permits")
	case o.MaxLimit < o.MinLimit || o.MaxLimit > maxAdaptive:
		return wrong("MaxLimit", fmt.Sprint(o.MaxLimit), fmt.Sprintf("from MinLimit, %d, to 10^9 permits", o.MinLimit))
	case o.InitialLimit < o.MinLimit || o.InitialLimit > o.MaxLimit:
		return wrong("InitialLimit", fmt.Sprint(o.InitialLimit),
			fmt.Sprintf("from MinLimit to MaxLimit, %d to %d permits", o.MinLimit, o.MaxLimit))
	case !within(1.01, o.Tolerance, 1.9):
		return wrong("Tolerance", fmt.Sprint(o.Tolerance), "from 1.01 to 1.9")
	case !within(0.01, o.Smoothing, 1):
		return wrong("Smoothing", fmt.Sprint(o.Smoothing), "from 0.01 to 1")
	case o.Window < time.Millisecond || o.Window > time.Minute:
		return wrong("Window", o.Window.String(), "from 1ms to 1m")
	case o.WindowSamples < 1 || o.WindowSamples > 10_000:
		return wrong("WindowSamples", fmt.Sprint(o.WindowSamples), "from 1 to 10000")
	case o.ProbeInterval < 100*time.Millisecond || o.ProbeInterval > time.Hour:
		return wrong("ProbeInterval", o.ProbeInterval.String(), "from 100ms to 1h")
	}
	return nil
}

// Adaptive is a [weir.Concurrency] that finds its limit by itself: as many permits as keep the service behind it busy, but hardly
// queueing. If the service becomes slower the limit goes down, so that allowed requests are served in time; when it recovers the
// limit goes up.
//
// It learns from the time between the acquisition of a lease and its Release, whatever its permits: that of a [weir.Chain] is
// acquired when the last of its limiters has allowed it. So keep a lease exactly while the request is with the service, and end
// it by one of these:
//
//   - Release: the service responded.
//   - [weir.Lease.Drop]: the request was lost to an overload. The service refused it, or it ran into a timeout.
//   - [weir.Lease.Cancel]: nothing can be learned. The client has gone, or the response came from a cache.
//
// A change of the limit takes effect at once, as described at [weir.Concurrency.SetLimit]: a lease is never given out above the
// limit, and lowering it revokes none. Adaptive starts no goroutine: the Release that ends a window makes the step. Floating
// point is used to estimate the limit, never to count permits.
//
// # Algorithm
//
// It is the gradient controller of Envoy's adaptive concurrency filter
// (https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/adaptive_concurrency_filter). The new limit is the
// old one times the gradient, plus the square root of that as headroom. The gradient is the latency without load, with a
// tolerance, by the latency now. These are the differences:
//
//   - The latency without load is measured by halving the limit for one window, where Envoy goes down to a few requests. It is
//     measured only if traffic has not shown it for ProbeInterval, and moves half-way to each measurement. It also follows if
//     requests take longer although only half as many run as when it was measured.
//   - A latency counts only if its request began after the last step, so that no step is made twice.
//   - Nothing is learned from idleness: the limit does not grow while at most half of it is in use.
//   - If a share of the requests of a window is dropped, the gradient is at most 1 less that share.
//
// The zero Adaptive is not usable: call [NewAdaptive].
type Adaptive struct {
	weir.Acquirer // permits

	permits *weir.Concurrency
	window  time.Duration
	samples int64

	learned struct {
		_       [64]byte
		begin   atomic.Int64 // of the window, on the clock of the limiter
		end     atomic.Int64 // the window is not shorter than up to here
		ended   atomic.Int64 // requests that began in it and have ended
		dropped atomic.Int64 // of these
		peak    atomic.Int64 // the most permits that were out in it when one was leased
		_       [24]byte
	}
	latencies []atomic.Int64 // of the last requests, 0: none, or dropped

	mu       sync.Mutex // one step at a time
	gradient gradient
	sorted   []int64
}

var _ weir.Acquirer = (*Adaptive)(nil)

// NewAdaptive returns a limiter with all permits free, or an error that names the option that cannot be used.
func NewAdaptive(o AdaptiveOptions) (*Adaptive, error) {
	o.defaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	a := &Adaptive{
		window: o.Window, samples: int64(o.WindowSamples),
		latencies: make([]atomic.Int64, o.WindowSamples),
		sorted:    make([]int64, 0, o.WindowSamples),
		gradient: gradient{
			least: float64(o.MinLimit), most: float64(o.MaxLimit), limit: float64(o.InitialLimit),
			tolerance: o.Tolerance, smoothing: o.Smoothing, interval: int64(o.ProbeInterval),
		},
	}
	permits, err := weir.NewConcurrency(o.InitialLimit, weir.Options{
		Name: o.Name, QueueLimit: o.QueueLimit, NewestFirst: o.NewestFirst, Clock: o.Clock,
	})
	if wrong, ok := errors.AsType[*weir.OptionError](err); ok {
		wrong.Option = adaptiveOptions + strings.TrimPrefix(wrong.Option, "Options.")
	}
	if err != nil {
		return nil, err
	}
	a.Acquirer, a.permits = permits, permits
	born := observe(permits, observer{a})
	a.gradient.measured = born
	a.begin(born)
	return a, nil
}

//nolint:errcheck,forcetypeassert,gochecknoglobals // package weir has set it, which is initialized before
var observe = inside.Observe.(func(*weir.Concurrency, inside.Observer) (now int64))

// begin begins a window.
func (a *Adaptive) begin(now int64) {
	for i := range a.latencies {
		a.latencies[i].Store(0)
	}
	l := &a.learned
	l.peak.Store(0)
	l.dropped.Store(0)
	l.end.Store(clock.After(now, max(a.window, time.Duration(2*a.gradient.base))))
	l.begin.Store(now)
	l.ended.Store(0)
}

// observer sees the leases of an Adaptive.
type observer struct{ *Adaptive }

// Leased implements [inside.Observer].
func (o observer) Leased(out int64) {
	peak := &o.learned.peak
	for old := peak.Load(); out > old && !peak.CompareAndSwap(old, out); {
		old = peak.Load()
	}
}

// Ended implements [inside.Observer].
func (o observer) Ended(since, now int64, dropped bool) {
	a := o.Adaptive
	if since < a.learned.begin.Load() {
		return
	}
	ended, latency := a.learned.ended.Add(1), max(now-since, 1)
	if dropped {
		a.learned.dropped.Add(1)
		latency = 0
	}
	a.latencies[uint64(ended)%uint64(len(a.latencies))].Store(latency)
	if ended >= a.samples && now >= a.learned.end.Load() {
		a.step(now)
	}
}

// step ends a window and begins the next, unless another call does it just now.
func (a *Adaptive) step(now int64) {
	if !a.mu.TryLock() {
		return
	}
	defer a.mu.Unlock()
	l := &a.learned
	ended := l.ended.Load()
	if ended < a.samples || now < l.end.Load() {
		return
	}
	w := window{
		now: now, latency: a.median(), peak: float64(l.peak.Load()),
		dropped: min(float64(l.dropped.Load())/float64(ended), 1), // more may have been dropped since
	}
	if limit := a.gradient.step(w); limit != a.limit() {
		if err := a.permits.SetLimit(limit); err != nil {
			panic(err) // the gradient keeps the limit in range
		}
	}
	a.begin(now)
}

// median returns 0 if no request has ended.
func (a *Adaptive) median() float64 {
	s := a.sorted[:0]
	for i := range a.latencies {
		if d := a.latencies[i].Load(); d > 0 {
			s = append(s, d)
		}
	}
	if len(s) == 0 {
		return 0
	}
	slices.Sort(s)
	return float64(s[(len(s)-1)/2])
}

// Do calls f with n permits taken, which come back when f returns or panics. It waits for them as Acquire does. The error is that
// of f, or, if the permits were refused and f not called, that of Acquire. A nil f panics.
func (a *Adaptive) Do(ctx context.Context, n int64, f func() error) error {
	return a.permits.Do(ctx, n, f)
}

// Limit is the limit now.
func (a *Adaptive) Limit() weir.Limit { return a.permits.Limit() }

func (a *Adaptive) limit() int64 { return a.permits.Limit().Permits() }

// Concurrency is the limiter of the permits. A [weir.Chain] asks it. Its limit is set by the Adaptive.
func (a *Adaptive) Concurrency() *weir.Concurrency { return a.permits }

// Close refuses all callers that wait and all that come later, with ReasonClosed. Leases may still be released. Closing twice is
// harmless. The error is always nil.
func (a *Adaptive) Close() error { return a.permits.Close() }

// AdaptiveEstimate is what an [Adaptive] made of what it has measured.
type AdaptiveEstimate struct {
	// Limit is the limit of this moment, which while Probing is half of what it is otherwise, and MinLimit at least.
	Limit int64
	// Probing reports whether the latency without load is just being measured.
	Probing bool
	// Unloaded is the latency without load, 0 before the first window has ended.
	Unloaded time.Duration
	// Latency is the median of the last window with a completed request. Dropped is the share of the last window that was
	// dropped, from 0 to 1.
	Latency time.Duration
	Dropped float64
	// Windows counts those that have ended, and Probes how many of them were begun to measure Unloaded.
	Windows, Probes int64
}

// Estimate is for callers that watch the limiter: how it came to its limit.
func (a *Adaptive) Estimate() AdaptiveEstimate {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := &a.gradient
	return AdaptiveEstimate{
		Limit: a.limit(), Probing: g.probing, Unloaded: time.Duration(math.Round(g.base)),
		Latency: time.Duration(math.Round(g.latency)), Dropped: g.dropped, Windows: g.windows, Probes: g.probes,
	}
}
