package config

import (
	"fmt"

	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

const (
	mostRules    = 100_000
	mostRuleName = 128
	mostUses     = 64
	afterwards   = "afterwards"
)

// placedRule is a rule with the places of what it consists of.
type placedRule struct {
	policy.Rule

	at   yamlread.Value
	uses []placedUse
}

// placedUse is a use of a policy with its place.
type placedUse struct {
	policy.Use

	at yamlread.Value
}

// rules reads all of them.
func (d *decoder) rules(v yamlread.Value) []*placedRule {
	if v.IsNull() || v.IsList() && len(v.Node.Content) == 0 {
		return nil
	}
	items, ok := d.list(v, "a list of rules")
	if !ok {
		return nil
	}
	if len(items) > mostRules {
		d.Wrong(v, fmt.Sprintf("has %d rules: there must be at most %d", len(items), mostRules),
			"use lists in match, or tiers and keys in a policy")
		return nil
	}
	all := make([]*placedRule, 0, len(items))
	names := make(map[string]*placedRule, len(items))
	for i, item := range items {
		r, name := d.rule(item, i)
		if first, twice := names[r.Name]; twice && r.Name != "" {
			d.Wrong(name, fmt.Sprintf("the rule in line %d has this name already: names must differ", first.at.Node.Line),
				"choose another name")
		} else {
			names[r.Name] = r
		}
		all = append(all, r)
	}
	return all
}

// rule reads one, and returns the value of its name.
func (d *decoder) rule(v yamlread.Value, i int) (r *placedRule, name yamlread.Value) {
	r = &placedRule{at: v}
	r.Source = d.Place(v)
	o, ok := fill(d, v, ruleTable, r)
	if !ok {
		return r, v
	}
	name, given := o.Get(keyName)
	if given {
		r.Name, _ = d.Name(name, "a name of 1 to 128 printable ASCII characters", mostRuleName, "")
	} else {
		o.Missing(keyName, "is missing: a rule needs it", fmt.Sprintf("add name: rule-%d, for instance", i+1))
	}
	if when, given := o.Get("when"); given {
		r.When = and(r.When, d.when(when))
	}
	if exempt, given := o.Get(keyExempt); given {
		if limits, given := o.Get(keyLimits); given && r.Exempt {
			d.Wrong(exempt, "an exempt rule frees requests of all limits: it must have no limits",
				fmt.Sprintf("remove exempt, or limits in line %d", limits.Key.Line))
		}
	}
	if charge, given := o.Get("charge"); given && r.Afterwards && r.Exempt {
		d.Wrong(charge, "an exempt rule charges nothing", "remove charge, or exempt")
	}
	d.denies(o, r)
	return r, name
}

// denies finds what a rule that denies cannot have, and one that does not.
func (d *decoder) denies(o *yamlread.Object, r *placedRule) {
	if mode, given := o.Get("mode"); given && !r.Deny && r.Mode != policy.ModeEnforce {
		d.Wrong(mode, "the rule does not deny: other rules have the modes of their policies",
			"write mode in the policy, or add deny: true")
	}
	if !r.Deny {
		return
	}
	for _, key := range []string{keyLimits, keyExempt, "final", "charge"} {
		other, given := o.Get(key)
		switch {
		case !given:
		case key == keyExempt && !r.Exempt, key == "final" && !r.Final, key == "charge" && !r.Afterwards:
		default:
			d.Wrong(other, "a rule that denies does nothing else: it must have no "+key, "remove deny, or "+key)
		}
	}
}

// uses reads the policies that a rule applies.
func (d *decoder) uses(v yamlread.Value, r *placedRule) {
	items, ok := d.oneOrList(v, "the name of a policy, or {policy: name, key: ..., cost: ...}")
	if !ok {
		return
	}
	if len(items) > mostUses {
		d.Wrong(v, fmt.Sprintf("has %d policies: there must be at most %d", len(items), mostUses),
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
func (d *decoder) use(v yamlread.Value) (u placedUse, ok bool) {
	u.at = v
	if !v.IsMapping() {
		s, isText := d.Text(v, "the name of a policy, or {policy: name, key: ..., cost: ...}", "write the name of a policy")
		u.Policy = s.Text
		return u, isText
	}
	o, ok := fill(d, v, useTable, &u)
	if !ok {
		return u, false
	}
	d.needs(o, useNeeds)
	if name, given := o.Get(keyPolicy); !given {
		return u, false
	} else if s, ok := d.Text(name, "the name of a policy", "write the name of a policy"); ok {
		u.Policy, u.at = s.Text, name
	}
	return u, u.Policy != ""
}
