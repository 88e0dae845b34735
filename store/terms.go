package store

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/internal/memo"
	"github.com/weirhq/weir/internal/zones"
)

// terms are a limit that has been checked.
type terms struct {
	limit  weir.Limit
	law    algo.Law          // windows begin at multiples of their length since 1970
	bucket *algo.TokenBucket // nil for all other algorithms
	most   int64             // permits that can be taken at once
	text   string            // the binary form of the limit: equal for equal limits
	leases atomic.Pointer[leasePlan]
}

// newTerms checks a limit.
func newTerms(l weir.Limit) (*terms, error) {
	law, err := limits.Law(l)
	if err != nil {
		return nil, err
	}
	t := &terms{limit: l, law: law, most: l.Permits(), text: string(appendLimit(nil, l))}
	if z := l.Calendar().Zone; !zones.IsNamed(z) {
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

// first is the result for n permits at a time, of a fresh state.
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

// termsOf checks a limit, unless it was checked before.
func termsOf(l weir.Limit) (*terms, error) { return limits.Made(l, inside.MadeByStore, newTerms) }

// written are the limits of records by their binary form, so that a zone is not loaded for each record.
var written memo.Table[string, *terms] //nolint:gochecknoglobals // limits are those of the process

// readTerms is the terms of a limit in its binary form.
func readTerms(text string) (*terms, bool) {
	t, err := written.Of(text, parseTerms)
	return t, err == nil
}

func parseTerms(text string) (*terms, error) {
	l, ok := decodeLimit(text)
	if !ok {
		return nil, errNoLimit
	}
	t, err := termsOf(l)
	if err == nil && t.text != text {
		err = errNoLimit
	}
	return t, err
}

var errNoLimit = errors.New("weir: this is no limit in its binary form")

// faster is the faster of two rates, of which the zero Rate is the slowest.
func faster(a, b weir.Rate) weir.Rate {
	hiA, loA := bits.Mul64(uint64(a.Permits), uint64(b.Period))
	hiB, loB := bits.Mul64(uint64(b.Permits), uint64(a.Period))
	if a == (weir.Rate{}) || hiB > hiA || hiB == hiA && loB > loA {
		return b
	}
	return a
}
