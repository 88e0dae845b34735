package storetest

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// inexact reports whether what a bucket lacks may differ a little from what the model says, as time passes by itself.
func (h *history) inexact() bool {
	return h.Advance == nil && h.c.Limit.Algorithm() == weir.AlgorithmTokenBucket
}

// slack is by how much waits may differ from those of the model. Each cancellation and each return brings a bucket as far from
// the model, at most, as the time that has passed since its permits were taken; other calls do not.
func (h *history) slack() time.Duration {
	if h.Advance != nil {
		return 0
	}
	passed := time.Since(h.began) + time.Second
	if h.inexact() {
		return passed * time.Duration(h.steps+1)
	}
	return passed
}

// granted has the model take n permits, returns its decision, and reports whether they were taken. If a bucket lacks a moment of
// what the model has, the model takes nothing either, but says what it would have.
func (h *history) granted(got weir.Decision, n int64) (want algo.Result, taken bool) {
	if want = h.model.peek(h.now(), n); h.inexact() && want.Allowed && h.short(got) {
		return want, false
	}
	want = h.model.take(h.now(), n)
	return want, want.Allowed
}

// short reports whether a decision refuses for want of a moment.
func (h *history) short(d weir.Decision) bool {
	return !d.Allowed && d.Reason == weir.ReasonLimited && d.RetryAfter > 0 && d.RetryAfter <= h.slack()
}

// room is up to how many permits may be charged in a debt of the limit, of which nothing will be forgotten.
func (h *history) room() int64 {
	if !h.inexact() {
		return math.MaxInt64
	}
	return max(0, h.model.room(h.now(), h.most)-1)
}

// compare wants the decision that the model says. Where time passes by itself, the model stands still: waits may be shorter by
// what has passed. A bucket, of which the permits take days to be regained, lacks a whole number of permits in the model. In the
// store it may lack a moment more or less, so there may be a permit less than in the model, if the rest of it is there in a
// moment. All of that is bounded by slack.
func (h *history) compare(got weir.Decision, r algo.Result) error {
	want := store.DecisionOf(h.c, h.most, r)
	scale := func(d time.Duration) time.Duration {
		if d == weir.Never {
			return d
		}
		return time.Duration(int64(d) * int64(h.unit()))
	}
	want.RetryAfter, want.ResetAfter = scale(want.RetryAfter), scale(want.ResetAfter)
	exact := got
	if h.inexact() {
		if got.Remaining == want.Remaining-1 {
			exact.Remaining = want.Remaining
		}
		if want.Allowed && h.short(got) {
			exact.Allowed, exact.Reason = true, weir.ReasonNone
		}
	}
	if h.Advance == nil {
		slack := h.slack()
		if !near(got.RetryAfter, want.RetryAfter, slack) || !near(got.ResetAfter, want.ResetAfter, slack) {
			return fmt.Errorf("%+v, want %+v less %v at most", got, want, slack)
		}
		exact.RetryAfter, exact.ResetAfter = want.RetryAfter, want.ResetAfter
	}
	if exact != want {
		return errors.Join(fmt.Errorf("got  %+v", got), fmt.Errorf("want %+v", want))
	}
	return nil
}

// near reports whether two waits differ by no more than slack.
func near(a, b, slack time.Duration) bool {
	if (a == weir.Never) != (b == weir.Never) {
		return false
	}
	return a-b <= slack && b-a <= slack
}
