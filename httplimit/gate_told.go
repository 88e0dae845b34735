package httplimit

import (
	"net/http"
	"slices"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// mostToldParts is how many limits of a verdict are told at most, those that bind or refuse first.
const mostToldParts = 16

// quotaKey is what is told of a limit: by which name, what it counts, how much it allowed, and the limit that was applied.
type quotaKey struct {
	name    string
	unit    ratelimitfields.Unit // "" for that of the limit
	quota   int64
	applied weir.Limit
}

// recentTexts are texts that one pass has used before: in them it finds most without touching what all passes share.
type recentTexts [16]struct {
	key  quotaKey
	item *ratelimitfields.Policies // one
}

func (g *Gate) text(p *pass, part *policy.Part) *ratelimitfields.Policies {
	key := quotaKey{part.Decision.Policy, g.options.Units[part.Policy.Name], part.Decision.Limit, part.Applied()}
	slot := &p.recent[(uint64(part.Limit)*5+uint64(key.quota)+uint64(len(key.name))*7)%uint64(len(p.recent))]
	if slot.item == nil || slot.key != key {
		item, err := g.texts.Of(key, toldPolicy)
		if err != nil {
			item = new(ratelimitfields.Policies) // the names of an engine can all be told
		}
		slot.key, slot.item = key, item
	}
	return slot.item
}

// toldPolicy is a limit as clients are told of it.
func toldPolicy(of quotaKey) (*ratelimitfields.Policies, error) {
	p := ratelimitfields.PolicyOf(of.name, of.applied)
	p.Quota = of.quota
	if of.unit != "" && p.Unit == ratelimitfields.Requests {
		p.Unit = of.unit
	}
	return ratelimitfields.NewPolicies(p)
}

// tell collects what is told of a verdict. Of several states of one limit, which are of different keys, the one that binds
// or else the lowest is told.
func (g *Gate) tell(p *pass) {
	v := &p.verdict
	p.policies.Reset()
	p.states = p.states[:0]
	binding, ok := v.BindingPart()
	if !ok {
		return // of what has not decided nothing is told
	}
	g.tellPart(p, binding)
	if !v.Allowed { // those that have refused as well must not be left out
		for i := range v.Parts {
			if i != v.Binding && !v.Parts[i].Decision.Allowed {
				g.tellPart(p, &v.Parts[i])
			}
		}
	}
	for i := range v.Parts {
		if part := &v.Parts[i]; i != v.Binding && (v.Allowed || part.Decision.Allowed && !part.Unasked) {
			g.tellPart(p, part)
		}
	}
}

func (g *Gate) tellPart(p *pass, part *policy.Part) {
	d := &part.Decision
	if i, ok := p.policies.Find(d.Policy); ok && d.Policy != "" {
		if i > 0 && d.Remaining < p.states[i].Remaining {
			p.states[i].Remaining, p.states[i].Reset = d.Remaining, d.ResetAfter
		}
		return
	}
	if len(p.states) == mostToldParts || d.Policy == "" {
		return
	}
	text := g.text(p, part)
	if text.Len() == 0 {
		return
	}
	if _, added := p.policies.Append(text, 0); !added {
		return
	}
	p.states = append(p.states, ratelimitfields.State{Policy: len(p.states), Remaining: d.Remaining, Reset: d.ResetAfter})
}

func (g *Gate) tellAdmitted(dst http.Header, p *pass) {
	if len(p.verdict.Parts) == 0 {
		return
	}
	if g.tell(p); len(p.states) > 0 {
		g.options.Headers.SetAdmitted(dst, &p.policies, p.states...)
	}
}

// refusal is the answer to a request that was refused with d.
func (g *Gate) refusal(dst http.Header, p *pass, cost int64, d weir.Decision) Refusal {
	h := &g.options.Headers
	v := &p.verdict
	g.tell(p)
	if d.Reason == weir.ReasonDenied {
		f := refusalOf(d, cost, dst, newProblem(d, cost, nil, false, 0))
		f.Verdict = v
		return f
	}
	if len(p.states) == 0 { // no limit has refused it
		seconds := h.SetRefused(dst, &p.policies, d.RetryAfter)
		told := &ratelimitfields.Policy{Name: d.Policy, Unit: ratelimitfields.Requests}
		if h.Fields == ratelimitfields.NoFields {
			told.Name = ""
		}
		f := refusalOf(d, cost, dst, newProblem(d, cost, told, false, seconds))
		f.Verdict = v
		return f
	}
	binding, _ := v.BindingPart() // there is one, as its state is told
	f := newRefusal(dst, h, &p.policies, p.states, binding.Cost, d)
	f.Key, f.Verdict = string(binding.Key), v
	for i := range v.Parts {
		if part := &v.Parts[i]; !part.Decision.Allowed && i != v.Binding && h.Fields != ratelimitfields.NoFields {
			f.Problem.violated(part.Decision.Policy)
		}
	}
	if len(binding.Key) > 0 && !isServers(d.Reason) {
		f.ofClient()
	}
	return f
}

// violated adds a policy to those that have refused.
func (p *Problem) violated(name string) {
	if len(p.ViolatedPolicies) < mostToldParts && !slices.Contains(p.ViolatedPolicies, name) {
		p.ViolatedPolicies = append(p.ViolatedPolicies, name)
	}
}

// isServers reports whether a refusal of the limit of a key is about the server nevertheless.
func isServers(r weir.Reason) bool {
	return r == weir.ReasonClosed || r == weir.ReasonTableFull || r == weir.ReasonOverloaded || r == weir.ReasonUnavailable
}
