package policy

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/prefetch"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy/match"
)

// work is the memory of a Verdict.
type work struct {
	snapshot *snapshot
	found    []int32
	keys     []byte
	items    []item
	step     keyset.Step  // over limits of this process
	charged  int          // how many charges of this process there are
	leases   []weir.Lease // of these, if they are owed something
	owed     bool         // some of them give something back
	extra    []extra      // of policies in shadow and candidates, that must be ended
	aside    *Part        // memory for what their costs are asked with
	over     []over       // those that policies in ModeTag would have refused
	actual   []int64      // what the charges have cost in the end

	view       match.View   // of the request that is gathered
	request    int32        // the one that is gathered, of several that are decided on as one
	reading    int32        // of its path
	from       int          // its first item
	uncounted  int          // how many requests are not counted yet, and
	counted    []*ruleCount // of the rules that they match, and
	first      int          // the first of these of the one that is gathered, whose readings can match a rule several times
	limited    int          // how many of them some policy applies to
	exempted   uint64       // which of them rules have freed
	unknown    uint64       // which of them name a policy that there is not
	denied     []denied
	afterwards uint64 // which of them tell what has been spent already

	chances  chances
	measured bool       // the decision is one of the sample of the latency
	gone     error      // why the caller has gone, nil if it has not
	told     []*Request // memory for what others are told
	observer Observer   // to be told of the end, or nil
	allowed  time.Time  // when the request was, if there is one

	clientOf             *native // the key that is made of the client of the request and is in keys, if there is one
	clientFrom, clientTo int

	sharing sharing
}

// item is a policy that applies to a request.
type item struct {
	policy   *livePolicy
	rule     int32 // noRule if the caller has named the policy
	request  int32 // its place among those that are decided on as one
	reading  int32 // of the path
	joined   int32 // the item of an earlier request with the same policy and key, whose charges are for both; -1 for none
	keyless  bool  // failed is why there is no key
	named    bool  // the caller has named the policy and the key
	allowed  bool  // by a candidate, or in shadow
	why      weir.Reason
	from, to int // of the key in work.keys
	cost     int64
	more     int64 // that of the items that have joined
	variant  *variant
	override *override // that applies to the key, nil if there is none
	first    int       // of its parts in Verdict.Parts, -1 if there are none
	at       int       // the place of its first charge among those of its kind, -1 if there are none
	failed   error     // why the key, the tier, the cost or the limit cannot be told or, with a reason why, be used
	locked   time.Duration
}

func (w *work) key(it *item) []byte { return w.keys[it.from:it.to:it.to] }

// total is what an item asks for: its cost with that of the items that have joined.
func (it *item) total() int64 { return it.cost + it.more }

// partsOf are the parts of an item.
func (v *Verdict) partsOf(it *item) []Part {
	if it.first < 0 {
		return nil
	}
	return v.Parts[it.first : it.first+len(it.policy.limits)]
}

// borrow is b as a string that is valid until b changes: limiters keep clones only.
func borrow(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // b does not change meanwhile
}

// gather finds the policies that apply to requests. An engine that is counting counts them, and its rules what they match.
func (v *Verdict) gather(s *snapshot, requests []*Request, counting *Engine) {
	w := &v.work
	v.begin(s)
	for i, r := range requests {
		w.request, w.from, w.clientOf = int32(i), len(w.items), nil
		switch freed := v.gatherOne(s, r, counting); {
		case v.DeniedBy(i) != nil:
			w.items = w.items[:w.from]
			w.afterwards &^= 1 << i
			w.limited++
			if counting != nil {
				counting.counts.denied.Add()
			}
		case freed:
			w.exempted |= 1 << i
			if counting != nil {
				counting.counts.exempt.Add()
			}
		case len(w.items) > w.from:
			w.limited++
		case w.unknown>>i&1 == 1:
		case counting != nil:
			counting.counts.unlimited.Add()
		}
	}
	v.Exempt = len(requests) > 0 && w.exempted == 1<<len(requests)-1
}

// gatherReading finds the policies that apply to a request under one reading of its path. It reports whether none does as a rule
// exempts it.
func (v *Verdict) gatherReading(s *snapshot, r *Request, counting *Engine) (exempt bool) {
	w := &v.work
	from, earlier := len(w.items), len(w.counted)
	w.found = s.index.Match(r.seen, w.found[:0])
	for _, n := range w.found {
		prefetch.Lines(uintptr(unsafe.Pointer(&s.briefs[n]))) //nolint:gosec // nothing is read through it
	}
	if s.denies && v.gatherDenied(s, r, earlier, counting) {
		return false
	}
	final := false
	for _, n := range w.found {
		rule := &s.briefs[n]
		if rule.deny || final && !rule.exempt {
			continue
		}
		told := true
		if rule.when {
			var holds bool
			if holds, told = s.holds(r, n, counting); !holds {
				continue
			}
		}
		if counting != nil {
			w.count(rule.count, earlier)
		}
		if rule.exempt {
			w.items = w.items[:from]
			return true
		}
		final = rule.final && told // otherwise a request that makes a condition fail would be freed of the rules behind
		if rule.afterwards {
			w.afterwards |= 1 << w.request
		}
		uses := *rule.uses
		if len(uses) > 0 {
			s.index.Bind(r.seen, n)
		}
		for i := range uses {
			w.add(s, r, n, &uses[i])
		}
	}
	return false
}

// holds reports whether the When of a rule whose Match applies to a request holds as well, and whether that can be told.
func (s *snapshot) holds(r *Request, n int32, counting *Engine) (holds, told bool) {
	rule := &s.set.Rules[n]
	s.index.Bind(r.seen, n)
	holds, err := rule.When.Holds(r)
	if err == nil {
		return holds, true
	}
	if counting != nil {
		count := s.briefs[n].count
		count.failed.Add(1)
		counting.warn(&count.warned, expressionFailed, "rule", rule.Name, err)
	}
	return !rule.Exempt, false
}

// count notes that a request matches a rule, unless an earlier reading of its path has: up to there in counted.
func (w *work) count(rule *ruleCount, earlier int) {
	if !slices.Contains(w.counted[w.first:earlier], rule) {
		prefetch.Lines(uintptr(unsafe.Pointer(rule))) //nolint:gosec // nothing is read through it
		w.counted = append(w.counted, rule)
	}
}

// count counts requests that are decided, and which rules they match: one that is counted and not refused was allowed. Calls
// that take, and wait for nothing, count while the memory of the keys is loaded, as each count makes the processor wait for what
// it was to load before.
func (v *Verdict) count(e *Engine) {
	w := &v.work
	for ; w.uncounted > 0; w.uncounted-- {
		e.counts.requests.Add()
	}
	for _, rule := range w.counted {
		rule.add()
	}
	w.counted = w.counted[:0]
}

// begin forgets the request before.
func (v *Verdict) begin(s *snapshot) {
	w := &v.work
	v.Parts, v.Binding, v.Exempt, v.Allowed, v.Priority = v.Parts[:0], -1, false, true, overload.PriorityBackground
	v.own, v.RefusalID = weir.Decision{}, 0
	w.gone, w.observer = nil, nil
	w.snapshot, w.items, w.keys, w.owed = s, w.items[:0], w.keys[:0], false
	w.limited, w.exempted, w.unknown, w.afterwards, w.denied = 0, 0, 0, 0, w.denied[:0]
	w.charged, w.leases, w.extra, w.over = 0, w.leases[:0], w.extra[:0], w.over[:0]
	w.sharing.reset()
}

// add adds a policy and its parents. A policy that applies to the request already, with the same key, applies once: see merge.
func (w *work) add(s *snapshot, r *Request, rule int32, u *use) {
	p := &s.live[u.policy]
	key, cost := p.Key, p.Cost
	if u.key != nil {
		key = u.key
	}
	if u.cost != nil {
		cost = u.cost
	}
	if p.Mode != ModeOff {
		w.addOne(p, r, rule, key, cost, false)
	}
	for at := p.parent; at >= 0; at = p.parent {
		if p = &s.live[at]; p.Cost != nil {
			cost = p.Cost // or that of the child, which could exceed it otherwise
		}
		if p.Mode != ModeOff {
			w.addOne(p, r, rule, p.Key, cost, true)
		}
	}
}

func (w *work) addOne(p *livePolicy, r *Request, rule int32, key Text, cost Number, parent bool) {
	n := len(w.items)
	w.items = slices.Grow(w.items, 1)[:n+1]
	it := &w.items[n] // in place, as an item is large
	*it = item{}
	it.policy, it.variant, it.rule, it.request, it.reading = p, &p.usual, rule, w.request, w.reading
	it.joined, it.first, it.at = -1, -1, -1
	it.from, it.named = len(w.keys), rule == noRule && !parent
	of, _ := key.(*native)
	switch {
	case key == nil:
		it.to = it.from
	case of != nil && of == w.clientOf: // the most usual keys are made once
		it.from, it.to = w.clientFrom, w.clientTo
	case it.named:
		w.keys = appendNamed(w.keys, r.Named.Key, p.composed)
		it.to = len(w.keys)
	case of != nil:
		w.keys = of.appendTo(w.keys, r)
		if it.to = len(w.keys); of.client {
			w.clientOf, w.clientFrom, w.clientTo = of, it.from, it.to
		}
	default:
		w.keys, it.failed = appendText(w.keys, key, r)
		it.keyless, it.to = it.failed != nil, len(w.keys)
	}
	for i := w.from; i < n; i++ {
		other := &w.items[i]
		if !w.alike(other, it) {
			continue
		}
		w.merge(other, it, r, cost)
		w.items = w.items[:n] // what was appended of its key stays, unused
		return
	}
	it.price(cost, r)
	if it.failed == nil {
		if t := p.overrides.table.Load(); t != nil {
			it.override = p.overrides.find(t, w.key(it))
		}
		switch {
		case it.override != nil:
			w.chooseOverridden(it, r)
		case p.TierBy == nil && p.LimitBy == nil:
			w.chooseKey(it)
		default:
			w.choose(it, r)
		}
	}
	if it.failed == nil && w.from > 0 {
		w.join(it)
	}
}

// price finds the cost of an item.
func (it *item) price(cost Number, r *Request) {
	if it.failed == nil {
		it.cost, it.why, it.failed = costOf(cost, r)
	}
	if it.named {
		it.checkNamed(r.Named)
	}
}

// choose looks for limits that hold instead of those of the policy.
func (w *work) choose(it *item, r *Request) {
	p := it.policy
	if p.TierBy != nil {
		it.failed = w.chooseTier(it, r)
	}
	if it.failed == nil && (p.LimitBy == nil || !it.bring(r)) {
		w.chooseKey(it)
	}
}

// chooseOverridden is choose where there is an override. The limits of this process know of it themselves, and need what holds
// when it has ended, if that can be told.
func (w *work) chooseOverridden(it *item, r *Request) {
	switch {
	case it.lifted():
	case it.policy.shared:
		it.variant = &it.override.variant
	default:
		if w.choose(it, r); it.failed != nil {
			it.failed, it.why, it.variant = nil, weir.ReasonNone, &it.policy.usual
		}
	}
}

// alike reports whether items have the same policy and key.
func (w *work) alike(a, b *item) bool {
	return a.policy == b.policy && a.keyless == b.keyless && bytes.Equal(w.key(a), w.key(b))
}

// join looks for the same policy and key in earlier requests. The limits of the first of them hold for all.
func (w *work) join(it *item) {
	for i := range w.items[:w.from] {
		if first := &w.items[i]; first.joined < 0 && first.failed == nil && w.alike(first, it) {
			it.joined, it.variant, it.override = int32(i), first.variant, first.override
			return
		}
	}
}

// chooseKey looks for limits that the key has of its own.
func (w *work) chooseKey(it *item) {
	if it.policy.keys != nil {
		if x := it.policy.keys[string(w.key(it))]; x != nil {
			it.variant = x
		}
	}
}

// usual reports whether the limits of an item are those that the policy has for all keys.
func (it *item) usual() bool { return it.variant == &it.policy.usual && it.override == nil }

// costOf returns the cost of a request. If it is one that no request can have, why is the reason to refuse it.
func costOf(cost Number, r *Request) (n int64, why weir.Reason, err error) {
	if n = r.cost(); cost != nil {
		if n, err = cost.Int(r); err != nil {
			return 0, weir.ReasonNone, err
		}
	}
	if n >= 0 && n <= mostCost {
		return n, weir.ReasonNone, nil
	}
	if why = weir.ReasonNever; n < 0 {
		why = weir.ReasonInvalid
	}
	of := ""
	if cost != nil {
		of = strconv.Quote(cost.String()) + " "
	}
	return 0, why, fmt.Errorf("weir: the cost %sis %d: must be from 0 to 10^15", of, n)
}

// chooseTier looks the tier up, whose name is needed for a moment only.
func (w *work) chooseTier(it *item, r *Request) (err error) {
	start := len(w.keys)
	w.keys, err = appendText(w.keys, it.policy.TierBy, r)
	if err == nil {
		if x := it.policy.tiers[string(w.keys[start:])]; x != nil {
			it.variant = x
		}
	}
	w.keys = w.keys[:start]
	return err
}

// denied is a request that a rule denies.
type denied struct{ request, rule int32 }

// gatherDenied looks for a rule that denies a request, among those whose Match applies to one reading of its path. It reports
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
		if counting != nil {
			w.count(s.briefs[n].count, earlier)
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
	w := &v.work
	r.seen = &w.view
	defer func() {
		r.seen = nil
		debts.Put(v)
	}()
	v.begin(s)
	w.request = 0
	r.readAs(0, nil)
	w.found = s.index.Match(r.seen, w.found[:0])
	if v.gatherDenied(s, r, 0, nil) {
		return v.DeniedBy(0)
	}
	others := r.readings()
	for at := r.next(0, others); at > 0; at = r.next(at, others) {
		r.readAs(at, others)
		w.found = s.index.Match(r.seen, w.found[:0])
		if v.gatherDenied(s, r, 0, nil) {
			break
		}
	}
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

// gatherOne finds the policies that apply to a request. It reports whether none does as rules exempt it.
//
// A path that can be read in several ways is decided on as each of them would be: what applies to one applies to the request,
// it is denied if one of them is, and exempt if each of them is.
func (v *Verdict) gatherOne(s *snapshot, r *Request, counting *Engine) (exempt bool) {
	w := &v.work
	w.reading, w.first, r.seen = 0, len(w.counted), &w.view
	defer func() { r.seen = nil }() // the view is of another request next
	r.readAs(0, nil)
	if r.Named != nil {
		v.gatherNamed(s, r)
		return false
	}
	exempt = v.gatherReading(s, r, counting)
	others := r.readings()
	at := r.next(0, others)
	if at == 0 {
		return exempt
	}
	for ; at > 0 && v.DeniedBy(int(w.request)) == nil; at = r.next(at, others) {
		w.reading = int32(at)
		r.readAs(at, others)
		if !v.gatherReading(s, r, counting) {
			exempt = false
		}
	}
	return exempt
}

// merge adds to an item what another rule, another child or another reading of the path asks of the same policy and key: the
// higher cost counts, and the lower one of two limits. A cost or tier that cannot be told fails the item, and one that no request
// can have refuses it, so that the order of the rules does not matter.
func (w *work) merge(into, from *item, r *Request, cost Number) {
	into.reading = w.reading
	if from.failed == nil {
		from.cost, from.why, from.failed = costOf(cost, r)
	}
	if from.failed == nil && into.override == nil && into.joined < 0 && into.policy.TierBy != nil {
		w.choose(from, r)
	}
	switch {
	case from.failed != nil && (into.failed == nil || into.why == weir.ReasonNone && from.why != weir.ReasonNone):
		into.failed, into.why = from.failed, from.why
		return
	case into.failed != nil:
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
func (s *snapshot) explainRules(r *Request, others []reading) []ExplainedRule {
	r.readAs(0, nil)
	if r.Named != nil {
		return []ExplainedRule{} // they are not asked
	}
	all := s.explainReading(r)
	for at := r.next(0, others); at > 0; at = r.next(at, others) {
		r.readAs(at, others)
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
