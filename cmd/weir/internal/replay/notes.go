package replay

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// textsOf are all expressions of a set.
func textsOf(set *policy.Set) []string {
	var texts []string
	visitTexts(set, func(_, text string) { texts = append(texts, text) })
	return texts
}

// visitTexts calls visit with every expression of a set, and what it belongs to, such as "rule login".
func visitTexts(set *policy.Set, visit func(owner, text string)) {
	text := func(owner string, of fmt.Stringer, missing bool) {
		if !missing {
			visit(owner, of.String())
		}
	}
	for i := range set.Policies {
		p := &set.Policies[i]
		owner := "policy " + p.Name
		text(owner, p.Key, p.Key == nil)
		text(owner, p.Cost, p.Cost == nil)
		text(owner, p.TierBy, p.TierBy == nil)
	}
	for i := range set.Rules {
		r := &set.Rules[i]
		owner := "rule " + r.Name
		text(owner, r.When, r.When == nil)
		for _, use := range r.Limits {
			text(owner, use.Key, use.Key == nil)
			text(owner, use.Cost, use.Cost == nil)
		}
	}
}

var headerInText = regexp.MustCompile(`request\.headers(?:\[\s*["']([^"']+)["']\s*\]|\.([A-Za-z_][A-Za-z0-9_]*))`)

// notesOf says what a configuration looks at that access logs do not have, so that nobody takes the result for more than it is.
func notesOf(set *policy.Set, name string) []string {
	var notes []string
	note := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if name != "" {
			text = name + ": " + text
		}
		if !slices.Contains(notes, text) {
			notes = append(notes, text)
		}
	}
	for i := range set.Rules {
		r := &set.Rules[i]
		for _, h := range r.Match.Headers {
			switch {
			case strings.EqualFold(h.Name, referer) || strings.EqualFold(h.Name, userAgent):
			case h.Absent:
				note("rule %s looks at header %s, which access logs do not have: it is taken as absent", r.Name, h.Name)
			default:
				note("rule %s looks at header %s, which access logs do not have: it never matches", r.Name, h.Name)
			}
		}
		if len(r.Match.Routes) > 0 {
			note("rule %s looks at the route, which access logs do not have: it never matches", r.Name)
		}
		if len(r.Match.Protocols) > 0 && !slices.Contains(r.Match.Protocols, "http") {
			note("rule %s is for the protocol %s: requests of access logs are http", r.Name,
				strings.Join(r.Match.Protocols, ", "))
		}
	}
	visitTexts(set, func(owner, text string) {
		for _, found := range headerInText.FindAllStringSubmatch(text, -1) {
			header := found[1] + found[2]
			if !strings.EqualFold(header, referer) && !strings.EqualFold(header, userAgent) {
				note("%s looks at header %s, which access logs do not have: it is empty", owner, header)
			}
		}
		if strings.Contains(text, "attributes") {
			note("%s looks at attributes, which access logs do not have: they are empty", owner)
		}
		if strings.Contains(text, "request.route") {
			note("%s looks at the route, which access logs do not have: it is empty", owner)
		}
	})
	notesOfPolicies(set, note)
	return notes
}

// notesOfPolicies says which limits cannot do in a replay what they do live.
func notesOfPolicies(set *policy.Set, note func(format string, args ...any)) {
	for i := range set.Policies {
		p := &set.Policies[i]
		for _, l := range p.Limits {
			if l.Algorithm == weir.AlgorithmConcurrency {
				note("policy %s bounds how many requests are served at a time: "+
					"logs do not tell how long they took, so it never refuses", p.Name)
			}
		}
		if p.QueueLimit > 0 {
			note("policy %s lets requests wait: replay never waits, so it refuses those as well that would have waited", p.Name)
		}
	}
}

// looksAtHost tells whether a set asks for the host of a request.
func looksAtHost(set *policy.Set) bool {
	for _, text := range textsOf(set) {
		if strings.Contains(text, "request.host") {
			return true
		}
	}
	return slices.ContainsFunc(set.Rules, func(r policy.Rule) bool { return len(r.Match.Hosts) > 0 })
}
