package weir

import (
	"fmt"

	"github.com/weirhq/weir/algo"
)

// Bounds are the options of a [Keyed] that can be changed while it works: see [KeyedOptions] for what they mean and for their
// defaults.
type Bounds struct {
	QueueLimit int64
	QueueOrder Order
	MaxDebt    int64
	MaxKeys    int
	WhenFull   WhenFull
}

// check sets defaults, and returns what cannot be used.
func (b *Bounds) check(of string) error {
	if b.MaxKeys == 0 {
		b.MaxKeys = defaultMaxKeys
	}
	if b.MaxKeys < 1 || int64(b.MaxKeys) > 1<<31 {
		return &OptionError{of + ".MaxKeys", fmt.Sprint(b.MaxKeys), "from 1 to 2147483648"}
	}
	if b.WhenFull > Admit {
		return &OptionError{of + ".WhenFull", b.WhenFull.String(), "Deny or Admit"}
	}
	if b.QueueLimit < 0 || b.QueueLimit > algo.MaxPermits {
		return &OptionError{of + ".QueueLimit", fmt.Sprint(b.QueueLimit), "from 0 to 10^15 permits"}
	}
	if b.QueueOrder > NewestFirst {
		return &OptionError{of + ".QueueOrder", b.QueueOrder.String(), "OldestFirst or NewestFirst"}
	}
	_, err := maxDebt(of, b.MaxDebt, 0)
	return err
}

// Check returns an error that says what is wrong with b, or nil.
func (b Bounds) Check() error { return b.check("Bounds") }

// Bounds returns the bounds in force.
func (k *keys[K]) Bounds() Bounds { return *k.bounds.Load() }

// SetBounds changes the bounds, at once and without losing a state, or returns an *[OptionError]. Keys beyond a MaxKeys that
// is lower than before stay until they are forgotten. Callers who wait beyond a QueueLimit that is lower than before go on
// waiting. A QueueOrder is that of queues that form later. Debts beyond a MaxDebt that is lower than before stay owed.
func (k *keys[K]) SetBounds(b Bounds) error {
	if err := b.check("Bounds"); err != nil {
		return err
	}
	k.setBounds(b)
	return nil
}

func (k *keyed) setBounds(b Bounds) {
	k.bounding.Lock()
	defer k.bounding.Unlock()
	old := k.bounds.Swap(&b)
	if b.MaxKeys != old.MaxKeys {
		k.highest.Store(max(k.highest.Load(), int64(b.MaxKeys)))
		k.states.Bound(int64(b.MaxKeys))
	}
	if b.MaxDebt != old.MaxDebt {
		k.raiseMostDebt(k.debt(k.base))
		for i := range k.plans.byTag {
			page := k.plans.byTag[i].Load()
			for j := 0; page != nil && j < len(page); j++ {
				if t := page[j].Load(); t != nil {
					k.raiseMostDebt(k.debt(t))
				}
			}
		}
	}
	for _, g := range k.gates() {
		g.lock()
		g.queueLimit = b.QueueLimit
		if g.terms != nil {
			g.maxDebt = k.debt(g.terms)
		}
		g.unlock()
	}
}
