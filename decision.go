package weir

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/algo"
)

// Never is the RetryAfter of a request that cannot succeed however long the caller waits, because it asks for more
// permits than the limit ever holds. It is the largest duration, not a time to sleep: compare with it before waiting.
const Never = algo.Never

// Decision is the answer of a limiter to one request.
type Decision struct {
	// Allowed reports whether the permits were taken.
	Allowed bool
	// Reason is why not. It is ReasonNone if the request was allowed.
	Reason Reason
	// Limit is how many permits can be taken at once: the burst of a token bucket, otherwise the limit.
	Limit int64
	// Remaining is how many permits are left, rounded down, never negative.
	Remaining int64
	// RetryAfter is how long to wait before the same request can succeed, counting callers that already wait in the queue:
	// 0 if it was allowed, Never if it cannot succeed. It is rounded up, so that coming back after it is never too
	// early. For a refusal of a Concurrency limiter it is 0: it is not known when permits will be released. Of a limiter that
	// is closed it is Never, or 0 of a Guard.
	RetryAfter time.Duration
	// ResetAfter is how long it takes until all permits are back if no caller takes any more. It is 0 for a
	// Concurrency limiter.
	ResetAfter time.Duration
	// Policy is the name of the limiter that the decision speaks of; for a Chain, of the limit that decides.
	Policy string
}

// Reason is why a request was refused.
type Reason uint8

const (
	// ReasonNone means: the request was allowed. It is also that of a zero Decision, which is not Allowed.
	ReasonNone Reason = iota
	// ReasonLimited means: not enough permits are available now, or others wait for them.
	ReasonLimited
	// ReasonNever means: more permits were asked for than the limit ever holds.
	ReasonNever
	// ReasonQueueFull means: the caller was ready to wait, but the queue has no room for its permits.
	ReasonQueueFull
	// ReasonDeadline means: the caller was ready to wait, but its context would end before its turn.
	ReasonDeadline
	// ReasonEvicted means: the caller waited in a newest-first queue and had to make room for newer ones.
	ReasonEvicted
	// ReasonCanceled means: the context of the caller ended before its turn. It comes with an error.
	ReasonCanceled
	// ReasonClosed means: the limiter has been closed.
	ReasonClosed
	// ReasonTableFull means: the limiter tracks as many keys as it may, none of them can be forgotten, and this one is
	// new.
	ReasonTableFull
	// ReasonInvalid means: the request was misuse, such as a negative number of permits. Lease.Err says more.
	ReasonInvalid
	// ReasonSoftThrottle means: the endpoint of a Guard has used up its tokens, and may come back after RetryAfter.
	ReasonSoftThrottle
	// ReasonHardLockout means: the endpoint of a Guard came back too early too often, and is locked out.
	ReasonHardLockout
	// ReasonTrackingCap means: a Guard tracks as many endpoints as it may, and this one is new.
	ReasonTrackingCap
	// ReasonOverloaded means: a Shedder refuses requests of this priority, as what it watches is under pressure.
	ReasonOverloaded
	// ReasonUnavailable means: what the decision depends on could not be told, or could not be reached.
	ReasonUnavailable
	// ReasonDenied means: a rule denies the request, whatever limits have left. RetryAfter is Never.
	ReasonDenied

	reasons
)

// Hard reports whether the refusal is more than a request to slow down: the caller is locked out, cannot be tracked, or
// finds the limiter closed.
func (r Reason) Hard() bool {
	return r == ReasonHardLockout || r == ReasonTrackingCap || r == ReasonTableFull || r == ReasonClosed
}

var reasonNames = [reasons]string{
	"none", "limited", "never", "queue-full", "deadline", "evicted", "canceled", "closed", "table-full", "invalid",
	"soft-throttle", "hard-lockout", "tracking-cap",
	"overloaded", "unavailable", "denied",
}

// String is the name of the reason in lower case, such as "queue-full".
func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// MarshalText is String.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (r *Reason) UnmarshalText(text []byte) error {
	for i, name := range reasonNames {
		if name == string(text) {
			*r = Reason(i)
			return nil
		}
	}
	return fmt.Errorf("weir: unknown reason %.40q", text)
}
