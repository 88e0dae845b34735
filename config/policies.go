package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

const (
	mostPolicies   = 10_000
	mostTiers      = 65_536
	mostKeys       = 65_536
	mostPolicyName = 128
	mostKeyLength  = 4096

	policyNameIs = "a name of 1 to 128 printable ASCII characters without /"
)

// placedPolicy is a policy with the places of what it consists of.
type placedPolicy struct {
	policy.Policy

	at              yamlread.Value
	live, candidate limitSet
	tiers, keys     []namedLimits
	parent          yamlread.Value // without a node if there is none
	consistency     yamlread.Value // as well
	durability      yamlread.Value // where it stands, the policy if it does not
	preset          yamlread.Value // without a node if there is none
	fromEnv         bool           // it takes its numbers from the environment
	priority        yamlread.Value // as well
	order           yamlread.Value // that of the queue, as well
}

// namedLimits are the limits of a tier or a key.
type namedLimits struct {
	limitSet

	name string
}

// policies reads all of them, in the order of the file.
func (d *decoder) policies(v yamlread.Value) []*placedPolicy {
	if v.IsNull() {
		return nil
	}
	o, ok := d.Mapping(v, "name: policy", "")
	if !ok {
		return nil
	}
	if len(o.Keys) > mostPolicies {
		d.Wrong(v, fmt.Sprintf("has %d policies: there must be at most %d", len(o.Keys), mostPolicies),
			"use tiers or keys for limits that differ")
		return nil
	}
	all := make([]*placedPolicy, 0, len(o.Keys))
	for i := 0; i < len(o.Keys); i++ {
		name := o.Keys[i]
		field := o.Fields[name]
		if below := notIndented(o, i); below > 0 {
			d.Wrong(field, "is empty: its keys stand beside it, and not below it",
				"indent "+strings.Join(o.Keys[i+1:i+1+below], ", ")+" by two more spaces")
			all = append(all, &placedPolicy{at: field, Policy: policy.Policy{Name: name}})
			i += below
			continue
		}
		p := d.policy(name, field)
		if !yamlread.IsName(name, mostPolicyName, "/") {
			d.Wrong(field.OfKey(), "must be "+policyNameIs, "use letters, digits and hyphens")
		}
		all = append(all, p)
	}
	return all
}

// notIndented is how many keys of a policy stand behind the name of it at i, where they are the names of policies.
func notIndented(o *yamlread.Object, i int) int {
	below := o.Keys[i+1:]
	if !o.Fields[o.Keys[i]].IsNull() || len(below) == 0 || o.Fields[below[0]].IsMapping() {
		return 0
	}
	n := 0
	for n < len(below) && slices.Contains(policyTable.Kind.Keys, below[n]) {
		n++
	}
	return n
}

// policy reads one.
func (d *decoder) policy(name string, v yamlread.Value) *placedPolicy {
	p := &placedPolicy{at: v}
	p.Name, p.Source = name, d.Place(v)
	o, ok := fill(d, v, policyTable, p)
	if !ok {
		return p
	}
	d.preset(o, p)
	set, given := d.presetLimit(o, p)
	if !given {
		set, given = d.limitSet(o)
	}
	p.live = set
	p.live.ok = p.live.ok && !o.Failed
	if !given && p.Mode != policy.ModeOff {
		o.Missing(keyLimits, "is missing: a policy needs limit or limits, except with mode: off",
			"add limit: 100/s, for instance")
		p.live.ok = false
	}
	p.Limits = p.live.plain()
	if candidate, given := o.Get("candidate"); given {
		p.candidate = d.limitsOf(candidate)
		p.Candidate = p.candidate.plain()
		if p.Mode == policy.ModeShadow || p.Mode == policy.ModeTag {
			d.Wrong(candidate, "a policy with mode: "+p.Mode.String()+" has no candidate: it is measured itself",
				"remove it, or write mode: enforce")
		}
	}
	if tiers, given := o.Get("tiers"); given {
		d.tiers(tiers, p)
	}
	if keys, given := o.Get("keys"); given {
		p.keys, p.Keys = d.alternatives(keys, "key: limits", mostKeys, p, nil)
		if n := len(p.Keys) + len(p.Tiers); len(p.Keys) <= mostKeys && n > mostKeys {
			d.Wrong(keys, fmt.Sprintf("there are %d keys and tiers: there must be at most %d", n, mostKeys),
				"use fewer tiers or keys")
		}
	}
	if queue, given := o.Get(keyQueue); given {
		d.queue(queue, p)
	}
	d.durability(o, p)
	d.sharing(o, p)
	return p
}

// parent reads the name of another policy.
func (d *decoder) parent(v yamlread.Value, p *placedPolicy) {
	if name, ok := policyName.read(d, v); ok {
		p.Parent, p.parent = name, v
	}
}

// priority reads that of requests.
func (d *decoder) priority(v yamlread.Value, p *placedPolicy) {
	p.priority = v
	if word, ok := d.Choice(v, priorityNames, priorityHints); ok {
		_ = p.Priority.UnmarshalText([]byte(word))
	}
}

// order reads which caller is served first.
func (d *decoder) order(v yamlread.Value, p *placedPolicy) {
	p.order = v
	if word, ok := d.Choice(v, orderNames, orderHints); ok {
		p.NewestFirst = word == newestFirstWord
	}
}

var (
	ruleModes = []string{policy.ModeEnforce.String(), policy.ModeShadow.String(), policy.ModeOff.String()}
	modeNames = slices.Insert(slices.Clone(ruleModes), 2, policy.ModeTag.String())
)

var modeHints = map[string]string{
	"on": ruleModes[0], "active": ruleModes[0], "dry-run": ruleModes[1], "dryrun": ruleModes[1], "log": ruleModes[1],
	"monitor": ruleModes[1], "disabled": ruleModes[2], unset: ruleModes[2], no: ruleModes[2],
	"soft": policy.ModeTag.String(), "warn": policy.ModeTag.String(), "tagged": policy.ModeTag.String(),
}

const admit = "admit"

var (
	failNames = []string{policy.FailClosed.String(), policy.FailOpen.String(), policy.FailLocal.String()}
	failHints = map[string]string{
		"fail-closed": failNames[0], "fail_closed": failNames[0], "deny": failNames[0],
		"fail-open": failNames[1], "fail_open": failNames[1], "allow": failNames[1],
	}
	priorityNames = []string{"background", "sheddable", "normal", "critical"}
	priorityHints = map[string]string{"low": "background", "high": "critical", "default": "normal", "medium": "normal"}
	orderNames    = []string{"oldest-first", newestFirstWord}
	orderHints    = map[string]string{"fifo": "oldest-first", "lifo": newestFirstWord}
)

// limitsOf reads the mapping of a candidate, a tier or a key.
func (d *decoder) limitsOf(v yamlread.Value) limitSet {
	o, ok := d.Object(v, limitsTable.Kind)
	if !ok {
		return limitSet{at: v}
	}
	set, given := d.limitSet(o)
	if !given {
		o.Missing(keyLimits, "is missing: there must be limit or limits", "add limit: 100/s, for instance")
		set.ok = false
	}
	set.ok = set.ok && !o.Failed
	return set
}

// tiers reads by and the tiers.
func (d *decoder) tiers(v yamlread.Value, p *placedPolicy) {
	o, ok := d.Mapping(v, "by: expression, and name: limits for each tier", "")
	if !ok {
		return
	}
	d.needs(o, tiersNeeds)
	by, given := o.Get("by")
	if given {
		p.TierBy = d.tierBy(by)
	}
	p.tiers, p.Tiers = d.alternatives(v, "name: limits", mostTiers, p, []string{"by"})
	if len(o.Keys) == 1 && given {
		d.Wrong(v, "has no tier beside by", "add gold: {limit: 1000/s}, for instance")
	}
}

// alternatives reads limits that hold instead of those of the policy.
func (d *decoder) alternatives(v yamlread.Value, what string, most int, p *placedPolicy, except []string,
) (named []namedLimits, plain map[string][]policy.Limit) {
	o, ok := d.Mapping(v, what, "")
	if !ok {
		return nil, nil
	}
	if len(o.Keys) > most {
		d.Wrong(v, fmt.Sprintf("has %d entries: there must be at most %d", len(o.Keys), most),
			"use tiers for classes of keys")
		return nil, nil
	}
	plain = make(map[string][]policy.Limit, len(o.Keys))
	for _, name := range o.Keys {
		if slices.Contains(except, name) {
			continue
		}
		if len(name) > mostKeyLength || name == "" && except != nil {
			d.Wrong(o.Fields[name].OfKey(), "must be a name of 1 to 4096 bytes",
				"write a shorter one")
			continue
		}
		set := d.limitsOf(o.Fields[name])
		d.alike(p.live, &set)
		plain[name] = set.plain()
		named = append(named, namedLimits{set, name})
	}
	return named, plain
}

// alike compares limits with those that they hold instead of.
func (d *decoder) alike(live limitSet, set *limitSet) {
	if !live.ok || !set.ok {
		return
	}
	if len(set.limits) != len(live.limits) {
		d.Wrong(set.at, fmt.Sprintf("has %s, and the policy has %d: there must be as many",
			plural(len(set.limits), keyLimit), len(live.limits)), "write one for each limit of the policy, in its order")
		return
	}
	for i := range set.limits {
		l, base := &set.limits[i], live.limits[i]
		switch {
		case l.Name != "" && l.Name != base.Name:
			fix := "remove the name, as that of the policy has none"
			if base.Name != "" {
				fix = "write " + strconv.Quote(base.Name) + ", or leave it out"
			}
			d.Wrong(l.name, "names must be those of the limits of the policy, in their order", fix)
		case l.Algorithm() != base.Algorithm():
			fix := "write algorithm: " + base.Algorithm().String()
			if base.Algorithm() == weir.AlgorithmTokenBucket {
				fix = "leave algorithm out"
			}
			d.Wrong(l.at, fmt.Sprintf("is a %v, and that of the policy a %v: algorithms must be the same",
				l.Algorithm(), base.Algorithm()), fix)
		case l.segments == 0 && l.Algorithm() == weir.AlgorithmSlidingWindow:
			l.Limit.Limit = weir.SlidingWindow(l.Rate(), base.Segments())
		case l.Segments() != base.Segments():
			d.Wrong(l.at, "has other segments than that of the policy: they must be the same",
				fmt.Sprintf("write segments: %d, or leave it out", base.Segments()))
		}
		if l.Name == "" {
			l.Name = base.Name
		}
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if before, ok := strings.CutSuffix(what, "cy"); ok {
		what = before + "cie"
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// queue reads how calls wait.
func (d *decoder) queue(v yamlread.Value, p *placedPolicy) {
	o, ok := fill(d, v, queueTable, p)
	if !ok {
		return
	}
	limit, given := o.Get(keyLimit)
	if given {
		p.QueueLimit, _ = d.Number(limit, 0, algo.MaxPermits, "a number of permits")
	} else if p.QueueLimit == 0 { // no preset has it
		o.Missing(keyLimit, "is missing: a queue needs it", "add limit: 100, for instance")
	}
	if p.QueueLimit == 0 {
		p.NewestFirst, p.MaxWait = false, 0
	}
}

// lockout reads when keys are locked out.
func (d *decoder) lockout(v yamlread.Value) *policy.Lockout {
	l := new(policy.Lockout)
	o, ok := fill(d, v, lockoutTable, l)
	if !ok {
		return nil
	}
	d.needs(o, lockoutNeeds)
	return l
}
