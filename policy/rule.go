package policy

import (
	"net/netip"
)

// Rule applies limits to requests. Every rule that matches a request adds its limits, in the order of the rules; a request that
// no rule matches is not limited. A rule that denies comes before all others, wherever it stands.
type Rule struct {
	// Name identifies the rule in explanations and counts: required, from 1 to 128 printable ASCII characters, and different
	// from all others.
	Name string
	// Match chooses the requests that the rule is for. The zero Match is all.
	Match Match
	// When narrows that down. It is asked only if Match matches. Default: nil, always. If it cannot be evaluated, the rule
	// matches, except if it is Exempt: so a rule with Deny denies.
	When Condition
	// Limits are the limits of the request. A policy that another rule has applied with the same key already is not applied
	// again. Default: none.
	Limits []Use
	// Exempt frees the request of all limits, those of other rules included. Then there must be no Limits.
	Exempt bool
	// Deny refuses the request at once with ReasonDenied, whatever other rules say: also a request that is exempt, or that a
	// Final rule before this one matches. No limit is asked, and nothing is charged or counts towards a Lockout. It does not
	// apply to requests that name their policy: see [Named]. There must be no Limits then, and neither Exempt, Final nor
	// Afterwards.
	Deny bool
	// Mode is that of a rule with Deny: in ModeShadow it counts the requests that it would deny, and denies none. In ModeOff it
	// does nothing. Other rules have the modes of the policies that they apply. Default: ModeEnforce.
	Mode Mode
	// Final ends the rules: if this one matches, those behind it are not looked at. Rules with Exempt or Deny are looked at
	// nevertheless, and all rules are if When cannot be evaluated.
	Final bool
	// Afterwards is for requests that report what has been spent already, such as the hits that a proxy reports when a response
	// has ended. One that is refused costs its limits nevertheless, in full: what is not there is owed, up to the bound of
	// [Engine.DebitAll], and the next request is refused. The Verdict is a refusal with what remains after the charge, and when
	// the next permit comes. It is no refusal towards a Lockout. It applies to a request if any rule that matches it has it. See
	// Named.Afterwards for requests that name their policy.
	Afterwards bool
	// Source is the place of the rule, such as "weir.yaml:12:5". Default: "".
	Source string
}

// Use is a policy that a rule applies.
type Use struct {
	// Policy is its name. Required.
	Policy string
	// Key is what the request is counted under. Default: nil, the Key of the policy.
	Key Text
	// Cost is how many permits the request costs: from 0 to 10^15, where 0 takes nothing and is refused only if no permit is
	// available. Default: nil, the Cost of the policy.
	Cost Number
}

// Match is what can be seen of a request without an expression. All conditions must be true; one that is empty always is.
type Match struct {
	// Methods are the methods of which the request has one, in upper case. GET includes HEAD, as in [net/http.ServeMux]: servers
	// run the handler of GET for it.
	Methods []string
	// Hosts are the hosts of which the request has one, without port: "api.example.com", or "*.example.com" for all below
	// example.com. Case does not matter.
	Hosts []string
	// Paths are patterns of which the path matches one, as those of [net/http.ServeMux]: "/users/{id}" has a wildcard for one
	// segment, "/files/{rest...}" one for the rest, and "/files/" stands for all below; "/files/{$}" ends with the slash. A path
	// that servers read in several ways matches under any of them, so that it is denied, and is exempt only under all: see
	// Request.RawPath.
	Paths []string
	// Headers are conditions on the header, all of which must be true.
	Headers []HeaderMatch
	// Clients are networks of which one contains the address of the client. Mapped IPv4 addresses count as IPv4.
	Clients []netip.Prefix
	// Routes are the names of routes of which the request has one.
	Routes []string
	// Protocols are the protocols of which the request has one.
	Protocols []string
}

// HeaderMatch is a condition on a field of the header. Only the first value of a field counts.
type HeaderMatch struct {
	// Name is the name of the field. Case does not matter. Required.
	Name string
	// Value is what the field must be; with a "*" at its end, what it must begin with, so that "*" is any value. Case
	// matters.
	Value string
	// Absent turns it round: there must be no such field. Then Value must be "".
	Absent bool
}
