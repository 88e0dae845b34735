package policy

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/weirhq/weir"
)

// gatherOne finds the policies that apply to a request. It reports whether none does as rules exempt it.
//
// A path that can be read in several ways is decided on as each of them would be: what applies to one applies to the request,
// it is denied if one of them is, and exempt if each of them is.
func (v *Verdict) gatherOne(s *snapshot, r *Request, counting *Engine) (exempt bool) {
	w := &v.work
	w.reading, w.counted = 0, w.counted[:0]
	r.readAs(0, nil)
	if r.Named != nil {
		v.gatherNamed(s, r)
		return false
	}
	exempt = v.gatherReading(s, r, counting)
	others := r.readings()
	if others == nil {
		return exempt
	}
	for i := range others {
		if v.DeniedBy(int(w.request)) != nil {
			break
		}
		w.reading = int32(i + 1)
		r.readAs(i+1, others)
		if !v.gatherReading(s, r, counting) {
			exempt = false
		}
	}
	r.readAs(0, nil)
	return exempt
}

// merge adds to an item, which an earlier reading of the path has led to, what another reading asks of the same policy and key:
// the higher cost counts, and the lower one of two limits.
func (w *work) merge(into, from *item, r *Request, cost Number) {
	into.reading = w.reading
	if from.failed == nil {
		from.cost, from.failed = costOf(cost, r)
	}
	if from.failed == nil && into.override == nil && into.joined < 0 && into.policy.TierBy != nil {
		w.choose(from, r)
	}
	switch {
	case into.failed != nil:
		return
	case from.failed != nil:
		into.failed, into.why = from.failed, from.why
		return
	}
	into.cost = max(into.cost, from.cost)
	if into.override == nil && into.joined < 0 && into.policy.TierBy != nil {
		into.lower(from)
	}
}

// lower replaces each limit of an item that is higher than that of another item of the same policy.
func (it *item) lower(other *item) {
	for i := range it.policy.limits {
		if compareLimits(other.variant.at(i), it.variant.at(i)) >= 0 {
			continue
		}
		x := variant{slices.Clone(it.variant.limits), slices.Clone(it.variant.plans)}
		if x.limits[i] = other.variant.limits[i]; x.plans != nil {
			x.plans[i] = other.variant.plans[i]
		}
		it.variant = &x
	}
}

// compareLimits compares limits of the same algorithm: by their rates, and then by how much they allow at once.
func compareLimits(a, b weir.Limit) int {
	aHigh, aLow := bits.Mul64(uint64(a.Rate().Permits), uint64(b.Rate().Period))
	bHigh, bLow := bits.Mul64(uint64(b.Rate().Permits), uint64(a.Rate().Period))
	return cmp.Or(cmp.Compare(aHigh, bHigh), cmp.Compare(aLow, bLow), cmp.Compare(a.Permits(), b.Permits()))
}

// explainRules tells of each rule whether it matches, and why not.
func (s *snapshot) explainRules(r *Request, others []string) []ExplainedRule {
	r.readAs(0, nil)
	if r.Named != nil {
		return []ExplainedRule{} // they are not asked
	}
	all := s.explainReading(r)
	for i := range others {
		r.readAs(i+1, others)
		for j, x := range s.explainReading(r) {
			known := &all[j]
			switch exempt := s.set.Rules[j].Exempt; {
			case exempt && known.Matched && !x.Matched:
				x.Condition = "exempts only where every way to read the path matches: " + x.Condition
				*known = x
			case !exempt && !known.Matched && x.Matched:
				*known = x
			}
		}
	}
	r.readAs(0, nil)
	return all
}
