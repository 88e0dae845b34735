package keyset

import (
	"cmp"
	"container/heap"
	"iter"
	"slices"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inside"
)

// The errors of [View.Override].
var (
	// ErrTableFull is returned when a new key cannot be tracked, because as many as may be are, and none of them can be
	// forgotten.
	ErrTableFull = inside.ErrTableFull
	// ErrTooManyOverrides is returned when 65,536 keys are overridden.
	ErrTooManyOverrides = inside.ErrTooManyOverrides
)

// View is what an operator sees of the keys of a limiter, and can change for a while. All methods are safe for concurrent use,
// also while the limiter works.
type View[K comparable] struct{ in keys[K] }

// keys is what package weir has for a View.
type keys[K comparable] interface {
	All() iter.Seq[inside.State[K, weir.Limit]]
	Names() iter.Seq2[K, uint64]
	State(key K) (s inside.State[K, weir.Limit], tracked bool)
	Override(key K, limit weir.Limit, d time.Duration) error
	Restore(key K) bool
	Plan(limit weir.Limit) (any, error)
	Bounds() weir.KeyedOptions
	SetBounds(o weir.KeyedOptions) error
}

// Of returns the view of the keys of k.
func Of[K comparable](k *weir.Keyed[K]) View[K] { return viewOf[K](k) }

// OfConcurrency returns the view of the keys of k.
func OfConcurrency[K comparable](k *weir.KeyedConcurrency[K]) View[K] { return viewOf[K](k) }

func viewOf[K comparable](k any) View[K] {
	return View[K]{inside.Keys(k).(keys[K])} //nolint:errcheck,forcetypeassert // package weir has said what it is
}

// State is what is known of one key.
type State[K comparable] struct {
	// Key is the key, if it is Named: only those that are refused most are remembered by name, up to MaxNames, and new ones
	// while there is room.
	Key   K
	Named bool
	// ID stands for the key. It is the same in all limiters of the process for keys of this type, and says nothing about the
	// key.
	ID string
	// Limit, Remaining and ResetAfter are those of a decision now.
	Limit, Remaining int64
	ResetAfter       time.Duration
	// RetryAfter is when a permit is available at the earliest, 0 if one is, or if that is not known, as of a concurrency limit
	// without Remaining.
	RetryAfter time.Duration
	// Held is the limit that the key is under.
	Held weir.Limit
	// Queued is how many permits callers that wait for the key are waiting for, and Waiters how many callers they are.
	Queued  int64
	Waiters int
	// Refused is how often the key was refused since it is remembered by name.
	Refused uint64
	// Overridden is for how long another limit is still in force; 0 if none is.
	Overridden time.Duration
}

// All returns all keys that are tracked, in no order. It sees every key that stays throughout exactly once, delays callers for no
// longer than it takes to look at 2048 keys, and may be stopped at any time.
func (v View[K]) All() iter.Seq[State[K]] {
	return func(yield func(State[K]) bool) {
		for s := range v.in.All() {
			if !yield(State[K](s)) {
				return
			}
		}
	}
}

// Names returns the keys that are remembered by name, those that were refused most, and how often each was refused since its name
// is remembered. They are in no order, and may be fewer than are tracked: see [weir.KeyedOptions].
func (v View[K]) Names() iter.Seq2[K, uint64] { return v.in.Names() }

// State returns what is known of one key, which is Named then. It does not move the key to another limit, as Peek does. Tracked
// is false if the limiter does not track the key: then all permits are available, or none in a table that is full, and Held is
// the limit that the key would be under.
func (v View[K]) State(key K) (s State[K], tracked bool) {
	of, tracked := v.in.State(key)
	return State[K](of), tracked
}

// Override holds key to another limit for a while, instead of its own: for an incident, or for a customer who called. It takes
// effect at once and keeps the state, as does the end. Another Override replaces it. The algorithm, and the segments of a
// sliding window, must be those of the limiter, and d must be from 1 ns to 3660 days. At most 65,536 keys can be overridden at a
// time. Each takes a place in the table, and some 700 bytes. The error is a *[weir.OptionError] for limit or d, [ErrTableFull],
// [ErrTooManyOverrides] or [weir.ErrClosed], and then nothing has changed.
func (v View[K]) Override(key K, limit weir.Limit, d time.Duration) error {
	return v.in.Override(key, limit, d)
}

// Restore ends the override of key, and reports whether there was one.
func (v View[K]) Restore(key K) bool { return v.in.Restore(key) }

// Top returns the n keys under the most pressure, the one with the most first: those that are waited for first, then by the part
// of their limit that is used, then by refusals. It looks at all keys, like All.
func (v View[K]) Top(n int) []State[K] {
	if n <= 0 {
		return nil
	}
	var top leastFirst[K]
	for s := range v.All() {
		switch {
		case len(top) < n:
			heap.Push(&top, s)
		case pressure(top[0], s) < 0:
			top[0] = s
			heap.Fix(&top, 0)
		}
	}
	slices.SortFunc(top, func(a, b State[K]) int { return pressure(b, a) })
	return top
}

// pressure compares by how much keys suffer from their limit: those that are waited for first, then by the part of the
// limit that is used, then by refusals.
func pressure[K comparable](a, b State[K]) int {
	used := func(s State[K]) float64 { return float64(s.Limit-s.Remaining) / float64(s.Limit) }
	return cmp.Or(
		cmp.Compare(a.Queued, b.Queued), cmp.Compare(used(a), used(b)), cmp.Compare(a.Refused, b.Refused),
		cmp.Compare(a.ResetAfter, b.ResetAfter), cmp.Compare(b.ID, a.ID),
	)
}

// leastFirst is a heap of keys, the one under the least pressure first.
type leastFirst[K comparable] []State[K]

func (h leastFirst[K]) Len() int           { return len(h) }
func (h leastFirst[K]) Less(i, j int) bool { return pressure(h[i], h[j]) < 0 }
func (h leastFirst[K]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *leastFirst[K]) Push(x any)        { *h = append(*h, x.(State[K])) } //nolint:errcheck,forcetypeassert // Top's
func (h *leastFirst[K]) Pop() any          { panic("weir: nothing is taken from this heap") }

// Bounds are the options of a limiter that can be changed while it works: see [weir.KeyedOptions] for what they mean and for
// their defaults.
type Bounds struct {
	QueueLimit    int64
	NewestFirst   bool
	MaxDebt       int64
	MaxKeys       int
	AdmitWhenFull bool
}

func (b Bounds) options() weir.KeyedOptions {
	return weir.KeyedOptions{
		QueueLimit: b.QueueLimit, NewestFirst: b.NewestFirst, MaxDebt: b.MaxDebt, MaxKeys: b.MaxKeys,
		AdmitWhenFull: b.AdmitWhenFull,
	}
}

// Check returns an error that names the field of b that is out of range, or nil.
func (b Bounds) Check() error {
	return inside.CheckBounds.(func(weir.KeyedOptions) error)(b.options()) //nolint:errcheck,forcetypeassert // as above
}

// Bounds returns the bounds in force.
func (v View[K]) Bounds() Bounds {
	o := v.in.Bounds()
	return Bounds{o.QueueLimit, o.NewestFirst, o.MaxDebt, o.MaxKeys, o.AdmitWhenFull}
}

// SetBounds changes the bounds, at once and without losing a state, or returns a *[weir.OptionError]. Keys beyond a MaxKeys that
// is lower than before stay until they are forgotten. Callers that wait beyond a QueueLimit that is lower than before go on
// waiting. NewestFirst is that of queues that form later. Debts beyond a MaxDebt that is lower than before stay owed.
func (v View[K]) SetBounds(b Bounds) error { return v.in.SetBounds(b.options()) }
