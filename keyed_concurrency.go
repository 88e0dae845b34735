package weir

import (
	"context"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inside"
)

// KeyedConcurrency is a number of permits at a time for each of millions of keys: addresses, users, tokens. They come back when
// their leases are released, as those of a [Concurrency]. See [Keyed] for what is kept of a key. All methods are safe for
// concurrent use.
type KeyedConcurrency[K comparable] struct{ keys[K] }

// NewKeyedConcurrency returns a limiter with n permits for each key, from 1 to 10^15, or an *[OptionError] that names what cannot
// be used. MaxDebt of the options has no meaning here, and must be 0.
func NewKeyedConcurrency[K comparable](n int64, o KeyedOptions) (*KeyedConcurrency[K], error) {
	return newKeyedConcurrency[K](n, o, nil)
}

// NewKeyedConcurrencyFunc is NewKeyedConcurrency with a number that is chosen for each key, as [NewKeyedFunc] has it. A number of
// 0 stands for n.
func NewKeyedConcurrencyFunc[K comparable](n int64, o KeyedOptions, numberOf func(key K) int64) (*KeyedConcurrency[K], error) {
	if numberOf == nil {
		return nil, &OptionError{"NewKeyedConcurrencyFunc.numberOf", "nil", "a function"}
	}
	return newKeyedConcurrency(n, o, func(key K) Limit {
		if n := numberOf(key); n != 0 {
			return AtOnce(n)
		}
		return Limit{}
	})
}

func newKeyedConcurrency[K comparable](n int64, o KeyedOptions, limitOf func(K) Limit) (*KeyedConcurrency[K], error) {
	if o.MaxDebt != 0 {
		return nil, noDebtAtOnce("KeyedOptions.MaxDebt", o.MaxDebt)
	}
	k := new(KeyedConcurrency[K])
	if err := k.make(AtOnce(n), o, limitOf); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *KeyedConcurrency[K]) inner() *keyed {
	if k == nil {
		return nil
	}
	return &k.keyed
}

// Do calls f while it holds n permits of key, which come back when f returns or panics. It waits for them as Acquire does. The
// error is that of f, or, if the permits were not taken and f not called, that of Acquire. A nil f panics.
func (k *KeyedConcurrency[K]) Do(ctx context.Context, key K, n int64, f func() error) error {
	mustDo(f)
	l, err := k.Acquire(ctx, key, n)
	return l.during(err, f)
}

// Rules have limits of all algorithms, and charge them as one step: their limiters are all of one type. A limiter of package
// overload learns from leases.
func init() { //nolint:gochecknoinits // packages policy and overload cannot reach these otherwise
	inside.Keyed, inside.Observe = newKeyed[string], observe
	inside.Law = func(l Limit) (algo.Law, error) { return l.law("Limit", 0) }
	inside.Keys, inside.CheckBounds, inside.Step = keysOf, checkBounds, newStep
	inside.Members = membersOf
}
