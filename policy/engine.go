package policy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/tally"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/store"
)

// EngineOptions configure an [Engine].
type EngineOptions struct {
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock weir.Clock
	// Shedder decides first, by the highest priority of the policies that apply to a request. Default: nil, none.
	Shedder *overload.Shedder
	// ExplainEvery explains one in so many requests that are taken: from 1 to 10^9. Default: 0, none.
	ExplainEvery int
	// OnExplain gets these explanations. It is called by the goroutine of the request. Required with ExplainEvery.
	OnExplain func(Explanation)
	// Logger logs, at level Warn and at most once a minute for each rule and policy, that a condition, a key, a tier or a cost
	// could not be evaluated, or that a store has failed. Default: nil, silent.
	Logger *slog.Logger
	// Store keeps the limits of shared policies, usually a *[store.Fleet]. It is asked once for each request, for all of its
	// shared limits, and bounds how long that may take. It belongs to the caller: Close of the engine does not close it, and
	// several engines may have one. Default: nil, then sets with shared policies are refused.
	Store store.Home
	// Durable keeps the limits of policies of DurabilityCluster, usually a *durable.Node. It belongs to the caller, as Store
	// does. Default: nil, then sets with such policies are refused.
	Durable store.Home
	// OnRefused is called for every verdict that refuses, but not for probes, nor for requests whose callers have gone. It
	// returns what [Verdict.RefusalID] shall be. A verdict of [Engine.DebitAll] that is not Allowed is one of them. The goroutine
	// of the request calls it, before the Observer, and waits for it. It must neither change nor keep what it gets. The requests
	// are those that were decided as one step. Default: nil, no call, and the ID is 0.
	OnRefused func(requests []*Request, v *Verdict) uint64
	// Observer sees every decision. It costs two readings of the clock for each. Default: nil, none.
	Observer Observer
	// Alone keeps the limits of all policies in this process, whatever Consistency, Durability, Store and Durable are: for tests
	// of a set, for replays and where there is one process only. Default: false.
	Alone bool
}

// Engine finds the limits that apply to a request, and decides. Its rules and policies can be replaced while it works, without
// losing a count. All methods are safe for concurrent use.
//
// # Shared limits
//
// The limits of policies whose Consistency is not ConsistencyLocal are in [EngineOptions.Store], where all engines over the same
// store count as one (TestSharedEnginesAreOneLimiter). A request with limits of this process and shared ones is all or nothing
// nevertheless. Those of this process are reserved first. Then the store is asked once, for all others. If it refuses, what was
// reserved is given back exactly (TestSharedAllOrNothingContention). Until then, other requests find the permits of this process
// taken. A request that this process refuses does not ask the store: the parts of its shared limits are [Part.Unasked].
//
// If some shared limit is one of concurrency, or the caller reserves, all shared limits of the request are reserved in the store
// for the Hold of their policies. Release, Commit or Cancel of the verdict settles them in one call. Otherwise they are taken,
// and Release has nothing to do there.
//
// A policy in shadow counts in the store, too, by a call of its own when the request has been allowed, which may take as long as
// the store allows. When the store has failed, it is not asked. Of a request that reserves it takes the estimate for good. A peek
// asks the store about each policy in ModeTag. Lockouts and candidates are of this process.
//
// # Durable limits
//
// The limits of policies of DurabilityCluster are those of the one owner in a cluster, in [EngineOptions.Durable]. They work as
// shared ones do, with two differences. They can have a queue, in which callers of all processes are served in the order of
// arrival (TestDurableWaitsInOneQueue): Wait waits there after the limits of this process have allowed the request, and keeps
// their permits. A request with shared limits as well asks both, exactly: see [store.Divided].
//
// # Failures
//
// If the store fails, the Fail of each policy decides; a *[store.Fleet] does that itself, and knows FailLocal. An invalid
// request, such as one with more charges than a store takes, is refused with ReasonUnavailable whatever Fail is. The zero
// Engine is not usable: call [NewEngine].
type Engine struct {
	options  EngineOptions
	clock    *clock.Steady
	live     atomic.Pointer[snapshot]
	sampled  atomic.Uint64
	closed   atomic.Bool
	ending   context.Context //nolint:containedctx // until Close: of what is asked of stores beside requests
	end      context.CancelFunc
	unending context.Context // of what has none
	states   store.Home      // of limits that are kept for several processes: Store, or a Divided over that and Durable
	latency  latency
	counts   struct{ requests, refused, denied, exempt, unlimited, canceled tally.Tally }

	telling     tellings
	loading     sync.Mutex
	changes     uint64 // of overrides of which a store is told
	lastError   error
	lastAttempt time.Time
}

// Take decides on a request, and charges it to all limits that apply to it or to none. It never waits for permits; where a limit
// is shared, it waits for the store. Release the verdict once the request has been served.
func (e *Engine) Take(r *Request, v *Verdict) {
	one := [1]*Request{r}
	e.decide(r.Context, one[:], ask{}, v)
}

// Reserve is Take with a cost that is settled later: the verdict must end in Commit or Cancel.
func (e *Engine) Reserve(r *Request, v *Verdict) {
	one := [1]*Request{r}
	e.decide(r.Context, one[:], ask{reserve: true}, v)
}

// Peek returns what Take would, with [Verdict.Over], and takes nothing. Where a limit of this process refuses, or the key is
// locked out, Take asks no store; Peek does, and its decisions are those of the shared limits, too.
func (e *Engine) Peek(r *Request, v *Verdict) {
	one := [1]*Request{r}
	e.decide(r.Context, one[:], ask{verb: peek}, v)
}

// Wait is Take for a caller that is ready to wait in the queues of the policies. It waits until ctx ends or the shortest MaxWait
// of those policies has passed, which is ReasonDeadline. Limits are waited for one after the other, and permits are given back if
// a later one refuses. A request that need not wait is allowed even if the deadline of ctx has passed
// (TestWaitTriesBeforeItLooksAtTheTime). Shared limits have no queue: the store is asked once all others have allowed the
// request. Those of DurabilityCluster are waited for in the queue of their owner, before the store is asked. The store and the
// owner are asked until the Context of the request ends, if it has one, and otherwise until ctx does.
//
// The error is nil if and only if the request is allowed. If a limit refuses it, the error is a *[weir.RefusedError] with the
// decision of the verdict. Where the policy has no queue to wait in, the error matches [weir.ErrNoQueue] and has ReasonQueueFull,
// as that of [weir.Keyed.Acquire], and the verdict, of which clients are told, ReasonLimited. One with ReasonDeadline matches the
// error of ctx as well if the deadline of ctx has passed. If ctx was canceled the error is that of ctx; then a request to which a
// limit applies is not allowed, even if it would not have to wait. A nil ctx panics.
func (e *Engine) Wait(ctx context.Context, r *Request, v *Verdict) error {
	return e.waitFor(ctx, r, ask{wait: true}, v)
}

// WaitReserve is Wait with a cost that is settled later, like Reserve.
func (e *Engine) WaitReserve(ctx context.Context, r *Request, v *Verdict) error {
	return e.waitFor(ctx, r, ask{wait: true, reserve: true}, v)
}

// TakeAll decides on several requests as one step: they are charged to all limits that apply to any of them, or to none, and no
// other call sees a part of it (TestTakeAllContention). Rules, keys, costs, tiers and modes are those of each request, as with
// Take, and the [Report] counts each; a shedder is asked once. A store is asked once and until ctx ends; the Context of a request
// does not count.
//
// Several requests for the same key of a policy are decided by their sum, all alike: two requests that cost 3 never have 5. If
// they bring different limits for it, or are of different tiers, the limit of the first applies to all of them. A refusal of that
// sum is one refusal towards a Lockout.
//
// More than [keyset.MostCharges] requests, and several with more than that many charges together, are refused with ReasonInvalid.
// Without any request the verdict is Allowed.
//
// Request of a part is the request that it belongs to, and [Verdict.Answer] the decision on a request. The verdict is settled as
// a whole, as with Take.
func (e *Engine) TakeAll(ctx context.Context, requests []*Request, v *Verdict) {
	e.decide(ctx, requests, ask{}, v)
}

// ReserveAll is TakeAll with costs that are settled later: the verdict must end in Commit or Cancel. Commit asks for the cost of
// each part, of each request, and charges their sum where several share one key.
func (e *Engine) ReserveAll(ctx context.Context, requests []*Request, v *Verdict) {
	e.decide(ctx, requests, ask{reserve: true}, v)
}

// PeekAll returns what TakeAll would, and takes nothing. Where requests wait for one of the keys, or its limit is overridden, it
// looks at one limit after the other.
func (e *Engine) PeekAll(ctx context.Context, requests []*Request, v *Verdict) {
	e.decide(ctx, requests, ask{verb: peek}, v)
}

// DebitAll charges what requests have cost already to all limits that apply to them, whatever remains. The debt of limits of this
// process is that of [keyset.DebitAll], and that of others of [store.Debit]. Rules, keys, costs and tiers are those of each
// request, as with [Engine.TakeAll], and so is the max number of requests and charges, [keyset.MostCharges]. No request is
// refused, no shedder is asked, lockouts neither count nor apply, and no call waits. There is nothing to settle.
//
// The decision of each part is that of a probe right afterwards: Allowed if a permit remains, or else with the RetryAfter of the
// first one. Limits of AlgorithmConcurrency are not charged, as their permits would never come back; one in a store is not asked.
//
// Allowed is true if all limits were charged. It is false if a store has failed: then Binding is a part of it, whose Reason is
// ReasonUnavailable, ReasonCanceled or ReasonClosed. Fail does not count, except that for FailLocal a [store.Fleet] charges this
// process until the store is back. It is not known whether the store was charged, so a second call may charge twice; the limits
// of this process have been charged. Allowed is also false if a key, a tier, a cost or a limit cannot be evaluated, where TakeAll
// would refuse: Binding is then -1, [Verdict.Decision] has the reason, and all other limits have been charged. What a full table
// has no room for is forgiven.
//
// Limits of this process are charged in one atomic step, then those in a store, in one step if they are all of one kind and
// [Consistency]. The [Report] counts requests and what policies were charged, which is Allowed. So it is with policies in
// ModeShadow and ModeTag and with candidates, which are charged apart, whatever remains: [Verdict.Over] tells of none.
func (e *Engine) DebitAll(ctx context.Context, requests []*Request, v *Verdict) {
	e.decide(ctx, requests, ask{verb: debit}, v)
	if o := v.work.observer; o != nil {
		v.work.observer = nil
		o.Settled(v, 0)
	}
}
