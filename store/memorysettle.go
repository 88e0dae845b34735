package store

import "context"

// Refund implements [Store].
func (m *Memory) Refund(ctx context.Context, charges []Charge) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	if err := m.enter(ctx, charges); err != nil {
		return err
	}
	defer m.lock.Unlock()
	now := m.now()
	for i := range charges {
		if e := m.keys[memoryKey{charges[i].Policy, charges[i].Key}]; e != nil {
			t, _ := compiled.terms(charges[i].Limit)
			e.ready(now, t)
			e.refund(charges[i].N)
			m.due(e)
		}
	}
	return nil
}

// Commit implements [Store].
func (m *Memory) Commit(ctx context.Context, r Reservation, actual []int64) error {
	if actual == nil {
		actual = []int64{}
	}
	return m.settle(ctx, r, actual)
}

// Cancel implements [Store].
func (m *Memory) Cancel(ctx context.Context, r Reservation) error { return m.settle(ctx, r, nil) }

// settle ends a reservation with what it cost, or cancels it if actual is nil.
func (m *Memory) settle(ctx context.Context, r Reservation, actual []int64) error {
	if err := CheckReservation(r, actual); err != nil {
		return err
	}
	if err := m.enter(ctx, r.Charges); err != nil {
		return err
	}
	defer m.lock.Unlock()
	if r.ID == "" {
		return nil
	}
	now := m.now()
	known := false
	for i := range r.Charges {
		e := m.keys[memoryKey{r.Charges[i].Policy, r.Charges[i].Key}]
		if e == nil {
			continue
		}
		e.ready(now, nil)
		if at := e.find(r.ID, r.Expires); at >= 0 {
			known = true
			if actual == nil {
				e.cancel(at)
			} else {
				e.commit(at, actual[i])
			}
		}
		m.due(e)
	}
	if !known && len(r.Charges) > 0 {
		return ErrNotReserved
	}
	return nil
}
