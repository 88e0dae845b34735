package store

import "context"

// refund gives permits back: here those of which the store does not know yet.
func (o *Optimistic) refund(ctx context.Context, charges []Charge) error {
	if err := CheckQueued(Ask{Mode: ModeRefund}, charges, nil); err != nil {
		return err
	}
	if err := o.enter(ctx); err != nil {
		return err
	}
	rest := make([]Charge, 0, len(charges))
	for _, c := range charges {
		o.with(c.Policy, c.Key, func(k *optimisticKey) {
			here := min(c.N, k.telling(false))
			k.refund(here, o.now())
			c.N -= here
		})
		if c.N > 0 {
			rest = append(rest, c)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	defer o.mistrust(rest)
	return Refund(ctx, o.inner, rest)
}

// mistrust has the next requests for the keys ask the store, as permits were given back there.
func (o *Optimistic) mistrust(charges []Charge) {
	for i := range charges {
		o.with(charges[i].Policy, charges[i].Key, (*optimisticKey).mistrust)
	}
}

// enter returns why a call cannot begin, or nil.
func (o *Optimistic) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return notTaken(err)
	}
	if o.closed.Load() {
		return ErrClosed
	}
	return nil
}

// reset forgets keys. What this process owes is forgotten; what others owe they tell the store afterwards.
func (o *Optimistic) reset(ctx context.Context, charges []Charge) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	forget := func(k *optimisticKey) {
		k.forget()
		k.mistrust()
	}
	for i := range charges {
		var f *optimisticFlight
		o.with(charges[i].Policy, charges[i].Key, func(k *optimisticKey) {
			forget(k)
			f = k.flight
		})
		if f == nil {
			continue
		}
		select { // what is under way would count afterwards
		case <-f.done:
		case <-ctx.Done():
			return notTaken(ctx.Err())
		}
	}
	defer func() {
		for i := range charges {
			o.with(charges[i].Policy, charges[i].Key, forget)
		}
	}()
	_, err := o.inner.Do(ctx, Ask{Mode: ModeReset}, charges, nil)
	return err
}
