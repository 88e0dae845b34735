package policy

import (
	"time"

	"github.com/weirhq/weir"
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
	// Limits are those that apply to the request, with those in shadow and the candidates.
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
	// Role is "enforce", "shadow" or "candidate".
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
	// Before and After are how many permits remain without the request and with it.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	// Decision is that of this limit alone.
	Decision weir.Decision `json:"decision"`
	// Would is what would be allowed: "a cost of up to 3 now, this one in 1.2s", for instance.
	Would string `json:"would"`
}
