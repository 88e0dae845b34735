package store

import (
	"errors"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// debt is what was granted for a key without the store, which has not been told. It is never more than what is lacking in the
// memory of the fallback: permits that have come back there have come back in the store.
type debt struct {
	charge  Charge // with the limit that is not divided, and N as what was granted
	telling *telling
	alone   bool // the store could not be told of it with others
}

// telling is a call that tells the store of debts.
type telling struct {
	done chan struct{}
	err  error
}

// claim is a debt that one caller tells the store of.
type claim struct {
	key     memoryKey
	charge  Charge // with N as what is owed
	granted int64  // what it was granted
	alone   bool   // the store is told of it in a call of its own
}

// owe says that the store must be told that n permits of a charge were granted. The fallback must be locked.
func (f *fallback) owe(c *Charge, n int64) {
	if n == 0 || c.Limit.Algorithm() == weir.AlgorithmConcurrency { // what is out there, is until it is settled here
		return
	}
	d := f.debts[memoryKey{c.Policy, c.Key}]
	if d == nil {
		f.pruneSome(2)
		if len(f.debts) >= f.maxKeys+f.maxKeys/4+64 { // more than can be limited
			f.pruneSome(len(f.debts))
		}
		d = &debt{}
		f.debts[memoryKey{strings.Clone(c.Policy), strings.Clone(c.Key)}] = d
		f.owing.Add(1)
	}
	n = min(d.charge.N+n, algo.MaxPermits)
	d.charge = *c
	d.charge.Policy, d.charge.Key, d.charge.N = "", "", n // the names are those of the caller
}

// owed is how much of a debt is left. The fallback must be locked.
func (f *fallback) owed(key memoryKey, d *debt) int64 {
	if d.charge.N == 0 {
		return 0
	}
	return min(d.charge.N, f.memory.lacking(key))
}

// drop forgets a debt. The fallback must be locked.
func (f *fallback) drop(key memoryKey) {
	if _, ok := f.debts[key]; ok {
		delete(f.debts, key)
		f.owing.Add(-1)
	}
}

// pruneSome looks at as many debts and drops those of which nothing is left. The fallback must be locked.
func (f *fallback) pruneSome(n int) {
	for key, d := range f.debts {
		if n--; n < 0 {
			return
		}
		if d.telling == nil && f.owed(key, d) == 0 {
			f.drop(key)
		}
	}
}

// prune is pruneSome.
func (f *fallback) prune(n int) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.pruneSome(n)
}

// claim takes on what is owed of the keys of charges. If somebody else is telling the store of one, it answers that, and takes
// on nothing.
func (f *fallback) claim(charges []Charge) (claims []claim, mine, other *telling) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for i := range charges {
		if d := f.debts[memoryKey{charges[i].Policy, charges[i].Key}]; d != nil && d.telling != nil {
			return nil, nil, d.telling
		}
	}
	mine = &telling{done: make(chan struct{})}
	for i := range charges {
		key := memoryKey{charges[i].Policy, charges[i].Key}
		if d := f.debts[key]; d != nil {
			claims = f.take(claims, key, d, mine)
		}
	}
	return claims, mine, nil
}

// claimSome takes on what is owed of as many keys as a request may have, whichever they are.
func (f *fallback) claimSome() (claims []claim, mine *telling) {
	f.lock.Lock()
	defer f.lock.Unlock()
	mine = &telling{done: make(chan struct{})}
	looked := 0
	for key, d := range f.debts {
		if looked++; len(claims) == MostCharges || looked > 4*MostCharges {
			break
		}
		if d.telling == nil {
			claims = f.take(claims, key, d, mine)
		}
	}
	return claims, mine
}

// take takes on a debt, or drops it if nothing is left of it.
func (f *fallback) take(claims []claim, key memoryKey, d *debt, mine *telling) []claim {
	n := f.owed(key, d)
	if n == 0 {
		f.drop(key)
		return claims
	}
	d.telling = mine
	c := claim{key, d.charge, d.charge.N, d.alone}
	c.charge.Policy, c.charge.Key, c.charge.N = key.policy, key.key, n
	return append(claims, c)
}

// told ends claims of which the store was told, unless err says that it was not.
func (f *fallback) told(claims []claim, err error) {
	_, misuse := errors.AsType[*weir.OptionError](err) // it cannot be told, ever
	f.lock.Lock()
	defer f.lock.Unlock()
	for i := range claims {
		c := &claims[i]
		d := f.debts[c.key]
		if d == nil { // it was reset meanwhile
			continue
		}
		d.telling = nil
		if d.alone = err != nil; err == nil {
			d.charge.N = max(d.charge.N-c.granted, 0)
		}
		if misuse || d.charge.N == 0 {
			f.drop(c.key)
		}
	}
}

// lacking is how many permits of a key are taken and have not come back, debt included.
func (m *Memory) lacking(key memoryKey) int64 {
	m.lock.Lock()
	defer m.lock.Unlock()
	e := m.keys[key]
	if e == nil {
		return 0
	}
	e.ready(m.now(), nil)
	most := e.terms.most
	n := most - e.peek(0).Remaining
	if n < most {
		return n
	}
	c := e.clone()
	c.refund(most)
	return n + most - c.peek(0).Remaining
}
