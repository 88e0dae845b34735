package httpclient

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/store"
)

// Metered is an [http.RoundTripper] for clients of a paid API. Every request that is sent has its permits from a limit that the
// whole fleet shares, and that survives every crash. See package durable. It starts no goroutine. All methods are safe for
// concurrent use.
//
// Requests of all processes wait in one queue, oldest first. One whose deadline passes, or whose context ends, is withdrawn,
// takes nothing, and is not sent. A refused request is not sent either, its body is closed, and the error is a *[LimitedError]
// with one of these Reasons:
//
//   - ReasonQueueFull: too many permits are waited for already
//   - ReasonDeadline: its deadline has passed, or MaxWait; where it was that of its context, errors.Is finds
//     context.DeadlineExceeded
//   - ReasonNever: it costs more than there can ever be
//   - ReasonClosed: the owner of the limit ends its term; the next one can be asked at once
//   - ReasonUnavailable: there is no owner, or it cannot write; the error wraps why
//   - ReasonTableFull: the owner keeps as many keys as it may
//   - ReasonInvalid: Cost or Key returned what no request may have
//
// If the context was canceled, the error is the cause of that. Permits that were taken in the same moment are lost, unless they
// were reserved.
//
// A Metered takes permits once for each request that it is given. To obey the limits of the server too, and to send refused
// requests again, make it the Base of a [Transport]: then each attempt has its permits. The zero Metered is not usable: call
// [NewMetered].
type Metered struct{ options MeteredOptions }

// NoQueue as QueueLimit refuses a request at once whose permits are not there.
const NoQueue = -1

// MeteredOptions configure a [Metered]. Only Limits is required.
type MeteredOptions struct {
	// Limits are those of the cluster, such as a [durable.Node]. Required. They are not closed.
	Limits store.Home
	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper
	// Policy names the limit, in errors as well: from 1 to 256 bytes. Default: "metered-api".
	Policy string
	// Limit is the limit of each key, of any algorithm but AlgorithmConcurrency. All processes should have the same. Default: 5
	// at once and 8 a minute. [durable.MeteredAPI] with os.Getenv reads it from the environment.
	Limit weir.Limit
	// Key returns who shares the permits of a request, such as the API key that it is sent with. One of more than 256 bytes is
	// replaced by its SHA-256. Default: one key for all requests.
	Key func(*http.Request) string
	// Cost is how many permits a request takes: from 0, which takes none and does not ask the owner. Default: 1.
	Cost func(*http.Request) int64
	// Actual returns what a request really cost, from its response: from 0, or less than 0 if that is not known, so that it costs
	// Cost. With it permits are reserved, and settled before the response is returned. For costs that are in the body see
	// [WithSettlement]. Default: nil, Cost is right.
	Actual func(*http.Response) int64
	// ReserveFor is how long a reservation lasts at most if it is not settled, as the process has died or a [Settlement] was
	// forgotten: then its permits are given back. It should be longer than any response takes: from 1 ms to 24 h. Default: 10
	// min.
	ReserveFor time.Duration
	// MaxWait is how long a request waits whose context has no deadline: from 1 ms to 24 h. Default: 30 s. With a deadline it
	// waits until that, and never longer than 24 h.
	MaxWait time.Duration
	// QueueLimit is how many permits can be waited for, those of the request included, by all processes together: from 1 to
	// 10^15, or NoQueue. Default: 10,000.
	QueueLimit int64
	// Logger is warned of costs that could not be settled. Default: slog.Default().
	Logger *slog.Logger
}

// NewMetered returns a Metered, or an error that names the option that cannot be used.
func NewMetered(o MeteredOptions) (*Metered, error) {
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	setDefault(&o.Policy, "metered-api")
	setDefault(&o.ReserveFor, 10*time.Minute)
	setDefault(&o.MaxWait, durable.DefaultTimeout)
	setDefault(&o.QueueLimit, durable.DefaultQueueLimit)
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Limit == (weir.Limit{}) {
		o.Limit = durable.MeteredAPI(nil, nil)
	}
	o.QueueLimit = max(o.QueueLimit, 0)
	return &Metered{o}, nil
}

// RoundTrip implements [http.RoundTripper].
func (m *Metered) RoundTrip(r *http.Request) (*http.Response, error) {
	o, ctx := &m.options, r.Context()
	cost := int64(1)
	if o.Cost != nil {
		cost = o.Cost(r)
	}
	if cost == 0 {
		return o.Base.RoundTrip(r)
	}
	settlement, _ := ctx.Value(settlementKey{}).(*Settlement)
	owed := meteredCost{of: m}
	if err := m.acquire(r, cost, settlement != nil || o.Actual != nil, &owed); err != nil {
		closeBody(r)
		return nil, err
	}
	resp, err := o.Base.RoundTrip(r)
	switch {
	case owed.hold.ID == "":
	case settlement != nil:
		settlement.holdMetered(&owed)
	case err != nil: // whether the server has counted it is not known
		owed.commit(ctx, cost)
	default:
		actual := o.Actual(resp)
		if actual < 0 {
			actual = cost
		}
		owed.commit(ctx, actual)
	}
	return resp, err
}

// acquire has the permits of a request, or a reason why it is not sent.
func (m *Metered) acquire(r *http.Request, cost int64, reserve bool, owed *meteredCost) error {
	o, ctx := &m.options, r.Context()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	charge := [1]store.Charge{{Policy: o.Policy, Limit: o.Limit, N: cost, Queue: o.QueueLimit}}
	if o.Key != nil {
		charge[0].Key = keytext.Whole(o.Key(r))
	}
	ask := store.Ask{Wait: o.MaxWait}
	if reserve {
		ask.Hold = o.ReserveFor
	}
	deadline, bounded := ctx.Deadline()
	if bounded {
		ask.Wait = min(time.Until(deadline), store.MaxWait)
	}
	decision := [1]weir.Decision{{Reason: weir.ReasonDeadline}}
	var err error
	if ask.Wait > 0 { // otherwise its context is about to end
		owed.hold, err = o.Limits.Do(ctx, ask, charge[:], decision[:])
	}
	d := &decision[0]
	switch cause := context.Cause(ctx); {
	case err == nil && d.Allowed && cause == nil:
		return nil
	case err == nil && d.Allowed:
		owed.cancel(ctx)
		return cause
	case cause != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return cause
	}
	refusal := &LimitedError{Host: hostOf(r), Limit: o.Policy, Reason: d.Reason, RetryAfter: d.RetryAfter, Err: err}
	_, wrong := errors.AsType[*weir.OptionError](err)
	switch {
	case wrong:
		refusal.Reason = weir.ReasonInvalid
	case err != nil:
		refusal.Reason, refusal.RetryAfter = weir.ReasonUnavailable, 0
	case bounded && d.Reason == weir.ReasonDeadline:
		refusal.Err = context.DeadlineExceeded
	case d.Reason == weir.ReasonLimited: // as there is no queue
		refusal.Reason = weir.ReasonQueueFull
	}
	return refusal
}

// CloseIdleConnections closes those of Base, if it can.
func (m *Metered) CloseIdleConnections() {
	if base, ok := m.options.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// meteredCost is what a request has reserved.
type meteredCost struct {
	of   *Metered
	hold store.Hold
}

const (
	// settleTime is how long it is tried to settle a cost: longer than it takes until there is another owner.
	settleTime = 5 * time.Second
	// settlePause is how long to wait after that has failed.
	settlePause = 100 * time.Millisecond
)

func (c *meteredCost) commit(ctx context.Context, actual int64) bool {
	return c.settle(ctx, []int64{actual})
}

func (c *meteredCost) cancel(ctx context.Context) bool {
	return c.hold.ID != "" && c.settle(ctx, nil)
}

// settle settles the hold with the owner, also with a later one, and reports whether that was done. The end of the request does
// not end it.
func (c *meteredCost) settle(ctx context.Context, actual []int64) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	for {
		err := c.of.options.Limits.Settle(ctx, c.hold, actual)
		if err == nil {
			return true
		}
		pause := time.NewTimer(settlePause)
		// What was settled by a try whose answer was lost is not reserved any more either.
		_, wrong := errors.AsType[*weir.OptionError](err)
		if final := wrong || errors.Is(err, durable.ErrNotReserved); !final {
			select {
			case <-pause.C:
				continue
			case <-ctx.Done():
			}
		}
		pause.Stop()
		c.of.options.Logger.LogAttrs(ctx, slog.LevelWarn, "httpclient: the cost of a request was not settled",
			slog.String("policy", c.hold.Charges[0].Policy), slog.Int64("reserved", c.hold.Charges[0].N), slog.Any("error", err))
		return false
	}
}
