package replay

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// textsOf are all expressions of a set.
func textsOf(set *policy.Set) []string {
	var texts []string
	visitTexts(set, func(_ owner, text string) { texts = append(texts, text) })
	return texts
}

// visitTexts calls visit with every expression of a set, and what it belongs to.
func visitTexts(set *policy.Set, visit func(who owner, text string)) {
	text := func(who owner, of fmt.Stringer, missing bool) {
		if !missing {
			visit(who, of.String())
		}
	}
	for i := range set.Policies {
		p := &set.Policies[i]
		who := owner{false, p.Name}
		text(who, p.Key, p.Key == nil)
		text(who, p.Cost, p.Cost == nil)
		text(who, p.TierBy, p.TierBy == nil)
	}
	for i := range set.Rules {
		r := &set.Rules[i]
		who := owner{true, r.Name}
		text(who, r.When, r.When == nil)
		for _, use := range r.Limits {
			text(who, use.Key, use.Key == nil)
			text(who, use.Cost, use.Cost == nil)
		}
	}
}

var headerInText = regexp.MustCompile(`request\.headers(?:\[\s*["']([^"']+)["']\s*\]|\.([A-Za-z_][A-Za-z0-9_]*))`)

// owner is a policy or a rule.
type owner struct {
	rule bool
	name string
}

// effect is what becomes of policies and rules in a replay: how the sentence about one of them, or about several, ends.
type effect struct{ one, more string }

var (
	neverMatches = effect{" never matches", " never match"}
	takesAbsent  = effect{" takes it as absent", " take it as absent"}
	takesEmpty   = effect{" takes it as empty", " take it as empty"}
	takesNone    = effect{" takes them as empty", " take them as empty"}
	neverRefuses = effect{
		", which bounds how many are served at a time, never refuses",
		", which bound how many are served at a time, never refuse",
	}
	refusesWaiting = effect{" refuses those as well that would have waited", " refuse those as well that would have waited"}
)

// remark is something that is otherwise in a replay, with those that it has an effect on.
type remark struct {
	what     string
	affected []affected
}

type affected struct {
	effect effect
	owners []owner
}

// remarks are in the order in which they were found. There is one for each thing, however many look at it.
type remarks []remark

func (all *remarks) add(what string, e effect, who owner) {
	at := slices.IndexFunc(*all, func(r remark) bool { return r.what == what })
	if at < 0 {
		at = len(*all)
		*all = append(*all, remark{what: what})
	}
	r := &(*all)[at]
	of := slices.IndexFunc(r.affected, func(a affected) bool { return a.effect == e })
	if of < 0 {
		of = len(r.affected)
		r.affected = append(r.affected, affected{effect: e})
	}
	if owners := &r.affected[of].owners; !slices.Contains(*owners, who) {
		*owners = append(*owners, who)
	}
}

// String is "access logs have no header X-Plan: rules a, b never match; policy c takes it as empty".
func (r remark) String() string {
	parts := make([]string, len(r.affected))
	for i, a := range r.affected {
		var policies, rules []string
		for _, o := range a.owners {
			if o.rule {
				rules = append(rules, o.name)
			} else {
				policies = append(policies, o.name)
			}
		}
		var who []string
		for _, kind := range []struct {
			one, more string
			names     []string
		}{{"policy ", "policies ", policies}, {"rule ", "rules ", rules}} {
			switch len(kind.names) {
			case 0:
			case 1:
				who = append(who, kind.one+kind.names[0])
			default:
				who = append(who, kind.more+strings.Join(kind.names, ", "))
			}
		}
		end := a.effect.more
		if len(a.owners) == 1 {
			end = a.effect.one
		}
		parts[i] = strings.Join(who, " and ") + end
	}
	return r.what + ": " + strings.Join(parts, "; ")
}

const noRoute, noAttributes = "access logs have no route", "access logs have no attributes"

func noHeader(name string) string {
	return "access logs have no header " + http.CanonicalHeaderKey(name)
}

// isLogged reports whether access logs have a header.
func isLogged(header string) bool {
	return strings.EqualFold(header, referer) || strings.EqualFold(header, userAgent)
}

// notesOf returns what a configuration looks at that access logs do not have, so that the result is not taken for more than it
// is.
func notesOf(set *policy.Set, name string) []string {
	var all remarks
	for i := range set.Rules {
		r := &set.Rules[i]
		who := owner{true, r.Name}
		for _, h := range r.Match.Headers {
			switch {
			case isLogged(h.Name):
			case h.Absent:
				all.add(noHeader(h.Name), takesAbsent, who)
			default:
				all.add(noHeader(h.Name), neverMatches, who)
			}
		}
		if len(r.Match.Routes) > 0 {
			all.add(noRoute, neverMatches, who)
		}
		if len(r.Match.Protocols) > 0 && !slices.Contains(r.Match.Protocols, "http") {
			protocols := strings.Join(r.Match.Protocols, " or ")
			all.add("requests of access logs have the protocol http, not "+protocols, neverMatches, who)
		}
	}
	visitTexts(set, func(who owner, text string) {
		for _, found := range headerInText.FindAllStringSubmatch(text, -1) {
			if header := found[1] + found[2]; !isLogged(header) {
				all.add(noHeader(header), takesEmpty, who)
			}
		}
		if strings.Contains(text, "attributes") {
			all.add(noAttributes, takesNone, who)
		}
		if strings.Contains(text, "request.route") {
			all.add(noRoute, takesEmpty, who)
		}
	})
	for i := range set.Policies {
		p := &set.Policies[i]
		who := owner{false, p.Name}
		for _, l := range p.Limits {
			if l.Algorithm() == weir.AlgorithmConcurrency {
				all.add("access logs do not tell how long requests took", neverRefuses, who)
			}
		}
		if p.QueueLimit > 0 {
			all.add("replay never waits", refusesWaiting, who)
		}
	}
	notes := make([]string, len(all))
	for i, r := range all {
		notes[i] = r.String()
		if name != "" {
			notes[i] = name + ": " + notes[i]
		}
	}
	return notes
}

// looksAtHost reports whether a set asks for the host of a request.
func looksAtHost(set *policy.Set) bool {
	for _, text := range textsOf(set) {
		if strings.Contains(text, "request.host") {
			return true
		}
	}
	return slices.ContainsFunc(set.Rules, func(r policy.Rule) bool { return len(r.Match.Hosts) > 0 })
}
