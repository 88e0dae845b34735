package policy_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// oldLimit is a limit of a key as one would write it down: all times are hours, and all permits whole.
type oldLimit struct {
	limit weir.Limit
	left  int64 // of a bucket
	taken int64 // in the window, or at the moment
	at    int64 // when that was
	began int64 // when the limit was first loaded
}

const historyWindow = 24 // hours

// succession is what a limit was replaced by, and when.
type succession struct {
	by weir.Limit
	at int64
}

// hold is what a limit has left at an hour once it is l, which it may have become before.
func (o *oldLimit) hold(l weir.Limit, hour int64, next map[weir.Limit]succession) int64 {
	var steps []succession
	from := o.limit
	for from != l && len(steps) < 8 {
		s, ok := next[from]
		if !ok || len(steps) > 0 && s.at < steps[len(steps)-1].at {
			break
		}
		steps, from = append(steps, s), s.by
	}
	if from == l {
		for _, s := range steps {
			o.become(s.by, s.at)
		}
	}
	return o.become(l, hour)
}

// become is what is left at an hour, when the limit becomes l.
func (o *oldLimit) become(l weir.Limit, hour int64) int64 {
	old := o.limit
	o.limit = l
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		o.left = min(o.left+old.Rate().Permits*(hour-o.at), old.Permits(), l.Permits())
		o.left = min(o.left, l.Permits())
		o.at = hour
		return o.left
	case weir.AlgorithmFixedWindow:
		if (hour-o.began)/historyWindow != (o.at-o.began)/historyWindow {
			o.taken = 0
		}
		o.at = hour
		return max(l.Rate().Permits-o.taken, 0)
	default:
		return max(l.Permits()-o.taken, 0)
	}
}

func (o *oldLimit) take(n int64) {
	o.left -= n
	o.taken += n
}

// most is how many permits there are at all.
func most(l weir.Limit) int64 {
	if l.Algorithm() == weir.AlgorithmFixedWindow {
		return l.Rate().Permits
	}
	return l.Permits()
}

// history is an engine and what is known of it.
type history struct {
	*testing.T

	r     *rand.Rand
	set   *policy.Set
	e     *policy.Engine
	clock *manualclock.Clock
	hour  int64
	began map[string]int64                     // of each policy and limit
	next  map[string]map[weir.Limit]succession // the same
	keys  map[string]*oldLimit                 // of each policy, limit and key
	held  []heldRequest
}

type heldRequest struct {
	v    *policy.Verdict
	of   []*oldLimit
	cost int64
}

func (h *history) randomLimit(a weir.Algorithm) weir.Limit {
	n := 1 + h.r.Int64N(12)
	switch a {
	case weir.AlgorithmTokenBucket:
		return weir.TokenBucket(weir.Rate{Permits: 1 + h.r.Int64N(3), Period: time.Hour}, n)
	case weir.AlgorithmFixedWindow:
		return weir.FixedWindow(weir.Rate{Permits: n, Period: historyWindow * time.Hour})
	default:
		return weir.AtOnce(n)
	}
}

var historyAlgorithms = map[string]weir.Algorithm{
	"a": weir.AlgorithmTokenBucket, "b": weir.AlgorithmTokenBucket, "f": weir.AlgorithmFixedWindow, "g": weir.AlgorithmConcurrency,
}

func (h *history) randomLimits(names []string) (all []policy.Limit) {
	for _, name := range names {
		all = append(all, policy.Limit{Name: name, Limit: h.randomLimit(historyAlgorithms[name])})
	}
	return all
}

func (h *history) randomSet() *policy.Set {
	s := &policy.Set{}
	for _, name := range []string{"child", "parent"} {
		p := policy.Policy{Name: name, MaxKeys: 100}
		var names []string
		for limit := range historyAlgorithms {
			// Buckets stay, as one that is new would go on from another one.
			if historyAlgorithms[limit] == weir.AlgorithmTokenBucket || h.r.IntN(6) > 0 {
				names = append(names, limit)
			}
		}
		slices.Sort(names)
		h.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		p.Limits = h.randomLimits(names)
		if name == "child" {
			p.Parent, p.Key = "parent", policy.MethodText()
			p.TierBy = policy.AttributeText("tier")
			p.Tiers = map[string][]policy.Limit{"gold": h.randomLimits(names)}
			p.Keys = map[string][]policy.Limit{"PUT": h.randomLimits(names)}
		}
		if h.r.IntN(4) == 0 {
			p.Candidate = one(h.randomLimit(weir.AlgorithmTokenBucket))
		}
		s.Policies = append(s.Policies, p)
	}
	s.Rules = []policy.Rule{{Name: "all", Limits: uses("child")}}
	if h.r.IntN(2) == 0 {
		s.Rules = append([]policy.Rule{{Name: "other", Limits: uses("parent")}}, s.Rules...)
		slices.Reverse(s.Policies)
	}
	return s
}

func (h *history) reload() {
	next := h.randomSet()
	load(h, h.e, next)
	h.replace(next)
	h.set = next
	began := map[string]int64{}
	for i := range next.Policies {
		for _, l := range next.Policies[i].Limits {
			name := next.Policies[i].Name + "/" + l.Name
			at, ok := h.began[name]
			if !ok {
				at = h.hour
				for _, key := range []string{"GET", "PUT", ""} {
					delete(h.keys, name+" "+key)
				}
			}
			began[name] = at
		}
	}
	h.began = began
}

// replace notes what has become of limits that no role has any more.
func (h *history) replace(set *policy.Set) {
	if h.set == nil {
		return
	}
	roles := func(p *policy.Policy, limit string) (all []weir.Limit) {
		for _, limits := range [][]policy.Limit{p.Limits, p.Keys["PUT"], p.Tiers["gold"]} {
			for _, l := range limits {
				if l.Name == limit {
					all = append(all, l.Limit)
				}
			}
		}
		return all
	}
	for i := range set.Policies {
		now := &set.Policies[i]
		old := &h.set.Policies[slices.IndexFunc(h.set.Policies, func(p policy.Policy) bool { return p.Name == now.Name })]
		for _, l := range now.Limits {
			name := now.Name + "/" + l.Name
			was, is := roles(old, l.Name), roles(now, l.Name)
			if len(was) == 0 {
				delete(h.next, name)
				continue
			}
			if h.next[name] == nil {
				h.next[name] = map[weir.Limit]succession{}
			}
			done := slices.Clone(is)
			for r := range is {
				delete(h.next[name], is[r])
			}
			for r := range was {
				if !slices.Contains(done, was[r]) {
					h.next[name][was[r]] = succession{is[r], h.hour}
					done = append(done, was[r])
				}
			}
		}
	}
}

// limits are those of a request: the names with keys, and what they hold.
func (h *history) limits(method, tier string) map[string]weir.Limit {
	all := map[string]weir.Limit{}
	for i := range h.set.Policies {
		p := &h.set.Policies[i]
		limits, key := p.Limits, ""
		if p.Name == "child" {
			key = method
			if tier == "gold" {
				limits = p.Tiers["gold"]
			}
			if method == "PUT" {
				limits = p.Keys["PUT"]
			}
		}
		for _, l := range limits {
			all[p.Name+"/"+l.Name+" "+key] = l.Limit
		}
	}
	return all
}

func (h *history) request(step int) {
	method, tier, n := []string{"GET", "PUT"}[h.r.IntN(2)], []string{"", "gold"}[h.r.IntN(2)], h.r.Int64N(5)
	limits := h.limits(method, tier)
	allowed, left := true, map[string]int64{}
	for name, l := range limits {
		o := h.keys[name]
		if o == nil { // a key that was never charged is like new under any limit
			o = &oldLimit{limit: l, left: l.Permits(), at: h.hour, began: h.began[name[:lastSpace(name)]]}
		}
		left[name] = o.hold(l, h.hour, h.next[name[:lastSpace(name)]])
		allowed = allowed && n <= left[name] && (n > 0 || left[name] > 0)
	}
	v := new(policy.Verdict)
	cost := policy.Request{Method: method, Attributes: map[string]string{"tier": tier}, Cost: n}
	if n == 0 {
		h.e.Peek(&cost, v)
		allowed = true
		for _, l := range left {
			allowed = allowed && l >= 1
		}
		if v.Allowed != allowed {
			h.Fatalf("step %d: peek at %s: %v, want %v: %v", step, method, v.Allowed, allowed, left)
		}
		return
	}
	h.e.Reserve(&cost, v)
	for i := range v.Parts {
		p := &v.Parts[i]
		name := p.Policy.Name + "/" + p.Policy.Limits[p.Limit].Name + " " + string(p.Key)
		want := left[name]
		if allowed {
			want -= n
		}
		if p.Decision.Remaining != want || p.Decision.Limit != most(limits[name]) {
			h.Fatalf("step %d, hour %d, %s of %q: %d left of %d, want %d of %v: %+v", step, h.hour, name, method,
				p.Decision.Remaining, p.Decision.Limit, want, limits[name], p.Decision)
		}
	}
	if v.Allowed != allowed || len(v.Parts) != len(limits) {
		h.Fatalf("step %d: %s: %v with %d limits, want %v with %d", step, method, v.Allowed, len(v.Parts), allowed, len(limits))
	}
	if !allowed {
		return
	}
	var all []*oldLimit
	for name, l := range limits {
		if h.keys[name] == nil {
			h.keys[name] = &oldLimit{limit: l, left: l.Permits(), at: h.hour, began: h.began[name[:lastSpace(name)]]}
		}
		h.keys[name].take(n)
		all = append(all, h.keys[name])
	}
	h.held = append(h.held, heldRequest{v, all, n})
}

func lastSpace(s string) int {
	for i := len(s) - 1; ; i-- {
		if s[i] == ' ' {
			return i
		}
	}
}

// release gives back what a request holds of concurrency.
func (h *history) release() {
	if len(h.held) == 0 {
		return
	}
	i := h.r.IntN(len(h.held))
	held := h.held[i]
	h.held = slices.Delete(h.held, i, i+1)
	for _, o := range held.of {
		if o.limit.Algorithm() == weir.AlgorithmConcurrency {
			o.taken -= held.cost
		}
	}
	held.v.Release()
}
