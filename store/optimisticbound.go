package store

import (
	"fmt"

	"github.com/weirhq/weir"
)

// DriftOf is how many permits of a key under the limit l a process allows at most without the store knowing of them. It is Drift
// per cent of the limit (the burst of a token bucket), but at least one. It is 0 if l is not decided on in memory, as a
// concurrency limit is not, and if l or the options are not valid.
func (o OptimisticOptions) DriftOf(l weir.Limit) int64 {
	o, err := o.filled()
	if err != nil {
		return 0
	}
	t, err := termsOf(l)
	if err != nil {
		return 0
	}
	return o.driftOf(t)
}

func (o OptimisticOptions) driftOf(t *terms) int64 {
	if t.limit.Algorithm() == weir.AlgorithmConcurrency {
		return 0
	}
	return max(1, t.most*int64(o.Drift)/100)
}

// Describe is how far the limit l can be exceeded, in words: "optimistic: up to 10 x (instances - 1) permits above the limit,
// paid back afterwards with up to 11 instances". Sliding windows and counters do not pay back: "... above the limit, in each
// window".
func (o OptimisticOptions) Describe(l weir.Limit) string {
	drift := o.DriftOf(l)
	if drift == 0 {
		return "coherent: never above the limit, as every decision asks the store"
	}
	t, err := termsOf(l)
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("optimistic: up to %d x (instances - 1) permits above the limit, ", drift)
	switch l.Algorithm() {
	case weir.AlgorithmSlidingWindow, weir.AlgorithmSlidingCounter:
		return text + "in each window"
	default:
		return text + fmt.Sprintf("paid back afterwards with up to %d instances", t.most/drift+1)
	}
}
