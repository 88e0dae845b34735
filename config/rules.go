package config

import (
	"fmt"

	"github.com/weirhq/weir/policy"
)

const (
	mostRules    = 100_000
	mostRuleName = 128
	mostUses     = 64
)

// placedRule is a rule with the places of what it consists of.
type placedRule struct {
	value
	policy.Rule

	uses []placedUse
}

// placedUse is a use of a policy with its place.
type placedUse struct {
	value
	policy.Use
}

// rules reads all of them.
func (d *decoder) rules(v value) []*placedRule {
	if v.isNull() || v.node.Kind == 0 {
		return nil
	}
	if len(v.node.Content) == 0 && v.at() != nil && describe(v) == isList {
		return nil
	}
	items, ok := d.list(v, false, "a list of rules")
	if !ok {
		return nil
	}
	if len(items) > mostRules {
		d.wrong(v, fmt.Sprintf("has %d rules: there must be at most %d", len(items), mostRules),
			"use lists in match, or tiers and keys in a policy")
		return nil
	}
	all := make([]*placedRule, 0, len(items))
	names := make(map[string]*placedRule, len(items))
	for i, item := range items {
		r, name := d.rule(item, i)
		if first, twice := names[r.Name]; twice && r.Name != "" {
			d.wrong(name, fmt.Sprintf("the rule in line %d has this name already: names must differ", first.node.Line),
				"choose another name")
		} else {
			names[r.Name] = r
		}
		all = append(all, r)
	}
	return all
}

// rule reads one, and returns the value of its name.
func (d *decoder) rule(v value, i int) (r *placedRule, name value) {
	r = &placedRule{value: v}
	r.Source = d.place(v)
	o, ok := d.object(v, ruleKind)
	if !ok {
		return r, v
	}
	name, given := o.get(keyName)
	if given {
		r.Name, _ = d.name(name, "a name of 1 to 128 printable ASCII characters", mostRuleName, "")
	} else {
		o.missing(keyName, "is missing: a rule needs it", fmt.Sprintf("add name: rule-%d, for instance", i+1))
	}
	if match, given := o.get("match"); given {
		d.match(match, r)
	}
	if when, given := o.get("when"); given {
		r.When = and(r.When, d.when(when))
	}
	if limits, given := o.get(keyLimits); given {
		d.uses(limits, r)
	}
	if exempt, given := o.get(keyExempt); given {
		r.Exempt = d.boolean(exempt)
		if limits, given := o.get(keyLimits); given && r.Exempt {
			d.wrong(exempt, "an exempt rule frees requests of all limits: it must have no limits",
				fmt.Sprintf("remove exempt, or limits in line %d", limits.key.Line))
		}
	}
	if final, given := o.get("final"); given {
		r.Final = d.boolean(final)
	}
	if charge, given := o.get("charge"); given {
		const before, afterwards = "before", "afterwards"
		word, _ := d.choice(charge, []string{before, afterwards}, map[string]string{"after": afterwards, "debit": afterwards})
		r.Afterwards = word == afterwards
		if r.Afterwards && r.Exempt {
			d.wrong(charge, "an exempt rule charges nothing", "remove charge, or exempt")
		}
	}
	d.denies(o, r)
	return r, name
}

// denies reads whether a rule denies requests, and in which mode.
func (d *decoder) denies(o *object, r *placedRule) {
	if deny, given := o.get(keyDeny); given {
		r.Deny = d.boolean(deny)
	}
	if mode, given := o.get("mode"); given {
		if word, ok := d.choice(mode, modeNames, modeHints); ok {
			_ = r.Mode.UnmarshalText([]byte(word)) // it is one of them
		}
		if !r.Deny && r.Mode != policy.ModeEnforce {
			d.wrong(mode, "the rule does not deny: other rules have the modes of their policies",
				"write mode in the policy, or add deny: true")
		}
	}
	if !r.Deny {
		return
	}
	for _, key := range []string{keyLimits, keyExempt, "final", "charge"} {
		other, given := o.get(key)
		switch {
		case !given:
		case key == keyExempt && !r.Exempt, key == "final" && !r.Final, key == "charge" && !r.Afterwards:
		default:
			d.wrong(other, "a rule that denies does nothing else: it must have no "+key, "remove deny, or "+key)
		}
	}
}

// uses reads the policies that a rule applies.
func (d *decoder) uses(v value, r *placedRule) {
	items, ok := d.list(v, true, "the name of a policy, or {policy: name, key: ..., cost: ...}")
	if !ok {
		return
	}
	if len(items) > mostUses {
		d.wrong(v, fmt.Sprintf("has %d policies: there must be at most %d", len(items), mostUses),
			"make several limits of one policy")
		return
	}
	for _, item := range items {
		if u, ok := d.use(item); ok {
			r.uses = append(r.uses, u)
			r.Limits = append(r.Limits, u.Use)
		}
	}
}

// use reads a name, or a mapping.
func (d *decoder) use(v value) (u placedUse, ok bool) {
	u.value = v
	if describe(v) != isMapping {
		s, isText := d.text(v, "the name of a policy, or {policy: name, key: ..., cost: ...}", "write the name of a policy")
		u.Policy = s.text
		return u, isText
	}
	o, ok := d.object(v, useKind)
	if !ok {
		return u, false
	}
	name, given := o.get("policy")
	if !given {
		o.missing("policy", "is missing: it names the policy", "add policy: and the name of a policy")
	} else if s, ok := d.text(name, "the name of a policy", "write the name of a policy"); ok {
		u.Policy, u.value = s.text, name
	}
	if key, given := o.get("key"); given {
		u.Key = d.key(key)
	}
	if cost, given := o.get("cost"); given {
		u.Cost = d.cost(cost)
	}
	return u, u.Policy != ""
}
