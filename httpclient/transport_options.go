package httpclient

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/nils"
)

// Keyed is a limiter with one limit for each key, whose permits can be waited for and given back. A [weir.Keyed] of strings is
// one.
type Keyed interface {
	Reserve(ctx context.Context, key string, n int64) (weir.Lease, error)
}

// NoRetries as MaxRetries returns every response as it is.
const NoRetries = -1

// Options configure a [Transport]. The zero value obeys servers and has no limit of its own.
type Options struct {
	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper
	// Limiter is the pace at which the client itself wants to send, all hosts together. Give it a QueueLimit: without one
	// requests fail where they should wait. Permits of a [weir.Concurrency] are in use until the body of the response has been
	// read or closed. An overload.Adaptive also learns from requests whose deadline passes, and from the status 429, 503 and
	// 504, and nothing from requests that are canceled (TestAdaptiveLimitLearnsFromResponses). Default: nil, none.
	Limiter weir.Acquirer
	// Keyed is that for each partition on its own. It excludes Limiter.
	Keyed Keyed
	// Cost is how many permits of Limiter or Keyed a request takes: from 0, which takes none. Where that is an estimate, see
	// [WithSettlement]. Default: 1.
	Cost func(*http.Request) int64
	// Partition names the requests that share the limits of a server: what one request learns counts for all others of the same
	// partition. A server with separate limits for parts of it, or for each API key, needs one. It is the key for Keyed, and the
	// name for [Transport.Status]. Default: the host of the URL in lower case, without a port that is usual.
	Partition func(*http.Request) string
	// MaxWait is how long a request waits in all, with the waits before it is sent again: from 1 ns, or weir.Never for as long as
	// its context lasts. Default: 1 min.
	MaxWait time.Duration
	// MaxHold is the max time for which one response can hold requests back: from 1 s to 24 h. After it, one request after the
	// other is sent, and the server can hold them back again. Default: 5 min.
	MaxHold time.Duration
	// MaxRetries is how often a request is sent again that was refused with status 429 or 503, if the response had a time for it:
	// from 1 to 10, or NoRetries. It is not sent again if its body cannot be read twice (GetBody is nil), or if the time would
	// come after MaxWait or the deadline of its context. With 503 it must also be idempotent, by its method or an
	// Idempotency-Key. Otherwise the caller gets the refusal. Default: 2.
	MaxRetries int
	// Spread spreads what remains of a limit evenly over the rest of its window, so that requests do not use it up at once and
	// then wait. Default: false.
	Spread bool
	// ReleaseRate is how fast requests that were held back are sent where the server has not told how fast its limit is: they are
	// at least its Interval apart. Default: 10/s.
	ReleaseRate weir.Rate
	// Jitter is the max part of the time for which a host is held back that is added to it at random, so that many clients which
	// were refused together do not come back together: from 0 to 1. Default: 0, which stands for 0.1.
	Jitter float64
	// Random is where jitter comes from: numbers from 0 up to, not including, 1. It must be safe for concurrent use.
	// Default: rand.Float64 of math/rand/v2.
	Random func() float64
	// QueueLimit is how many requests wait for one partition at most: from 1 to 1,000,000. Default: 10,000.
	QueueLimit int
	// MaxHosts is how many partitions are remembered at a time: from 1 to 1,000,000. Those of which nothing needs to be
	// remembered are forgotten to make room, the one that was not used for the longest time first. Default: 10,000.
	MaxHosts int
	// AdmitWhenFull is whether a request for a new partition is sent without asking where none can be forgotten. Default: false,
	// it fails with a *LimitedError.
	AdmitWhenFull bool
}

const (
	mostWaiting = 1_000_000
	mostHosts   = 1_000_000
	mostRetries = 10
)

// complete checks the options and fills in the defaults.
func (o *Options) complete() error {
	if err := o.check(); err != nil {
		return err
	}
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.Partition == nil {
		o.Partition = hostOf
	}
	setDefault(&o.MaxWait, time.Minute)
	setDefault(&o.MaxHold, 5*time.Minute)
	setDefault(&o.MaxRetries, 2)
	setDefault(&o.ReleaseRate, weir.PerSecond(10))
	setDefault(&o.Jitter, 0.1)
	setDefault(&o.QueueLimit, 10_000)
	setDefault(&o.MaxHosts, 10_000)
	o.MaxRetries = max(o.MaxRetries, 0)
	return nil
}

func setDefault[T comparable](option *T, value T) {
	var zero T
	if *option == zero {
		*option = value
	}
}

func (o *Options) check() error {
	const of = "Options."
	switch {
	case o.Limiter != nil && nils.Is(o.Limiter):
		return optionError(of+"Limiter", fmt.Sprintf("a nil %T", o.Limiter), "a limiter")
	case o.Keyed != nil && nils.Is(o.Keyed):
		return optionError(of+"Keyed", fmt.Sprintf("a nil %T", o.Keyed), "a limiter")
	case o.Limiter != nil && o.Keyed != nil:
		return optionError(of+"Keyed", "set beside Limiter", "the only one of the two")
	case o.ReleaseRate != (weir.Rate{}) && o.ReleaseRate.Check() != nil:
		return optionError(of+"ReleaseRate", o.ReleaseRate.String(), "a valid rate, or zero for 10/s")
	}
	return o.checkNumbers(of)
}

func (o *Options) checkNumbers(of string) error {
	switch {
	case o.MaxWait < 0:
		return optionError(of+"MaxWait", o.MaxWait.String(), "from 1ns, or 0 for 1m, or weir.Never")
	case o.MaxHold != 0 && (o.MaxHold < time.Second || o.MaxHold > 24*time.Hour):
		return optionError(of+"MaxHold", o.MaxHold.String(), "from 1s to 24h, or 0 for 5m")
	case o.MaxRetries < NoRetries || o.MaxRetries > mostRetries:
		return optionError(of+"MaxRetries", fmt.Sprint(o.MaxRetries), "from 1 to 10, or NoRetries, or 0 for 2")
	case !(o.Jitter >= 0 && o.Jitter <= 1): // NaN included
		return optionError(of+"Jitter", fmt.Sprint(o.Jitter), "from 0 to 1")
	case o.QueueLimit < 0 || o.QueueLimit > mostWaiting:
		return optionError(of+"QueueLimit", fmt.Sprint(o.QueueLimit), "from 1 to 1000000, or 0 for 10000")
	case o.MaxHosts < 0 || o.MaxHosts > mostHosts:
		return optionError(of+"MaxHosts", fmt.Sprint(o.MaxHosts), "from 1 to 1000000, or 0 for 10000")
	}
	return nil
}
