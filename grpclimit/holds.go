package grpclimit

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// held is what is held back: a method of a target, or a whole target if the method is "".
type held struct{ target, method string }

// holds are the times until which servers have asked not to be called.
type holds struct {
	active atomic.Int64 // how many there are: the lock is not taken while there is none

	mu    sync.Mutex
	until map[held]time.Time
}

// mostHolds is how many are remembered. A client has as many methods as its program; more come from elsewhere.
const mostHolds = 4096

// rest is for how long a call is still held back.
func (h *holds) rest(key held) time.Duration {
	if h.active.Load() == 0 {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	until, ok := h.until[key]
	if !ok {
		return 0
	}
	d := time.Until(until)
	if d <= 0 {
		h.drop(key)
	}
	return max(d, 0)
}

// add holds calls back for d from now. A longer hold stays.
func (h *holds) add(key held, d time.Duration) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil {
		h.until = map[held]time.Time{}
	}
	old, ok := h.until[key]
	if !ok && len(h.until) >= mostHolds {
		for other, until := range h.until {
			if !until.After(now) {
				h.drop(other)
			}
		}
		if len(h.until) >= mostHolds {
			return
		}
	}
	if until := now.Add(d); until.After(old) {
		h.until[key] = until
	}
	h.active.Store(int64(len(h.until)))
}

func (h *holds) drop(key held) {
	delete(h.until, key)
	h.active.Store(int64(len(h.until)))
}

// retryDelay is when a server says that a call which it has refused may be made again; 0 if it does not say so.
func retryDelay(err error) time.Duration {
	if _, own := errors.AsType[*NotSentError](err); own { // of another Client inside of this one
		return 0
	}
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.ResourceExhausted && st.Code() != codes.Unavailable {
		return 0
	}
	for _, detail := range st.Details() {
		info, ok := detail.(*errdetails.RetryInfo)
		if ok && info.GetRetryDelay().IsValid() {
			return max(info.GetRetryDelay().AsDuration(), 0)
		}
	}
	return 0
}
