package policy_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// script is what a fuzz target makes sets and steps of: its bytes, and zeros after them.
type script struct{ rest string }

func (s *script) below(n int) int {
	if s.rest == "" {
		return 0
	}
	c := s.rest[0]
	s.rest = s.rest[1:]
	return int(c) % n
}

func (s *script) one(of int) bool { return s.below(of) == 1 }

// scriptAlgorithms are those of the limits l0, l1 and so on.
var scriptAlgorithms = []weir.Algorithm{
	weir.AlgorithmTokenBucket, weir.AlgorithmFixedWindow, weir.AlgorithmSlidingCounter, weir.AlgorithmSlidingWindow,
	weir.AlgorithmConcurrency, weir.AlgorithmCalendarWindow,
}

// limit is one of those of a name, whose algorithm nearly always stays.
func (s *script) limit(name int) weir.Limit {
	if s.one(16) {
		name++
	}
	n := int64(1 + s.below(9))
	rate := weir.Rate{Permits: n, Period: []time.Duration{time.Hour, time.Minute, 7 * time.Second}[s.below(3)]}
	switch name % 6 {
	case 0:
		return weir.TokenBucket(rate, int64(1+s.below(12)))
	case 1:
		return weir.FixedWindow(rate)
	case 2:
		return weir.SlidingCounter(rate)
	case 3:
		return weir.SlidingWindow(rate, 1+s.below(4))
	case 4:
		return weir.AtOnce(n)
	}
	return weir.CalendarWindow(n, algo.Calendar{Unit: []algo.CalendarUnit{algo.CalendarMinute, algo.CalendarHour}[s.below(2)]})
}

func (s *script) limits(names []int) (all []policy.Limit) {
	for _, name := range names {
		all = append(all, policy.Limit{Name: fmt.Sprint("l", name), Limit: s.limit(name)})
	}
	return all
}

func (s *script) policy(name string) policy.Policy {
	p := policy.Policy{Name: name}
	names := []int{s.below(6)}
	for len(names) < 3 && s.one(3) {
		names = append(names, s.below(6)) // a name may be there twice, which is a mistake
	}
	p.Limits = s.limits(names)
	if s.one(2) {
		p.Key = policy.AttributeText("key")
	}
	if s.one(2) {
		p.Mode = []policy.Mode{policy.ModeEnforce, policy.ModeShadow, policy.ModeTag, policy.ModeOff}[s.below(4)]
	}
	if s.one(4) {
		p.TierBy = policy.AttributeText("tier")
		p.Tiers = map[string][]policy.Limit{"gold": s.limits(names)}
	}
	if s.one(4) {
		p.Keys = map[string][]policy.Limit{"a": s.limits(names)}
	}
	if s.one(6) {
		p.Candidate = s.limits([]int{s.below(6)})
	}
	if s.one(5) {
		p.Lockout = &policy.Lockout{Refusals: 1 + s.below(3), Within: time.Minute, InARow: s.one(2)}
		p.Lockout.For = time.Duration(1+s.below(3)) * time.Minute
	}
	if s.one(6) {
		p.MaxKeys, p.AdmitWhenFull = 1+s.below(2), s.one(2)
	}
	if s.one(6) {
		p.QueueLimit = int64(s.below(3))
	}
	// A key that has all of a tier may be forgotten, and has all of another one then. When a store does that is not to be told.
	switch s.below(8) {
	case 1, 2:
		p.Consistency = policy.ConsistencyCoherent
	case 3:
		p.Durability = policy.DurabilityCluster
	}
	if p.Shared() {
		p.Tiers, p.TierBy = nil, nil
		p.Hold = 24 * time.Hour // no reservation expires, as those are canceled when the key is looked at
	}
	return p
}

// set has some policies beside those that stay, and rules in some order.
func (s *script) set(stay []policy.Policy) *policy.Set {
	set := &policy.Set{Policies: slices.Clone(stay)}
	rules := []policy.Rule{{Name: "stays", Match: policy.Match{Methods: []string{"STAY"}}, Limits: uses("stays")}}
	names := []string{"p", "q", "r"}
	for i, name := range names {
		if s.one(4) {
			continue
		}
		p := s.policy(name)
		if s.one(4) {
			p.Parent = names[(i+1+s.below(2))%3] // which may not be there, or come round: mistakes
		}
		set.Policies = append(set.Policies, p)
		r := policy.Rule{Name: "of " + name, Match: policy.Match{Methods: []string{"ASK"}}, Limits: uses(name)}
		r.Final, r.Afterwards = s.one(8), s.one(8)
		rules = append(rules, r)
	}
	if s.one(2) {
		slices.Reverse(set.Policies)
	}
	if s.one(2) {
		slices.Reverse(rules)
	}
	set.Rules = rules
	return set
}

// reloads are three engines: one that is reloaded, also with sets that cannot be used and with the one in force; one that gets only
// what is new and can be used; and one that has the policies that stay and is never reloaded.
type reloads struct {
	*testing.T
	script

	clock              *manualclock.Clock
	e, plain, steady   *policy.Engine
	recipe             string // of the set in force
	stay               string // that of the policies that stay
	held               [][]*policy.Verdict
	policies, keyNames []string
}

func (h *reloads) staying() []policy.Policy {
	s := script{h.stay}
	p, q := s.policy("stays"), s.policy("parent")
	if s.one(2) {
		p.Parent = "parent"
	}
	return []policy.Policy{p, q}
}

func (h *reloads) reload() {
	recipe := h.rest
	set := h.set(h.staying())
	recipe = recipe[:len(recipe)-len(h.rest)]
	if h.one(8) {
		set.Rules = append(set.Rules, policy.Rule{Name: "wrong", Limits: uses("none")})
	}
	before, version := h.states(h.e), h.e.Report().Version
	changes, err := h.e.Load(set)
	if err != nil {
		if now := h.e.Report(); now.Version != version || now.LastError == "" {
			h.Fatalf("refused: %+v", now)
		}
		h.same("after a set that was refused", before, h.states(h.e))
		return
	}
	h.recipe = recipe
	if _, err := h.plain.Load(set); err != nil {
		h.Fatalf("another engine refuses the set: %v", err)
	}
	h.carried(before, h.states(h.e), changes)
}

// again loads the set in force once more.
func (h *reloads) again() {
	s := script{h.recipe}
	before := h.states(h.e)
	if changes := load(h, h.e, s.set(h.staying())); len(changes) > 0 {
		h.Fatalf("the same set: %+v", changes)
	}
	h.same("after the same set", before, h.states(h.e))
}

// states are those of all keys of all policies.
func (h *reloads) states(e *policy.Engine) map[string]policy.KeyState {
	all := map[string]policy.KeyState{}
	for _, name := range h.policies {
		for _, key := range h.keyNames {
			k, err := e.Key(h.Context(), name, key)
			if err != nil {
				continue // there is no such policy
			}
			k.ID = ""
			for i := range k.Limits {
				l := &k.Limits[i]
				l.Tracked = l.Tracked && l.Decision.ResetAfter > 0 // which may be forgotten at any time
			}
			if k.Override != nil {
				k.Override.Since = time.Time{}
			}
			all[name+" "+key] = k
		}
	}
	return all
}

func (h *reloads) same(when string, a, b map[string]policy.KeyState) {
	if !reflect.DeepEqual(a, b) {
		for name := range a {
			if !reflect.DeepEqual(a[name], b[name]) {
				h.Fatalf("%s: %s was\n%+v and is\n%+v", when, name, a[name], b[name])
			}
		}
		h.Fatalf("%s: were %v and are %v", when, a, b)
	}
}

// carried looks at what has become of the state of each limit by a reload: one that is as before has the same, and another one
// has no more than before, except that a limit that is higher has as much more.
func (h *reloads) carried(before, after map[string]policy.KeyState, changes []policy.Change) {
	anew := map[string]bool{}
	for _, c := range changes {
		anew[c.Path] = c.State != "" && c.State != "kept"
	}
	for name, was := range before {
		is, ok := after[name]
		if !ok {
			continue
		}
		for _, l := range is.Limits {
			i := slices.IndexFunc(was.Limits, func(o policy.LimitState) bool { return o.Limit == l.Limit })
			if i < 0 || anew["policies."+is.Policy+".limits."+l.Limit] || anew["policies."+is.Policy+".consistency"] ||
				anew["policies."+is.Policy+".durability"] {
				continue
			}
			h.carriedLimit(name, was.Limits[i], l)
		}
	}
}

func (h *reloads) carriedLimit(name string, was, is policy.LimitState) {
	was.Decision.Policy, is.Decision.Policy = "", "" // the name may have that of its limit now
	a, b := was.Decision, is.Decision
	switch {
	case was.Holds == is.Holds:
		// A key that is not tracked may find the table full, or no more.
		if was.Tracked != is.Tracked || a != b && (is.Tracked || a.Remaining != b.Remaining) {
			h.Fatalf("%s: the same limit was %+v and is %+v", name, was, is)
		}
	case was.Holds == "unlimited" || is.Holds == "unlimited" || !was.Tracked:
	case b.Remaining > a.Remaining+max(b.Limit-a.Limit, 0):
		h.Fatalf("%s: %+v became %+v", name, was, is)
	}
}

func (h *reloads) request() (r policy.Request, stays bool) {
	r.Cost = int64(1 + h.below(3))
	r.Attributes = map[string]string{"key": h.keyNames[h.below(len(h.keyNames))], "tier": []string{"", "gold"}[h.below(2)]}
	switch h.below(4) {
	case 0:
		r.Method, stays = "STAY", true
	case 1:
		r.Method = "ASK"
	default:
		name := h.policies[h.below(len(h.policies))]
		stays = name == "stays" || name == "parent"
		r.Named = &policy.Named{Policy: []byte(name), Key: []byte(r.Attributes["key"]), Cost: r.Cost, Afterwards: h.one(8)}
	}
	return r, stays
}

func (h *reloads) ask() {
	r, stays := h.request()
	how := h.below(4)
	engines := h.engines(stays)
	verdicts := make([]*policy.Verdict, len(engines))
	for i, e := range engines {
		v, own := new(policy.Verdict), r
		switch how {
		case 0:
			e.Peek(&own, v)
		case 1:
			e.Reserve(&own, v)
		default:
			e.Take(&own, v)
		}
		verdicts[i] = v
		if want, got := told(verdicts[0]), told(v); want != got {
			h.Fatalf("%+v:\n%s, and of engine %d\n%s", r, want, i, got)
		}
	}
	if verdicts[0].Allowed {
		h.held = append(h.held, verdicts)
	}
}

// told is what a verdict says.
func told(v *policy.Verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%t %t %d %+v %v %t\n", v.Allowed, v.Exempt, v.Binding, v.Decision(), v.Over(0), v.OverShadow(0))
	for i := range v.Parts {
		p := &v.Parts[i]
		fmt.Fprintf(&b, "%s %d %q %d %+v %t %v\n", p.Policy.Name, p.Limit, p.Key, p.Cost, p.Decision, p.Unasked, p.Applied())
	}
	return b.String()
}

func (h *reloads) release() {
	if len(h.held) == 0 {
		return
	}
	i := h.below(len(h.held))
	how, actual := h.below(3), int64(h.below(4))
	for _, v := range h.held[i] {
		switch how {
		case 0:
			v.Release()
		case 1:
			v.Cancel()
		default:
			v.Commit(func(*policy.Part) int64 { return actual - 1 })
		}
	}
	h.held = slices.Delete(h.held, i, i+1)
}

// override does what operators do: it changes the limits of a key for a while, or ends that, a lockout, or what was taken.
func (h *reloads) override() {
	name, key := h.policies[h.below(len(h.policies))], h.keyNames[h.below(len(h.keyNames))]
	o := policy.Override{Policy: name, Key: key, For: time.Duration(1+h.below(120)) * time.Second, Unlimited: h.one(3)}
	how := h.below(8)
	if at := slices.IndexFunc(h.e.Set().Policies, func(p policy.Policy) bool { return p.Name == name }); at >= 0 && !o.Unlimited {
		p := &h.e.Set().Policies[at]
		o.Unlimited = p.Shared() // as with tiers
		for i := 0; i < len(p.Limits) && !o.Unlimited; i++ {
			o.Limits = append(o.Limits, policy.Limit{Limit: h.limit(slices.Index(scriptAlgorithms, p.Limits[i].Algorithm()))})
		}
	}
	results := map[string]bool{}
	for _, e := range h.engines(name == "stays" || name == "parent") {
		switch how {
		case 0, 1:
			results[strconv.FormatBool(e.Restore(name, key))] = true
		case 2:
			results[fmt.Sprint(e.Reset(h.Context(), name, key))] = true
		case 3:
			results[strconv.FormatBool(e.Unlock(name, key))] = true
		default:
			own := o
			results[fmt.Sprint(e.Override(&own))] = true
		}
	}
	if len(results) != 1 {
		h.Fatalf("override %d %+v: %v", how, o, results)
	}
}

// engines are those that a step is for.
func (h *reloads) engines(stays bool) []*policy.Engine {
	if stays {
		return []*policy.Engine{h.e, h.plain, h.steady}
	}
	return []*policy.Engine{h.e, h.plain}
}

// finish compares what the engines report.
func (h *reloads) finish() {
	a, b, c := h.states(h.e), h.states(h.plain), h.states(h.steady)
	h.same("of an engine without idle reloads", a, b)
	for name := range a {
		if _, stays := c[name]; !stays {
			delete(a, name)
		}
	}
	h.same("of an engine without reloads", a, c)
	ours, plain := h.e.Report().Policies, h.plain.Report().Policies
	if !reflect.DeepEqual(ours, plain) {
		h.Fatalf("reported\n%+v, and without idle reloads\n%+v", ours, plain)
	}
	for _, p := range h.steady.Report().Policies {
		i := slices.IndexFunc(ours, func(o policy.PolicyReport) bool { return o.Name == p.Name })
		if !reflect.DeepEqual(ours[i], p) {
			h.Fatalf("reported\n%+v, and without reloads\n%+v", ours[i], p)
		}
	}
}

// newReloads returns false if the policies that stay cannot be used.
func newReloads(t *testing.T, stay, text string) (*reloads, bool) {
	clock := manualclock.New(int64(time.Hour))
	h := &reloads{
		T: t, script: script{text}, clock: clock, stay: stay,
		policies: []string{"stays", "parent", "p", "q", "r"}, keyNames: []string{"", "a", "b"},
	}
	first := new(script).set(h.staying()) // which is that of an empty recipe
	steady := &policy.Set{Policies: h.staying(), Rules: first.Rules[:1]}
	for _, of := range []struct {
		e   **policy.Engine
		set *policy.Set
	}{{&h.e, first}, {&h.plain, first}, {&h.steady, steady}} {
		o := policy.EngineOptions{Clock: clock, Store: memory(t, clock), Durable: newOwner(t, clock)}
		e, err := policy.NewEngine(of.set, o)
		if err != nil {
			return nil, false
		}
		t.Cleanup(func() { _ = e.Close() })
		*of.e = e
	}
	return h, true
}

func (h *reloads) step() {
	switch h.below(12) {
	case 0:
		h.reload()
	case 1:
		h.again()
	case 2:
		h.clock.Advance(time.Duration(1+h.below(100)) * time.Second)
	case 3:
		h.clock.Advance(time.Duration(1+h.below(200)) * 400 * time.Millisecond)
	case 4:
		h.release()
	case 5:
		h.override()
	default:
		h.ask()
	}
}

// FuzzReload compares an engine under reloads with one that gets no set which it refuses or has already, and with one that is
// never reloaded and has the policies that stay: neither can be told from it. What a reload keeps of other limits is never more.
func FuzzReload(f *testing.F) {
	r := rand.New(rand.NewPCG(12, 1))
	for range 40 {
		stay, text := make([]byte, 40), make([]byte, 400)
		for _, b := range [][]byte{stay, text} {
			for i := range b {
				b[i] = byte(r.IntN(256))
			}
		}
		f.Add(string(stay), string(text))
	}
	f.Fuzz(func(t *testing.T, stay, text string) {
		if len(text) > 1500 {
			return
		}
		h, ok := newReloads(t, stay, text)
		for ok && h.rest != "" {
			h.step()
		}
		if ok {
			h.finish()
		}
	})
}
