package policy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
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
	Store store.Store
	// Durable keeps the limits of policies of DurabilityCluster, usually a *durable.Store. It belongs to the caller, as Store
	// does. Default: nil, then sets with such policies are refused.
	Durable store.Queued
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
// taken. A request that this process refuses does not ask the store: the parts of its shared limits are Unasked.
//
// If some shared limit is one of concurrency, or the caller reserves, all shared limits of the request are reserved in the store
// for the Hold of their policies. Release, Commit or Cancel of the verdict settles them in one call. Otherwise they are taken,
// and Release has nothing to do there.
//
// A policy in shadow counts in the store, too, by a call of its own when the request has been allowed, which may take as long as
// the store allows. When the store has failed, it is not asked. Lockouts and candidates are of this process.
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
// request, such as one with more charges than a store takes, is refused with ReasonUnavailable whatever Fail is.
type Engine struct {
	options  EngineOptions
	clock    *lockoutClock
	watched  bool // by Observer or OnRefused
	live     atomic.Pointer[snapshot]
	sampled  atomic.Uint64
	closed   atomic.Bool
	ending   context.Context //nolint:containedctx // until Close: of what is asked of stores beside requests
	end      context.CancelFunc
	unending context.Context // of what has none
	states   store.Store     // of limits that are kept for several processes: Store, or a Divided over that and Durable
	queued   store.Queued    // the same, if there is a Durable
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
	e.decide(r.Context, one[:], v, false)
}

// Reserve is Take with a cost that is settled later: the verdict must end in Commit or Cancel.
func (e *Engine) Reserve(r *Request, v *Verdict) {
	one := [1]*Request{r}
	e.decide(r.Context, one[:], v, true)
}

// Peek returns what Take would, and takes nothing.
func (e *Engine) Peek(r *Request, v *Verdict) {
	one := [1]*Request{r}
	e.peek(r.Context, e.live.Load(), one[:], v)
}

// Wait is Take for a caller that is ready to wait in the queues of the policies. It waits until ctx ends or the shortest MaxWait
// of those policies has passed, which is ReasonDeadline. Limits are waited for one after the other, and permits are given back if
// a later one refuses. A request that need not wait is allowed even if the deadline of ctx has passed
// (TestWaitTriesBeforeItLooksAtTheTime). Shared limits have no queue: the store is asked once all others have allowed the
// request. Those of DurabilityCluster are waited for in the queue of their owner, before the store is asked. The store and the
// owner are asked until the Context of the request ends, if it has one, and otherwise until ctx does.
//
// The error is nil if and only if the request is allowed. If a limit refuses it, the error is a *[weir.RefusedError] with the
// decision of the verdict. It matches [weir.ErrNoQueue] where the policy has no queue to wait in, and the error of ctx as well if
// the deadline of ctx has passed. If ctx was canceled the error is that of ctx; then a request to which a limit applies is not
// allowed, even if it would not have to wait. A nil ctx panics.
func (e *Engine) Wait(ctx context.Context, r *Request, v *Verdict) error {
	return e.wait(ctx, r, v, false)
}

// WaitReserve is Wait with a cost that is settled later, like Reserve.
func (e *Engine) WaitReserve(ctx context.Context, r *Request, v *Verdict) error {
	return e.wait(ctx, r, v, true)
}
