package policy

import (
	"slices"

	"github.com/weirhq/weir"
)

// denied is a request that a rule denies.
type denied struct{ request, rule int32 }

// gatherDenied looks for a rule that denies a request, among those whose Match holds for one reading of its path. It reports
// whether there is one. Rules in shadow are counted.
func (v *Verdict) gatherDenied(s *snapshot, r *Request, earlier int, counting *Engine) bool {
	w := &v.work
	for _, n := range w.found {
		rule := &s.set.Rules[n]
		if !rule.Deny || rule.Mode == ModeOff {
			continue
		}
		if rule.When != nil {
			if holds, _ := s.holds(r, n, counting); !holds {
				continue
			}
		}
		if counting != nil && !slices.Contains(w.counted[:earlier], n) {
			w.count(s, n)
		}
		if rule.Mode == ModeShadow {
			continue
		}
		w.denied = append(w.denied, denied{w.request, n})
		if v.own.Reason == weir.ReasonNone {
			v.own = deniedByRule()
		}
		return true
	}
	return false
}

// deniedByRule is the answer to a request that a rule denies.
func deniedByRule() weir.Decision {
	return weir.Decision{Reason: weir.ReasonDenied, RetryAfter: weir.Never}
}

// DeniedBy is the rule that denies one of the requests, 0 being the first; nil if none does. It must not be changed.
func (v *Verdict) DeniedBy(request int) *Rule {
	for _, d := range v.work.denied {
		if int(d.request) == request {
			return &v.work.snapshot.set.Rules[d.rule]
		}
	}
	return nil
}

// denial is the first rule that denies a request, and the place of that, where this is what the verdict says; nil otherwise.
func (v *Verdict) denial() (rule *Rule, request int) {
	if len(v.work.denied) == 0 || v.own.Reason != weir.ReasonDenied {
		return nil, 0
	}
	first := v.work.denied[0]
	return &v.work.snapshot.set.Rules[first.rule], int(first.request)
}

// Denies returns the rule that denies a request, nil if none does. It asks no limit and counts nothing: it is for requests that
// cost nothing.
func (e *Engine) Denies(r *Request) *Rule {
	s := e.live.Load()
	if !s.denies || r.Named != nil {
		return nil
	}
	v := debts.Get().(*Verdict)
	defer debts.Put(v)
	v.begin(s)
	w := &v.work
	w.request = 0
	r.readAs(0, nil)
	w.found = s.index.Match(&r.seen, w.found[:0])
	if v.gatherDenied(s, r, 0, nil) {
		return v.DeniedBy(0)
	}
	others := r.readings()
	for i := range others {
		r.readAs(i+1, others)
		w.found = s.index.Match(&r.seen, w.found[:0])
		if v.gatherDenied(s, r, 0, nil) {
			break
		}
	}
	r.readAs(0, nil)
	return v.DeniedBy(0)
}

// denies reports whether any rule of a set may deny a request, or would in shadow.
func denies(rules []Rule) bool {
	for i := range rules {
		if rules[i].Deny && rules[i].Mode != ModeOff {
			return true
		}
	}
	return false
}
