package store

import (
	"context"
	"strings"

	"github.com/weirhq/weir"
)

// Debit implements [Store].
func (m *Memory) Debit(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	for _, err := range []error{CheckTaken(charges), CheckDecisions(charges, decisions), CheckCharges(charges)} {
		if err != nil {
			return err
		}
	}
	if err := m.enter(ctx, charges); err != nil {
		return err
	}
	defer m.lock.Unlock()
	now := m.now()
	for i := range charges {
		c := &charges[i]
		e, t, ok := m.entry(c, now)
		if !ok { // what was granted elsewhere cannot be kept
			decisions[i] = DecisionOf(Charge{Policy: c.Policy}, t.most, m.view(nil, t, now).peek(0))
			m.refuseFull(&decisions[i], m.untilRoom(now))
			continue
		}
		e.ready(now, t)
		decisions[i] = DecisionOf(Charge{Policy: c.Policy}, t.most, e.debit(c.N))
		m.due(e)
	}
	return nil
}

// Lend implements [Store].
func (m *Memory) Lend(ctx context.Context, c Charge, least int64) (Loan, weir.Decision, error) {
	if err := CheckLend(c, least); err != nil {
		return Loan{}, weir.Decision{}, err
	}
	if err := m.enter(ctx, nil); err != nil {
		return Loan{}, weir.Decision{}, err
	}
	defer m.lock.Unlock()
	now := m.now()
	asked := Charge{Policy: c.Policy, N: least}
	if t, _ := compiled.terms(c.Limit); least > t.most { // nothing is kept for that
		d := DecisionOf(asked, t.most, m.view(m.keys[memoryKey{c.Policy, c.Key}], t, now).peek(least))
		return Loan{}, d, nil
	}
	e, t, ok := m.entry(&c, now)
	if !ok {
		d := DecisionOf(asked, t.most, m.view(nil, t, now).peek(least))
		m.refuseFull(&d, m.untilRoom(now))
		return Loan{}, d, nil
	}
	e.ready(now, t)
	lent, r := e.lend(least, c.N)
	m.due(e)
	d := DecisionOf(asked, t.most, r)
	if !d.Allowed {
		return Loan{}, d, nil
	}
	c.N, c.Policy, c.Key = lent, strings.Clone(c.Policy), strings.Clone(c.Key)
	return Loan{Charge: c, Taken: e.at}, d, nil
}

// entry is what is kept for a charge, made if there is room, and its terms.
func (m *Memory) entry(c *Charge, now int64) (e *memoryEntry, t *terms, ok bool) {
	e = m.keys[memoryKey{c.Policy, c.Key}]
	t, _ = e.termsOf(c) // which was checked
	if e != nil {
		return e, t, true
	}
	if m.reclaim(now, m.maxKeys-1); len(m.keys) >= m.maxKeys {
		return nil, t, false
	}
	return m.add(c, t, now), t, true
}

// untilRoom is how long it takes at least until there is room for one more key.
func (m *Memory) untilRoom(now int64) int64 {
	if len(m.queue) == 0 {
		return never
	}
	return m.queue[0].due - now
}

// Return implements [Store].
func (m *Memory) Return(ctx context.Context, l Loan, unspent int64) error {
	if l.Charge.N == 0 {
		return nil
	}
	if err := CheckReturn(l, unspent); err != nil {
		return err
	}
	if err := m.enter(ctx, nil); err != nil {
		return err
	}
	defer m.lock.Unlock()
	e := m.keys[memoryKey{l.Charge.Policy, l.Charge.Key}]
	if t, _ := e.termsOf(&l.Charge); e != nil && e.terms.text == t.text {
		e.ready(m.now(), nil)
		e.takeBack(unspent, l.Taken)
		m.due(e)
	}
	return nil
}
