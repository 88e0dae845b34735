package weir

import (
	"fmt"

	"github.com/weirhq/weir/algo"
)

// bounds are the options of a limiter for keys that can be changed while it works.
type bounds struct {
	QueueLimit    int64
	NewestFirst   bool
	MaxDebt       int64
	MaxKeys       int
	AdmitWhenFull bool
}

func (o *KeyedOptions) bounds() bounds {
	return bounds{o.QueueLimit, o.NewestFirst, o.MaxDebt, o.MaxKeys, o.AdmitWhenFull}
}

// check sets defaults, and returns what cannot be used.
func (b *bounds) check(of string) error {
	if b.MaxKeys == 0 {
		b.MaxKeys = defaultMaxKeys
	}
	if b.MaxKeys < 1 || int64(b.MaxKeys) > 1<<31 {
		return &OptionError{of + ".MaxKeys", fmt.Sprint(b.MaxKeys), "from 1 to 2147483648"}
	}
	if b.QueueLimit < 0 || b.QueueLimit > algo.MaxPermits {
		return &OptionError{of + ".QueueLimit", fmt.Sprint(b.QueueLimit), "from 0 to 10^15 permits"}
	}
	_, err := maxDebt(of, b.MaxDebt, 0)
	return err
}

func checkBounds(o KeyedOptions) error {
	b := o.bounds()
	return b.check("Bounds")
}

// Bounds implements keyset.View.
func (k operator[K]) Bounds() KeyedOptions {
	b := k.bounds.Load()
	return KeyedOptions{
		QueueLimit: b.QueueLimit, NewestFirst: b.NewestFirst, MaxDebt: b.MaxDebt,
		MaxKeys: b.MaxKeys, AdmitWhenFull: b.AdmitWhenFull,
	}
}

// SetBounds implements keyset.View.
func (k operator[K]) SetBounds(o KeyedOptions) error {
	b := o.bounds()
	if err := b.check("Bounds"); err != nil {
		return err
	}
	k.setBounds(b)
	return nil
}

func (k *keyed) setBounds(b bounds) {
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
