package weir

import (
	"fmt"

	"github.com/weirhq/weir/algo"
)

// checkBounds sets defaults of those options that can be changed while a limiter works, and returns what cannot be used.
func (o *KeyedOptions) checkBounds(of string) error {
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.MaxKeys < 1 || int64(o.MaxKeys) > 1<<31 {
		return &OptionError{of + ".MaxKeys", fmt.Sprint(o.MaxKeys), "from 1 to 2147483648"}
	}
	if o.QueueLimit < 0 || o.QueueLimit > algo.MaxPermits {
		return &OptionError{of + ".QueueLimit", fmt.Sprint(o.QueueLimit), "from 0 to 10^15 permits"}
	}
	_, err := maxDebt(of, o.MaxDebt, 0)
	return err
}

// checkBounds is inside.CheckBounds.
func checkBounds(o KeyedOptions) error { return o.checkBounds("Bounds") }

// Bounds implements keyset.View.
func (k operator[K]) Bounds() KeyedOptions { return *k.bounds.Load() }

// SetBounds implements keyset.View.
func (k operator[K]) SetBounds(o KeyedOptions) error {
	if err := o.checkBounds("Bounds"); err != nil {
		return err
	}
	k.setBounds(&o)
	return nil
}

func (k *keyed) setBounds(b *KeyedOptions) {
	k.bounding.Lock()
	defer k.bounding.Unlock()
	old := k.bounds.Swap(b)
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
