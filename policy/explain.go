package policy

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inwords"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/store"
)

// Explanation is why a request is decided as it is: every rule, and every limit of those that match.
type Explanation struct {
	// Allowed, Exempt, Reason, RetryAfter and Binding are those of the verdict; Binding is the place of the limit in Limits, or
	// -1.
	Allowed    bool          `json:"allowed"`
	Exempt     bool          `json:"exempt,omitempty"`
	Reason     weir.Reason   `json:"reason"`
	RetryAfter time.Duration `json:"retry_after_ns"`
	Binding    int           `json:"binding"`
	// Denied is the name of the rule that denies the request, "" if none does.
	Denied string `json:"denied,omitempty"`
	// Paths are the ways to read the path of the request, if there are several: what applies under one of them applies to the
	// request, it is denied if it is under one, and exempt only if it is under all.
	Paths []string `json:"paths,omitempty"`
	// Rules are all rules in their order, none if the caller has named the policy: see [Named].
	Rules []ExplainedRule `json:"rules"`
	// Limits are those that apply to the request, with those that refuse nothing and the candidates.
	Limits []ExplainedLimit `json:"limits"`
}

// ExplainedRule is a rule as seen by one request.
type ExplainedRule struct {
	Name    string `json:"name"`
	Source  string `json:"source,omitempty"`
	Matched bool   `json:"matched"`
	// Deny is that of the rule, and Shadow reports whether it only counts what it would deny.
	Deny   bool `json:"deny,omitempty"`
	Shadow bool `json:"shadow,omitempty"`
	// Afterwards is that of the rule: its requests are charged also if they are refused.
	Afterwards bool `json:"afterwards,omitempty"`
	// Condition is the first condition that does not match, such as `method is GET, rule wants POST, PUT`, "" if all match. For a
	// rule behind a final one that matched it names that.
	Condition string `json:"condition,omitempty"`
}

// ExplainedLimit is a limit as seen by one request.
type ExplainedLimit struct {
	// Policy and Limit name the limit, and Rule the one that has applied it, "" if the caller has named the policy. Tier is the
	// tier whose limit is in force: "" if there is none, and for a key that has a limit of its own in Keys of the policy.
	Policy string `json:"policy"`
	Limit  string `json:"limit"`
	Rule   string `json:"rule"`
	Tier   string `json:"tier,omitempty"`
	// Override is true if an override applies to the key instead.
	Override bool `json:"override,omitempty"`
	// Role is "enforce", "shadow", "tag" or "candidate".
	Role string `json:"role"`
	// Consistency is how exactly the limit is shared with other processes; ConsistencyLocal if it is not.
	Consistency Consistency `json:"consistency,omitzero"`
	// Durability is what the counts of the limit survive.
	Durability Durability `json:"durability,omitzero"`
	// Holds is the limit in words, such as "10/s, burst 20".
	Holds string `json:"holds"`
	// Applied is the limit that the engine applies to the key; the zero Limit if Failure is not "", or the key is unlimited.
	Applied weir.Limit `json:"-"`
	// Key is what the request is counted under, KeyFrom how it was made, and Cost how many permits it asks for.
	Key     string `json:"key"`
	KeyFrom string `json:"key_from,omitempty"`
	Cost    int64  `json:"cost"`
	// Failure is why the key or the cost cannot be evaluated, if so.
	Failure string `json:"failure,omitempty"`
	// Before and After are how many permits remain before and after the request. One that is refused takes none, unless it
	// reports what has been spent: see Rule.Afterwards.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	// Decision is that of this limit alone.
	Decision weir.Decision `json:"decision"`
	// Would is what would be allowed: "a cost of up to 3 now, this one in 1.2s", for instance.
	Would string `json:"would"`
}

// sample explains one in so many requests, before they are decided.
func (e *Engine) sample(ctx context.Context, r *Request) {
	if e.sampled.Add(1)%uint64(e.options.ExplainEvery) == 0 {
		e.options.OnExplain(e.explain(ctx, r))
	}
}

// Explain shows how a request would be decided now, and takes nothing. It looks at all rules, and is too slow for every request.
func (e *Engine) Explain(r *Request) Explanation { return e.explain(r.Context, r) }

func (e *Engine) explain(ctx context.Context, r *Request) Explanation {
	var v Verdict
	one := [1]*Request{r}
	e.decide(ctx, one[:], ask{verb: peek}, &v)
	s := v.work.snapshot
	x := Explanation{Allowed: v.Allowed, Exempt: v.Exempt, Binding: -1, Rules: s.explainRules(r, r.allReadings())}
	if rule := v.DeniedBy(0); rule != nil {
		x.Denied = rule.Name
	}
	if paths := keytext.Readings(r.Path, r.RawPath); paths != nil {
		x.Paths = append([]string{keytext.CleanPath(r.Path)}, paths...)
	}
	d := v.Decision()
	x.Reason, x.RetryAfter = d.Reason, d.RetryAfter
	if v.Allowed {
		x.Reason, x.RetryAfter = weir.ReasonNone, 0
	}
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		before := len(x.Limits)
		x.Limits = e.explainLimits(ctx, x.Limits, &v, it, r, it.policy.Mode.String())
		for j := range v.partsOf(it) {
			if it.first+j == v.Binding {
				x.Binding = before + j
			}
			l := &x.Limits[before+j]
			l.Decision = v.Parts[it.first+j].Decision
			l.Would = would(l, it)
		}
		v.explainAfter(it, x.Limits[before:], false)
		candidates := len(x.Limits)
		x.Limits = e.explainLimits(ctx, x.Limits, &v, it, r, "candidate")
		v.explainAfter(it, x.Limits[candidates:], true)
	}
	return x
}

// explainAfter tells what remains of the limits of an item, or of its candidate, after the request.
func (v *Verdict) explainAfter(it *item, limits []ExplainedLimit, candidate bool) {
	if it.failed != nil || !candidate && it.lifted() {
		return
	}
	takes, owes := v.Allowed, v.work.afterwards>>it.request&1 == 1
	if candidate {
		takes = it.first >= 0 && it.usual() && (takes || v.refusedOnlyBy(it))
		owes = owes && it.usual()
	}
	for i := range limits {
		takes = takes && limits[i].Decision.Allowed
	}
	for i := range limits {
		l := &limits[i]
		returns := l.Applied.Algorithm() == weir.AlgorithmConcurrency
		if l.After = l.Before; takes && (v.Allowed || !returns) || owes && !returns {
			l.After = max(l.Before-l.Cost, 0)
		}
	}
}

// refusedOnlyBy reports whether the policy of an item is the only one that refuses the request, so that its candidate is asked:
// not so beside a store that is not asked as a limit of this process refuses.
func (v *Verdict) refusedOnlyBy(it *item) bool {
	w := &v.work
	if v.failed() || !it.policy.shared && len(w.sharing.asked) > 0 {
		return false
	}
	for i := range w.items {
		other := &w.items[i]
		if other.locked > 0 || other != it && other.first >= 0 && v.some(other, (*Part).refuses) {
			return false
		}
	}
	return true
}

// explainReading is explainRules for one reading of the path.
func (s *snapshot) explainReading(r *Request) []ExplainedRule {
	all := make([]ExplainedRule, len(s.set.Rules))
	final := ""
	for i := range s.set.Rules {
		rule := &s.set.Rules[i]
		all[i] = ExplainedRule{
			Name: rule.Name, Source: rule.Source, Afterwards: rule.Afterwards, Condition: s.index.Why(r.seen, int32(i)),
			Deny: rule.Deny, Shadow: rule.Mode == ModeShadow,
		}
		x, told := &all[i], true
		if x.Condition == "" && rule.When != nil {
			s.index.Bind(r.seen, int32(i))
			holds, err := rule.When.Holds(r)
			told = err == nil
			switch {
			case err != nil && rule.Exempt:
				x.Condition = fmt.Sprintf("when: %v cannot be told: %v", rule.When, err)
			case err == nil && !holds:
				x.Condition = fmt.Sprintf("when: %v is false", rule.When)
			}
		}
		switch {
		case x.Condition != "":
		case rule.Mode == ModeOff:
			x.Condition = "mode: the rule is off"
		case final != "" && !rule.Exempt && !rule.Deny:
			x.Condition = fmt.Sprintf("rule %s before it matches and is final", final)
		}
		x.Matched = x.Condition == ""
		if x.Matched && rule.Final && told && final == "" {
			final = rule.Name
		}
	}
	return all
}

// explainLimits appends the limits of a policy in one of its roles, each asked alone.
func (e *Engine) explainLimits(
	ctx context.Context, all []ExplainedLimit, v *Verdict, it *item, r *Request, role string,
) []ExplainedLimit {
	w, s := &v.work, v.work.snapshot
	live, x, candidate := it.policy.limits, it.variant, role == "candidate"
	if candidate {
		live, x = it.policy.candidate, &it.policy.measured
	}
	var stored []weir.Decision
	if it.policy.shared && !candidate && it.failed == nil && !it.lifted() {
		stored = e.explainStored(ctx, v, it)
	}
	for i := range live {
		l := it.explained(w, s.rule(it), x.limits[i].Name, role)
		switch {
		case !candidate && it.lifted():
			l.Holds, l.Before, l.After, l.Would = holdsUnlimited, mostPermits, mostPermits, "anything"
			l.Decision = noLimit()
			l.Decision.Policy = live[i].name
		case it.failed == nil:
			if !candidate {
				l.Tier = s.tierOf(it, l.Key, r)
			}
			if l.Applied = x.at(i); l.Override {
				l.Applied = it.override.Limits[i].Limit
			}
			l.Holds = l.Applied.String()
			if stored != nil {
				l.Before, l.Decision = stored[i].Remaining, stored[i]
			} else {
				c := keyset.Charge{Limiter: live[i].state.limiter, Key: l.Key, N: l.Cost, Plan: x.plans[i]}
				now := c
				now.N = 0
				d, _ := keyset.PeekAll(nil, now, c)
				l.Before, l.Decision = d[0].Remaining, d[1]
			}
			l.Decision.Policy = live[i].name
			l.Would = would(&l, nil)
		}
		all = append(all, l)
	}
	return all
}

// explainStored is what a store decides about a policy: one that is enforced has been looked at already.
func (e *Engine) explainStored(ctx context.Context, v *Verdict, it *item) []weir.Decision {
	if it.first >= 0 {
		return v.work.sharing.decisions[it.at:]
	}
	charges := appendStored(nil, v.work.storedKey(it), it)
	decisions := make([]weir.Decision, len(charges))
	if err := store.Peek(e.asking(ctx), e.states, charges, decisions); err != nil {
		for i := range decisions {
			decisions[i] = weir.Decision{
				Reason: weir.ReasonUnavailable, RetryAfter: retryUnavailable, Limit: charges[i].Limit.Permits(),
			}
		}
	}
	return decisions
}

// explained is what is known of a limit without asking it.
func (it *item) explained(w *work, rule *Rule, limit, role string) ExplainedLimit {
	l := ExplainedLimit{
		Policy: it.policy.Name, Limit: limit, Role: role,
		Key: strings.Clone(borrow(w.key(it))), KeyFrom: keyFrom(it.policy, rule), Cost: it.cost,
		Override: role != "candidate" && it.override != nil,
	}
	if rule != nil {
		l.Rule = rule.Name
	}
	if it.named {
		l.KeyFrom = namedKey{}.String()
	}
	if role != "candidate" && it.policy.shared {
		l.Consistency, l.Durability = it.policy.Consistency, it.policy.Durability
	}
	if it.failed != nil {
		l.Failure = it.failed.Error()
		l.Decision = it.refusal()
		l.Would = "nothing, as it cannot be told what to count: fail is " + it.policy.Fail.String()
		if it.why != weir.ReasonNone {
			l.Would = "nothing, as the request brings what cannot be used"
		}
	}
	return l
}

func keyFrom(p *livePolicy, rule *Rule) string {
	for i := 0; rule != nil && i < len(rule.Limits); i++ {
		if u := &rule.Limits[i]; u.Policy == p.Name && u.Key != nil {
			return u.Key.String()
		}
	}
	if p.Key == nil {
		return ""
	}
	return p.Key.String()
}

// tierOf is the tier whose limits apply to a request, "" if there is none or its key has limits of its own.
func (s *snapshot) tierOf(it *item, key string, r *Request) string {
	p := it.policy
	if p.keys[key] != nil || p.TierBy == nil || it.override != nil {
		return ""
	}
	r.readAs(int(it.reading), r.allReadings())
	if it.rule != noRule {
		s.index.Bind(r.seen, it.rule)
	}
	name, err := appendText(nil, p.TierBy, r)
	if err != nil {
		return ""
	}
	if _, ok := p.Tiers[string(name)]; ok {
		return string(name)
	}
	return ""
}

// would says what would pass. by is the item of the policy, if it is one that can lock out.
func would(l *ExplainedLimit, by *item) string {
	d := &l.Decision
	now := fmt.Sprintf("a cost of up to %d now", l.Before)
	if l.Before <= 0 {
		now = "nothing now"
	}
	switch {
	case d.Allowed:
		return now
	case d.Reason == weir.ReasonNever:
		return fmt.Sprintf("%s, and never more than %d", now, d.Limit)
	case d.Reason == weir.ReasonHardLockout && by != nil:
		rest := by.locked
		if now = "nothing before the lockout ends in "; rest <= 0 { // it begins with this request
			now, rest = "nothing once this one has begun a lockout of ", by.policy.Lockout.For
		}
		switch now += inwords.Duration(rest); {
		case d.RetryAfter == weir.Never:
			return now + ", and this one never"
		case d.RetryAfter > rest:
			return fmt.Sprintf("%s, and this one in %s", now, inwords.Duration(d.RetryAfter))
		}
		return now
	case d.RetryAfter == 0 || d.RetryAfter == math.MaxInt64:
		return now
	}
	return fmt.Sprintf("%s, this one in %s", now, inwords.Duration(d.RetryAfter))
}
