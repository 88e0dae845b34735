package httplimit

import (
	"context"
	"sync"

	"github.com/weirhq/weir/policy"
)

// Reserved is what a request has reserved of its limits, until its handler settles what it really cost. If the handler does not,
// the request has cost what was reserved. All methods are safe for concurrent use; those of a nil Reserved do nothing.
type Reserved struct {
	mu      sync.Mutex
	verdict *policy.Verdict // nil once it is settled
	made    bool
}

type reservationKey struct{}

// Reservation is what the request with this context has reserved in a [Gate] whose option Reserve is set; nil if there is
// nothing. It ends when the handler returns.
func Reservation(ctx context.Context) *Reserved {
	r, _ := ctx.Value(reservationKey{}).(*Reserved)
	return r
}

// Commit settles the request with what it really cost. actual is called for each limit; a negative number stands for what was
// reserved. What was reserved too much is given back; what is missing is charged, and may lead into debt: see
// [weir.Lease.Commit]. It returns false, and does nothing, if the request was settled before or its handler has returned. actual
// must not call methods of the Reserved.
func (r *Reserved) Commit(actual func(part *policy.Part) int64) bool {
	return r.settle(func(v *policy.Verdict) { v.Commit(actual) })
}

// CommitPolicy is Commit of the limits of one policy, such as that which counts tokens. Those of others have cost what was
// reserved. A negative cost counts as 0.
func (r *Reserved) CommitPolicy(name string, actual int64) bool {
	return r.Commit(func(part *policy.Part) int64 {
		if part.Policy.Name == name {
			return max(actual, 0)
		}
		return -1
	})
}

// Cancel settles the request as if it had never come.
func (r *Reserved) Cancel() bool { return r.settle((*policy.Verdict).Cancel) }

func (r *Reserved) settle(how func(v *policy.Verdict)) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.verdict == nil {
		return false
	}
	how(r.verdict)
	r.verdict = nil
	return true
}

// end is when the handler returns: after that the verdict is that of another request.
func (r *Reserved) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdict = nil
}
