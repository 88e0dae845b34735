package bench

import (
	"fmt"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/policy"
)

// ruleLimit is a limit of a policy, the same that a handler has which asks by hand.
func (b budget) ruleLimit() weir.Limit {
	return b.limit()
}

// ruleBudget is what the i-th of some limits is set to. Where requests are refused it is the last one that does: those before
// it have granted their permits already, and must not have lost them.
func ruleBudget(i, limits int, refused bool) budget {
	if refused && i == limits-1 {
		return empty
	}
	return drainedSlowly
}

// ruleSet is so many rules of mixed shapes. A request is held to one limit by the rule that is for it; to several by one of a
// rule for all requests, and the others of the rule that is for it; or to none.
func ruleSet(rules, limits int, refused bool) *policy.Set {
	s := &policy.Set{}
	uses := make([]policy.Use, limits)
	for i := range uses {
		uses[i].Policy = fmt.Sprintf("policy %d", i)
		s.Policies = append(s.Policies, policy.Policy{
			Name: uses[i].Policy, Key: policy.ClientIP(),
			Limits: []policy.Limit{{Limit: ruleBudget(i, limits, refused).ruleLimit()}},
		})
	}
	if limits > 1 {
		s.Rules = append(s.Rules, policy.Rule{Name: "all", Limits: uses[:1]})
		uses = uses[1:]
	}
	for i := range rules {
		s.Rules = append(s.Rules, policy.Rule{Name: ruleName(i), Match: ruleMatch(i), Limits: uses})
	}
	return s
}

// The condition and the key of the row with expressions, neither of which only names something.
const (
	ruleWhen = `size(request.path) < 1000 && !request.path.endsWith(".php")`
	ruleKey  = `client.ip + (request.method == "POST" ? "/write" : "/read")`
)

// addExpressions gives every rule the condition, and every policy the key.
func addExpressions(s *policy.Set) error {
	file, err := config.Parse("bench.yaml", []byte("version: 1\n"+
		"policies:\n  expressions: {limit: 1/s, key: '"+ruleKey+"'}\n"+
		"rules:\n  - {name: expressions, when: '"+ruleWhen+"', limits: expressions}\n"), config.Options{})
	if err != nil {
		return fmt.Errorf("bench: the configuration with expressions: %w", err)
	}
	for i := range s.Policies {
		s.Policies[i].Key = file.Set.Policies[0].Key
	}
	for i := range s.Rules {
		s.Rules[i].When = file.Set.Rules[0].When
	}
	return nil
}

const engineCall = "Engine.Take(&r, &v); v.Release()"

// askEngine decides as a server does that keeps its verdicts.
func askEngine(e *policy.Engine) func(p *rulePart, n int) int {
	return func(p *rulePart, n int) (granted int) {
		v := &p.verdict
		for i := range p.requests[:n] {
			e.Take(&p.requests[i], v)
			if v.Allowed {
				granted++
			}
			v.Release()
		}
		return granted
	}
}

// byHand is memory that is used again for the charges of a request.
type byHand struct {
	charges []keyset.Charge
	leases  []weir.Lease
}

// handLimiters are what a program has that asks by hand: a limiter for each limit.
type handLimiters []*weir.Keyed[string]

func newHandLimiters(limits int, refused bool) (all handLimiters) {
	for i := range limits {
		b := ruleBudget(i, limits, refused)
		all = append(all, must(weir.NewKeyed[string](b.limit(), weir.KeyedOptions{})))
	}
	return all
}

// askEach asks one limiter after the other for the key, which is at hand. Each of them reads the clock.
func (all handLimiters) askEach(p *rulePart, n int) (granted int) {
	for _, key := range p.keys[:n] {
		allowed := true
		for _, k := range all {
			if allowed = k.Take(key, 1).Allowed; !allowed {
				break
			}
		}
		if allowed {
			granted++
		}
	}
	return granted
}

// askAll asks all limiters in one step for the key, which is at hand.
func (all handLimiters) askAll(p *rulePart, n int) (granted int) {
	h := &p.hand
	var binding int
	for _, key := range p.keys[:n] {
		h.charges = h.charges[:0]
		for _, k := range all {
			h.charges = append(h.charges, keyset.Charge{Limiter: k, Key: key, N: 1})
		}
		h.leases, binding = keyset.TryAcquireAll(h.leases[:0], h.charges...)
		if h.leases[binding].Allowed() {
			granted++
		}
		for i := range h.leases {
			h.leases[i].Release()
		}
	}
	return granted
}

// askMap looks the rule of each request up by its name: the least that finds one of so many.
func askMap(rules int) func(p *rulePart, n int) int {
	known := make(map[string]int, rules)
	for i := range rules {
		known[ruleName(i)] = i
	}
	return func(p *rulePart, n int) (granted int) {
		for _, name := range p.rules[:n] {
			if _, ok := known[name]; ok {
				granted++
			}
		}
		return granted
	}
}
