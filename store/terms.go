package store

import (
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/limits"
)

// terms are a limit that has been checked.
type terms struct {
	limit  weir.Limit        // with its defaults filled in
	law    algo.Law          // windows begin at multiples of their length since 1970
	bucket *algo.TokenBucket // nil for all other algorithms
	most   int64             // permits that can be granted at once
	text   string            // the binary form of the limit: equal for equal limits
}

// newTerms checks a limit.
func newTerms(l weir.Limit) (*terms, error) {
	law, err := limits.Law(l)
	if err != nil {
		return nil, err
	}
	t := &terms{limit: l, law: law, most: l.Permits(), text: string(appendLimit(nil, l))}
	if z := l.Calendar().Zone; z != nil && z != time.UTC && !zoneIsNamed(z) {
		return nil, &weir.OptionError{
			Option: "Limit.Calendar.Zone", Value: fmt.Sprintf("%.40q", z.String()),
			Accepted: "UTC or a zone with a name under which time.LoadLocation finds it, as other processes read it",
		}
	}
	if l.Algorithm() == weir.AlgorithmTokenBucket {
		b, err := algo.NewTokenBucket(l.Rate().Permits, l.Rate().Period, l.Permits())
		if err != nil {
			return nil, fmt.Errorf("weir: limit %v: %w", l, err)
		}
		t.bucket = &b
	}
	return t, nil
}

// first is what a fresh state answers to n permits at a time.
func (t *terms) first(at, n int64) algo.Result {
	state := make([]uint64, t.law.Words())
	t.law.Begin(state, at, 0)
	return t.law.Take(state, at, n)
}

// regained is when everything has come back that was taken until a time, debts aside.
func (t *terms) regained(until int64) int64 {
	state := make([]uint64, t.law.Words())
	t.law.Begin(state, until, 0)
	t.law.Take(state, until, t.most)
	return t.law.FreshAt(state)
}

// zoneIsNamed reports whether whoever loads a zone of the name of z has one that equals it, as far as its clock shows this year.
func zoneIsNamed(z *time.Location) bool {
	if z == time.Local || z.String() == "" { //nolint:gosmopolitan // it is refused
		return false
	}
	loaded, err := time.LoadLocation(z.String())
	if err != nil || loaded == time.Local { //nolint:gosmopolitan // it is refused
		return false
	}
	const months = 12
	for m := range months {
		at := time.Now().AddDate(0, m, 0)
		_, a := at.In(z).Zone()
		if _, b := at.In(loaded).Zone(); a != b {
			return false
		}
	}
	return true
}

// termsCache remembers limits that were checked, so that a charge costs one look.
type termsCache struct {
	lock   sync.RWMutex
	known  map[weir.Limit]*terms
	byText map[string]*terms
}

// mostTerms is how many limits are remembered. When there are more, all are forgotten.
const mostTerms = 4096

// compiled are the limits of all stores of the process.
var compiled termsCache

func (c *termsCache) terms(l weir.Limit) (*terms, error) {
	c.lock.RLock()
	t := c.known[l]
	c.lock.RUnlock()
	if t != nil {
		return t, nil
	}
	t, err := newTerms(l)
	if err != nil {
		return nil, err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.known == nil || len(c.known) >= mostTerms {
		c.known, c.byText = make(map[weir.Limit]*terms), make(map[string]*terms)
	}
	c.known[l], c.byText[t.text] = t, t
	return t, nil
}

// read is the terms of a limit in its binary form.
func (c *termsCache) read(text string) (*terms, bool) {
	c.lock.RLock()
	t := c.byText[text]
	c.lock.RUnlock()
	if t != nil {
		return t, true
	}
	l, ok := decodeLimit(text)
	if !ok {
		return nil, false
	}
	t, err := c.terms(l)
	return t, err == nil && t.text == text
}

// faster is the faster of two rates, of which the zero Rate is the slowest.
func faster(a, b weir.Rate) weir.Rate {
	hiA, loA := bits.Mul64(uint64(a.Permits), uint64(b.Period))
	hiB, loB := bits.Mul64(uint64(b.Permits), uint64(a.Period))
	if a == (weir.Rate{}) || hiB > hiA || hiB == hiA && loB > loA {
		return b
	}
	return a
}
